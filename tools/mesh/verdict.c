/* SPDX-License-Identifier: BSD-3-Clause */
/* verdict.c - the findings as sentences: what is odd, by how much, and what to look at next. */
#include <stdarg.h>
#include <string.h>

#include "tools/mesh/mesh.h"

enum { FIGURE = 32, GROUP = 400, GROUP_NAMES = 4 };

/* -- figures ------------------------------------------------------------------------------ */

/* Three digits. */
static void figure(double x, const char *unit, char *room, size_t n)
{
	snprintf(room, n, "%.*f %s", x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2, x, unit);
}

void mesh_speed_text(double bytes_s, char *room, size_t n)
{
	double bit_s = bytes_s * 8;

	if (bit_s >= 0.9995e9)
		figure(bit_s / 1e9, "Gbit/s", room, n);
	else if (bit_s >= 0.9995e6)
		figure(bit_s / 1e6, "Mbit/s", room, n);
	else
		figure(bit_s / 1e3, "kbit/s", room, n);
}

void mesh_time_text(double seconds, char *room, size_t n)
{
	if (seconds >= 0.9995)
		figure(seconds, "s", room, n);
	else if (seconds >= 0.9995e-3)
		figure(seconds * 1e3, "ms", room, n);
	else
		figure(seconds * 1e6, "us", room, n);
}

/* -- sentences ---------------------------------------------------------------------------- */

struct words {
	const struct mesh_report *r;
	struct mesh_finding *f;
	const char *a, *b;		/* names of hosts */
	const char *nic;		/* " eth0" of host a, or "" */
	char value[FIGURE], others[FIGURE];
};

__attribute__((format(printf, 2, 3)))
static void text(struct words *w, const char *fmt, ...)
{
	size_t at = strlen(w->f->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->f->text + at, sizeof(w->f->text) - at, fmt, ap);
	va_end(ap);
}

__attribute__((format(printf, 2, 3)))
static void next(struct words *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->f->next, sizeof(w->f->next), fmt, ap);
	va_end(ap);
}

/* "side north (8 hosts)", or the first names. */
static void group_text(const struct mesh_report *r, int group, char *room)
{
	int i, n = 0, at = 0;

	for (i = 0; i < r->n; i++) {
		if (r->group[i] != group || n++ >= GROUP_NAMES)
			continue;
		if (n == 1 && r->hosts[i].side[0])
			at = snprintf(room, GROUP, "side %s: ", r->hosts[i].side);
		at += snprintf(room + at, (size_t)(GROUP - at), "%s%.60s", n > 1 ? ", " : "",
			       r->hosts[i].name);
	}
	if (n > GROUP_NAMES)
		snprintf(room + at, (size_t)(GROUP - at), " and %d more", n - GROUP_NAMES);
}

static void say_absent(struct words *w)
{
	text(w, "%s can't be measured: %s.", w->a, w->r->hosts[w->f->a].why);
	if (w->r->hosts[w->f->a].where[0])
		next(w, "is the host still up, and is it reached from here? Its kernel's log says "
		     "whether braid was killed");
	else
		next(w, "does the remote shell reach it without a password, and is braid of this "
		     "version there?");
}

static void say_side(struct words *w)
{
	enum mesh_way way = w->f->way;
	char from[GROUP], to[GROUP];
	const char *both = way == MESH_BOTH ? "Between" : "From";

	group_text(w->r, way == MESH_RECEIVES ? w->f->b : w->f->a, from);
	group_text(w->r, way == MESH_RECEIVES ? w->f->a : w->f->b, to);
	text(w, "%s these hosts (%s) %s those (%s) ", both, from,
	     way == MESH_BOTH ? "and" : "to", to);
	if (w->f->value > 0)
		text(w, "there are only %s, and %s within each: what joins the two sides.",
		     w->value, w->others);
	else
		text(w, "nothing gets through: what joins the two sides.");
	next(w, "the links between the two switches: how many are up, their speed and error "
	     "counters; routes and access lists");
}

/* Of the pairs that failed with this host, the first one's reason. */
static const char *why_of(const struct mesh_report *r, int a, int b)
{
	const char *why = r->why[(size_t)a * (size_t)r->n + (size_t)b];

	return why ? why : "";
}

static void say_host_cut(struct words *w)
{
	const char *why = "";
	int i, h = w->f->a;

	for (i = 0; i < w->r->n && !*why; i++)
		why = i < h ? why_of(w->r, i, h) : why_of(w->r, h, i);
	text(w, "%s can't talk to %d of the %d hosts that it was tried with: %s.", w->a,
	     w->f->failed, w->f->tried, why);
	next(w, "braid doctor on %s; its addresses, firewall and the link of its NIC%s", w->a,
	     w->nic);
}

