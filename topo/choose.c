/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.c - see choose.h. */
#include "topo/choose.h"

#include <stdio.h>
#include <string.h>

#include "topo/text.h"

enum { SLOW = 4, COLUMNS = 80, WORDS = 4096 };

/*
 * Leaves out the NICs for which bad() is true, with the reason `why`, unless no NIC would be left.
 */
static void leave_out(const struct braid_machine *m, enum braid_left_out *left,
		      enum braid_left_out why, bool (*bad)(const struct braid_nic *nic, long limit),
		      long limit)
{
	unsigned rest = 0;

	for (unsigned i = 0; i < m->n_nics; i++)
		rest += !left[i] && !bad(&m->nics[i], limit);
	for (unsigned i = 0; i < m->n_nics && rest; i++) {
		if (!left[i] && bad(&m->nics[i], limit))
			left[i] = why;
	}
}

static bool is_down(const struct braid_nic *nic, long limit)
{
	(void)limit;
	return nic->carrier == BRAID_CARRIER_DOWN;
}

static bool has_no_rdma(const struct braid_nic *nic, long limit)
{
	(void)limit;
	return !nic->rdma;
}

static bool is_slow(const struct braid_nic *nic, long fastest)
{
	return nic->speed_mbps && (long)nic->speed_mbps * SLOW < fastest;
}

/* Finds the NICs near a GPU by the steps 1 to 4 of choose.h; returns how near they are. */
static enum braid_distance find_near(const struct braid_machine *m, unsigned gpu,
				     enum braid_left_out *left)
{
	enum braid_distance nearest = BRAID_DISTANCE_UNKNOWN, d;
	long fastest = 0;

	memset(left, 0, BRAID_MACHINE_NICS * sizeof(*left));
	leave_out(m, left, BRAID_LEFT_DOWN, is_down, 0);
	leave_out(m, left, BRAID_LEFT_NO_RDMA, has_no_rdma, 0);
	for (unsigned i = 0; i < m->n_nics; i++) {
		if (!left[i] && m->nics[i].speed_mbps > fastest)
			fastest = m->nics[i].speed_mbps;
	}
	leave_out(m, left, BRAID_LEFT_SLOW, is_slow, fastest);
	for (unsigned i = 0; i < m->n_nics; i++) {
		d = braid_machine_gpu_nic(m, gpu, i);
		if (!left[i] && d < nearest)
			nearest = d;
	}
	for (unsigned i = 0; i < m->n_nics; i++) {
		if (!left[i] && braid_machine_gpu_nic(m, gpu, i) != nearest)
			left[i] = BRAID_LEFT_FAR;
	}
	return nearest;
}

static bool same_near(const struct braid_machine *m, const enum braid_left_out *a,
		      const enum braid_left_out *b)
{
	for (unsigned i = 0; i < m->n_nics; i++) {
		if (!a[i] != !b[i])
			return false;
	}
	return true;
}

void braid_choose(const struct braid_machine *m, unsigned n_gpus, unsigned gpu,
		  struct braid_choice *ret)
{
	enum braid_left_out other[BRAID_MACHINE_NICS];
	unsigned k = 0;

	memset(ret, 0, sizeof(*ret));
	ret->distance = find_near(m, gpu, ret->left_out);
	for (unsigned i = 0; i < m->n_nics; i++)
		ret->n_near += !ret->left_out[i];
	for (unsigned g = 0; g < n_gpus; g++) {
		if (g != gpu)
			find_near(m, g, other);
		if (g != gpu && !same_near(m, ret->left_out, other))
			continue;
		if (g == gpu)
			ret->turn = ret->sharers;
		ret->sharers++;
	}
	for (unsigned i = 0; i < m->n_nics; i++) {
		if (ret->left_out[i])
			continue;
		if (ret->n_near < ret->sharers ? ret->turn % ret->n_near == k :
						 k % ret->sharers == ret->turn)
			ret->nics[ret->n++] = i;
		k++;
	}
}

/* ---------------------------------------------------------------------------------- in words */

/* Adds "NIC0 (mlx5_0:1), NIC2 (mlx5_2:1)", the NICs left out for `why`; returns how many. */
static unsigned add_nics(struct braid_topo_text *w, const struct braid_machine *m,
			 const struct braid_choice *c, enum braid_left_out why)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_nics; i++) {
		if (c->left_out[i] == why)
			braid_topo_add(w, "%sNIC%u (%s)", n++ ? ", " : "", i, m->nics[i].name);
	}
	return n;
}

