/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run.c - measures all pairs, each in a process of its own.
 *
 * Pairs begin in the order of the rounds, as soon as both hosts are free.  So no host is ever in
 * two measurements at once, and a pair that takes long holds up only its own hosts' next pairs.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/mesh/mesh.h"

enum { SLOTS = MESH_HOSTS_MAX / 2, MEASUREMENTS = 3, PAIR_TIMES = 30 };

struct pair {
	int a, b, round;
};

struct job {				/* what a pair's process needs */
	const struct mesh_report *r;
	const struct mesh_options *o;
	struct pair pair;
};

struct mesh {
	struct mesh_report *r;
	const struct mesh_options *o;
	struct pair *pairs;
	int npairs, next, running, most;
	bool again;			/* a second look at pairs that look odd */
	bool busy[MESH_HOSTS_MAX];
	struct slot {
		struct child child;
		struct pair pair;
		long long until;
		bool used;
	} slots[SLOTS];
	long long start;
	bool tty;
	int shown;			/* the last round of which a line was printed */
};

/* -- progress ----------------------------------------------------------------------------- */

static void progress(struct mesh *m, int round)
{
	double s = (double)(child_now() - m->start) / 1000;
	char left[48] = "";
	bool minutes;

	if (m->again || (!m->tty && round == m->shown))
		return;
	m->shown = round;
	s = m->r->done ? s / m->r->done * (m->r->pairs - m->r->done) : 0;
	minutes = s >= 120;
	if (m->r->done > 0)
		snprintf(left, sizeof(left), ", about %.0f %s left", minutes ? s / 60 : s,
			 minutes ? "min" : "s");
	fprintf(stderr, "%sround %d of %d, %d of %d pairs%s%s", m->tty ? "\r\033[K" : "", round + 1,
		m->r->rounds, m->r->done, m->r->pairs, left, m->tty ? "" : "\n");
}

/* -- results ------------------------------------------------------------------------------ */

static void set_why(struct mesh_report *r, const struct pair *p, const char *why)
{
	char **to = &r->why[(size_t)p->a * (size_t)r->n + (size_t)p->b];

	free(*to);
	*to = why ? strdup(why) : NULL;
}

static void failed(struct mesh *m, const struct pair *p, const char *why)
{
	struct mesh_cell *there = mesh_cell(m->r, p->a, p->b);
	struct mesh_cell *back = mesh_cell(m->r, p->b, p->a);

	if (there->state == MESH_DONE)
		return;			/* the first look was better than the second */
	there->state = back->state = MESH_FAILED;
	set_why(m->r, p, why);
}

static void host_about(struct mesh_host *h, const struct mesh_took *t, int i)
{
	snprintf(h->host, sizeof(h->host), "%s", t->host[i]);
	snprintf(h->kernel, sizeof(h->kernel), "%s", t->kernel[i]);
	snprintf(h->nic, sizeof(h->nic), "%s", t->nic[i]);
	h->speed_mbps = t->speed_mbps[i];
}

/* Of two looks the better one counts, figure by figure. */
static void cell_set(struct mesh_cell *c, const struct mesh_took *t, int way)
{
	bool had = c->state == MESH_DONE;

	c->state = MESH_DONE;
	if (!had || t->bytes_s[way] > c->bytes_s) {
		c->bytes_s = t->bytes_s[way];
		c->resent = t->resent[way];
		c->cpu = t->cpu[way];
	}
	if (!had || t->latency_s < c->latency_s)
		c->latency_s = t->latency_s;
	if (t->least_s > 0 && (!had || c->least_s <= 0 || t->least_s < c->least_s))
		c->least_s = t->least_s;
}

static void measured(struct mesh *m, const struct pair *p, const struct mesh_took *t)
{
	struct mesh_host *unreached;

	if (t->nic[0][0]) {
		host_about(&m->r->hosts[p->a], t, 0);
		host_about(&m->r->hosts[p->b], t, 1);
		snprintf(m->r->over, sizeof(m->r->over), "%s", t->over);
	}
	if (t->rc) {
		mesh_gone(m->r, m->o->shell, p->a);
		mesh_gone(m->r, m->o->shell, p->b);
		unreached = &m->r->hosts[t->unreached == 1 ? p->a : p->b];
		if (t->unreached && !unreached->why[0])
			snprintf(unreached->why, sizeof(unreached->why), "%.1000s", t->err);
		failed(m, p, t->err);
		return;
	}
	set_why(m->r, p, NULL);
	cell_set(mesh_cell(m->r, p->a, p->b), t, 0);
	cell_set(mesh_cell(m->r, p->b, p->a), t, 1);
}

/* -- pairs begin and end ------------------------------------------------------------------ */

static void pair_child(void *arg, int fd)
{
	const struct job *job = arg;
	struct mesh_took took;

	mesh_pair_measure(job->r, job->o, job->pair.a, job->pair.b, &took);
	if (write(fd, &took, sizeof(took)) != (ssize_t)sizeof(took))
		_exit(1);
}

/* A host that has failed with most others, and never once done well, is not tried again. */
static bool is_hopeless(const struct mesh_report *r, int i)
{
	int j, bad = 0;

	for (j = 0; j < r->n; j++) {
		if (mesh_cell(r, i, j)->state == MESH_DONE)
			return false;
		bad += mesh_cell(r, i, j)->state == MESH_FAILED;
	}
	return r->n > 4 && bad > r->n / 2;
}