static void say_lossy(struct words *w)
{
	enum mesh_way way = w->f->way;

	text(w, "Of what %s %s %.1f %% is lost and sent again (others: %.1f %%)", w->a,
	     way == MESH_SENDS ? "sends" : way == MESH_RECEIVES ? "is sent" :
	     "sends or is sent", w->f->resent * 100, w->f->resent_others * 100);
	if (w->f->value > 0)
		text(w, ", which leaves %s (others: %s)", w->value, w->others);
	text(w, ": its cable, its NIC%s or its port of the switch.", w->nic);
	next(w, "ethtool -S on %s and the switch port's counters, for errors, drops and discards; "
	     "then braid doctor there", w->a);
}

static void say_slow(struct words *w)
{
	switch (w->f->way) {
	case MESH_BOTH:
		text(w, "%s is slow in both directions, to all: %s (others: %s): its NIC%s, its "
		     "cable, its PCIe slot or the host itself.", w->a, w->value, w->others, w->nic);
		break;
	case MESH_SENDS:
		text(w, "%s sends slowly, to all: %s (others: %s), and receives well: the sending "
		     "side of its NIC%s, its cable, or a limit on what it sends.", w->a, w->value,
		     w->others, w->nic);
		break;
	case MESH_RECEIVES:
		text(w, "%s receives slowly, from all: %s (others: %s), and sends well: the "
		     "receiving side of its NIC%s, its cable, its port of the switch, or its CPU.",
		     w->a, w->value, w->others, w->nic);
		break;
	}
	next(w, "braid doctor on %s; ethtool (speed), ethtool -S (errors), tc qdisc and the CPUs "
	     "there", w->a);
}

static void say_late(struct words *w)
{
	text(w, "%s answers late: half a round trip to it takes %s at best (others: %s): its "
	     "NIC's interrupt moderation, a CPU that sleeps or is shared, or a detour.", w->a,
	     w->value, w->others);
	next(w, "braid doctor on %s; ethtool -c, the CPU's power states, and what else runs there",
	     w->a);
}

static void say_pair_cut(struct words *w)
{
	text(w, "%s and %s can't talk to each other%s: %s.", w->a, w->b,
	     w->r->n > 2 ? ", though they can to others" : "",
	     why_of(w->r, w->f->a, w->f->b));
	next(w, "braid doctor --peer %s on %s; routes, firewalls and access lists between these "
	     "two", w->b, w->a);
}

static void say_pair_slow(struct words *w)
{
	const char *from = w->f->way == MESH_RECEIVES ? w->b : w->a;
	const char *to = w->f->way == MESH_RECEIVES ? w->a : w->b;

	text(w, "%s %s %s %s there are only %s (these hosts elsewhere: %s): the path of this one "
	     "pair.", w->f->way == MESH_BOTH ? "Between" : "From", from,
	     w->f->way == MESH_BOTH ? "and" : "to", to, w->value, w->others);
	next(w, "braid doctor --peer %s on %s; its route, and which uplink the switches choose for "
	     "it", to, from);
}

static void say_pair_late(struct words *w)
{
	text(w, "Half a round trip between %s and %s takes %s at best (these hosts elsewhere: %s): "
	     "the path of this one pair.", w->a, w->b, w->value, w->others);
	next(w, "braid doctor --peer %s on %s; its route", w->b, w->a);
}

/* -- all ---------------------------------------------------------------------------------- */

static void (*const says[MESH_KINDS])(struct words *w) = {
	[MESH_ABSENT] = say_absent, [MESH_SIDE] = say_side, [MESH_HOST_CUT] = say_host_cut,
	[MESH_HOST_LOSSY] = say_lossy, [MESH_HOST_SLOW] = say_slow, [MESH_HOST_LATE] = say_late,
	[MESH_PAIR_CUT] = say_pair_cut, [MESH_PAIR_SLOW] = say_pair_slow,
	[MESH_PAIR_LATE] = say_pair_late,
};

static void words_of(const struct mesh_report *r, struct mesh_finding *f)
{
	bool time = f->kind == MESH_HOST_LATE || f->kind == MESH_PAIR_LATE;
	void (*figure_text)(double, char *, size_t) = time ? mesh_time_text : mesh_speed_text;
	char nic[FABRIC_NAME + 2] = "";
	struct words w = { .r = r, .f = f, .nic = nic };

	if (f->kind != MESH_SIDE) {
		w.a = r->hosts[f->a].name;
		w.b = f->b >= 0 ? r->hosts[f->b].name : "";
		if (r->hosts[f->a].nic[0])
			snprintf(nic, sizeof(nic), " %s", r->hosts[f->a].nic);
	}
	figure_text(f->value, w.value, sizeof(w.value));
	figure_text(f->others, w.others, sizeof(w.others));
	f->text[0] = 0;
	says[f->kind](&w);
}

void mesh_words(struct mesh_report *r)
{
	int i;

	for (i = 0; i < r->nfound; i++)
		words_of(r, &r->found[i]);
}