static unsigned count_left(const struct braid_machine *m, const struct braid_choice *c,
			   enum braid_left_out why)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_nics; i++)
		n += c->left_out[i] == why;
	return n;
}

static void add_left_out(struct braid_topo_text *w, const struct braid_machine *m,
			 const struct braid_choice *c)
{
	static const struct {
		enum braid_left_out why;
		const char *one, *many;
	} rows[] = {
		{BRAID_LEFT_DOWN, "its link is down", "their links are down"},
		{BRAID_LEFT_NO_RDMA, "it has no RDMA, which others have",
		 "they have no RDMA, which others have"},
		{BRAID_LEFT_SLOW, "it has less than a quarter of the fastest's speed",
		 "they have less than a quarter of the fastest's speed"},
		{BRAID_LEFT_FAR, "it is farther", "they are farther"},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned n = count_left(m, c, rows[i].why);

		if (!n)
			continue;
		braid_topo_add(w, "Not ");
		add_nics(w, m, c, rows[i].why);
		braid_topo_add(w, ": %s.\n", n > 1 ? rows[i].many : rows[i].one);
	}
}

static void add_rails(struct braid_topo_text *w, unsigned gpu, const struct braid_choice *c)
{
	if (c->n_near == 1 && c->sharers == 1)
		return;
	if (c->sharers == 1) {
		braid_topo_add(w, "No other GPU has the same ones, so all are GPU%u's, "
			       "one rail each.\n", gpu);
		return;
	}
	if (c->n_near == 1) {
		braid_topo_add(w, "%u GPUs share it.\n", c->sharers);
		return;
	}
	braid_topo_add(w, "%u GPUs share these %u; GPU%u is number %u of them, counted from 0, and "
		       "takes ", c->sharers, c->n_near, gpu, c->turn);
	if (c->n_near < c->sharers)
		braid_topo_add(w, "number %u mod %u = %u of these", c->turn, c->n_near,
			       c->turn % c->n_near);
	else if (c->n_near == c->sharers)
		braid_topo_add(w, "the NIC of that number");
	else
		braid_topo_add(w, "that number and every %u after it", c->sharers);
	braid_topo_add(w, ", so that it has the same rail on every host of this make.\n");
}

static void explain(struct braid_topo_text *w, const struct braid_machine *m, unsigned gpu,
		    const struct braid_choice *c)
{
	braid_topo_add(w, "GPU%u uses ", gpu);
	for (unsigned i = 0; i < c->n; i++)
		braid_topo_add(w, "%sNIC%u (%s)", i ? ", " : "", c->nics[i],
			       m->nics[c->nics[i]].name);
	braid_topo_add(w, "%s.\n", c->n ? "" : "none: there is no NIC");
	if (!c->n)
		return;
	if (c->distance == BRAID_DISTANCE_UNKNOWN)
		braid_topo_add(w, "How near it is to any NIC is not known, so none is preferred: ");
	else
		braid_topo_add(w, "Nearest, at %s (%s): ", braid_distance_name(c->distance),
			       braid_distance_words(c->distance));
	add_nics(w, m, c, BRAID_LEFT_NOT);
	braid_topo_add(w, ".\n");
	add_rails(w, gpu, c);
	add_left_out(w, m, c);
	for (unsigned i = 0; i < m->n_notes; i++)
		braid_topo_add(w, "Note: %s.\n", m->notes[i]);
}

/* Break lines at blanks. */
static void fold(char *text)
{
	char *start = text, *blank = NULL;

	for (char *p = text; *p; p++) {
		if (*p == '\n') {
			start = p + 1;
			blank = NULL;
			continue;
		}
		if (p - start >= COLUMNS && blank) {
			*blank = '\n';
			start = blank + 1;
			blank = NULL;
		}
		if (*p == ' ')
			blank = p;
	}
}

size_t braid_choice_explain(const struct braid_machine *m, unsigned gpu,
			    const struct braid_choice *c, char *ret, size_t len)
{
	char text[WORDS] = "";
	struct braid_topo_text w = { .text = text, .len = sizeof(text) };

	explain(&w, m, gpu, c);
	fold(text);
	return (size_t)snprintf(ret, len, "%s", text);
}