static void pair_begin(struct mesh *m, const struct pair *p)
{
	double limit_s = PAIR_TIMES * MEASUREMENTS * m->o->seconds + 6 * m->o->timeout_s;
	struct job job = { .r = m->r, .o = m->o, .pair = *p };
	struct slot *s = m->slots;
	int rc;

	while (s->used)
		s++;
	rc = child_start(&s->child, pair_child, &job);
	if (rc) {
		failed(m, p, strerror(-rc));
		m->r->done += !m->again;
		return;
	}
	s->used = true;
	s->pair = *p;
	s->until = child_now() + (long long)(limit_s * 1000);
	m->busy[p->a] = m->busy[p->b] = true;
	m->running++;
}

static void begin_some(struct mesh *m)
{
	struct pair *p;

	for (; m->next < m->npairs && m->running < m->most; m->next++) {
		p = &m->pairs[m->next];
		if (m->busy[p->a] || m->busy[p->b])
			return;
		progress(m, p->round);
		if (mesh_gone(m->r, m->o->shell, p->a) || mesh_gone(m->r, m->o->shell, p->b)) {
			failed(m, p, m->r->hosts[m->r->hosts[p->a].why[0] ? p->a : p->b].why);
			m->r->done += !m->again;
		} else if (is_hopeless(m->r, p->a) || is_hopeless(m->r, p->b)) {
			m->r->done += !m->again;
		} else {
			pair_begin(m, p);
		}
	}
}

static void pair_end(struct mesh *m, struct slot *s, const char *why)
{
	char fate[PERF_TEXT];

	child_end(&s->child);
	if (!why && s->child.len == sizeof(struct mesh_took)) {
		measured(m, &s->pair, (const struct mesh_took *)(const void *)s->child.text);
	} else if (!why) {
		child_fate(&s->child, fate, sizeof(fate));
		failed(m, &s->pair, fate);
	} else if (*why) {
		failed(m, &s->pair, why);
	}
	child_free(&s->child);
	s->used = m->busy[s->pair.a] = m->busy[s->pair.b] = false;
	m->running--;
	m->r->done += !m->again && (!why || *why);
}

static void wait_some(struct mesh *m)
{
	struct pollfd p[SLOTS];
	struct slot *s;
	int i;

	for (i = 0; i < m->most; i++)
		p[i] = (struct pollfd){ .fd = m->slots[i].used ? m->slots[i].child.fd : -1,
					.events = POLLIN };
	poll(p, (nfds_t)m->most, 200);
	for (i = 0; i < m->most; i++) {
		s = &m->slots[i];
		if (!s->used)
			continue;
		if (p[i].revents)
			child_read(&s->child, 0);
		if (s->child.fd < 0)
			pair_end(m, s, NULL);
		else if (child_now() > s->until)
			pair_end(m, s, "the measurement did not end");
	}
}

static void run_list(struct mesh *m)
{
	int i;

	m->next = 0;
	while ((m->next < m->npairs || m->running) && !*m->o->stop) {
		begin_some(m);
		if (m->running)
			wait_some(m);
		if (m->tty && m->next > 0)
			progress(m, m->pairs[m->next - 1].round);
	}
	for (i = 0; i < m->most; i++)	/* a signal: what is under way does not count */
		if (m->slots[i].used)
			pair_end(m, &m->slots[i], "");
}

/* -- all ---------------------------------------------------------------------------------- */

static void list_all(struct mesh *m)
{
	int n = m->r->n, round, k;
	struct pair *p = m->pairs;

	for (round = 0; round < m->r->rounds; round++)
		for (k = 0; k < mesh_seats(n) / 2; k++)
			if (mesh_pair(n, round, k, &p->a, &p->b))
				(p++)->round = round;
	m->npairs = (int)(p - m->pairs);
}

/* One bad moment is no bad path: a finding about a pair needs two measurements that show it. */
static void list_odd(struct mesh *m)
{
	const struct mesh_finding *f = m->r->found;

	mesh_score(m->r);
	for (m->npairs = 0; f < m->r->found + m->r->nfound && m->npairs < m->r->n; f++)
		if (f->kind >= MESH_PAIR_CUT)
			m->pairs[m->npairs++] = (struct pair){ f->a, f->b, 0 };
}

void mesh_run(struct mesh_report *r, const struct mesh_options *o)
{
	static struct mesh m;

	m = (struct mesh){ .r = r, .o = o, .start = child_now(), .shown = -1,
			   .tty = isatty(STDERR_FILENO), .most = r->n / 2 };
	if (o->parallel && o->parallel < m.most)
		m.most = o->parallel;
	m.pairs = calloc((size_t)r->pairs + (size_t)r->n, sizeof(*m.pairs));
	if (!m.pairs)
		return;
	list_all(&m);
	run_list(&m);
	if (m.tty)
		fputs("\r\033[K", stderr);
	if (!*o->stop) {
		m.again = true;
		m.most = m.most > 4 ? m.most / 4 : 1;
		list_odd(&m);
		run_list(&m);
	}
	r->stopped = *o->stop;
	r->took_s = (double)(child_now() - m.start) / 1000;
	free(m.pairs);
}
