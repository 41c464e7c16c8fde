/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - see report.h. */
#include "core/watch/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/os.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/setup/links.h"
#include "core/watch/view.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

/* --- text ---------------------------------------------------------------------------------- */

static bool make_room(struct braid_text *t, size_t more)
{
	size_t room = t->room ? t->room : 4096;
	char *p;

	while (room - t->len <= more)
		room *= 2;
	if (room == t->room)
		return true;
	p = realloc(t->p, room);
	if (!p) {
		t->bad = true;
		return false;
	}
	t->p = p;
	t->room = room;
	return true;
}

void braid_text_add(struct braid_text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (t->bad)
		return;
	for (size_t more = 256;; more = (size_t)n + 1) {
		if (!make_room(t, more))
			return;
		va_start(ap, fmt);
		n = vsnprintf(t->p + t->len, t->room - t->len, fmt, ap);
		va_end(ap);
		if (n < 0) {
			t->bad = true;
			return;
		}
		if ((size_t)n < t->room - t->len)
			break;
	}
	t->len += (size_t)n;
}

/* A peer's texts may hold any bytes: those that are not plain ASCII become '?'. */
void braid_text_string(struct braid_text *t, const char *s)
{
	braid_text_add(t, "\"");
	for (; *s; s++) {
		bool odd = *s < 0x20 || *s > 0x7e;

		braid_text_add(t, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", odd ? '?' : *s);
	}
	braid_text_add(t, "\"");
}

void braid_text_free(struct braid_text *t)
{
	free(t->p);
	*t = (struct braid_text){ 0 };
}

/* --- JSON ---------------------------------------------------------------------------------- */

static const char *bool_text(bool b)
{
	return b ? "true" : "false";
}

static void member(struct braid_text *t, const char *name, const char *s)
{
	braid_text_add(t, "\"%s\":", name);
	braid_text_string(t, s);
	braid_text_add(t, ",");
}

static void comma_ends(struct braid_text *t, const char *end)
{
	if (!t->bad && t->len && t->p[t->len - 1] == ',')
		t->len--;
	braid_text_add(t, "%s,", end);
}

static void put_times(struct braid_text *t, const char *name, const struct braid_hist *h)
{
	if (!h->count)
		return;
	braid_text_add(t, "\"%s\":{\"timed\":%" PRIu64 ",\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64
		       ",\"max_ns\":%" PRIu64 ",\"sum_ns\":%" PRIu64 ",\"buckets\":[", name,
		       h->count, braid_hist_percentile(h, 50), braid_hist_percentile(h, 99),
		       h->max_ns, h->sum_ns);
	for (unsigned i = 0; i < BRAID_HIST_BUCKETS; i++)
		if (h->n[i])
			braid_text_add(t, "[%" PRIu64 ",%" PRIu64 "],", braid_hist_bound(i),
				       h->n[i]);
	comma_ends(t, "]");
	comma_ends(t, "}");
}

static void put_lane(struct braid_text *t, unsigned index, const struct braid_view_lane *l)
{
	braid_text_add(t, "{\"lane\":%u,", index);
	if (l->transport)
		member(t, "transport", l->transport);
	if (l->nic)
		member(t, "nic", l->nic);
	if (l->wire.text[0])
		member(t, "wire", l->wire.text);
	braid_text_add(t, "\"up\":%s,\"home\":%s,\"suspect_ms\":%" PRIu64 ",\"sent_bytes\":%" PRIu64
		       ",\"received_bytes\":%" PRIu64 ",\"queued_bytes\":%" PRIu64
		       ",\"unacked_bytes\":%" PRIu64 ",\"resent_packets\":%" PRIu64
		       ",\"lost\":%u,\"back\":%u,\"corrupt\":%u,", bool_text(l->up),
		       bool_text(l->home), (uint64_t)(l->suspect_ns / MS), l->sent,
		       l->received, l->queued, l->unacked, l->wire.resent, l->lost, l->back,
		       l->corrupt);
	if (l->thread_sends || l->thread_receives)
		member(t, "thread", !l->thread_sends ? "receives" :
				    l->thread_receives ? "sends, receives" : "sends");
	put_times(t, "acks", &l->acks);
	comma_ends(t, "}");
}

static void put_message(struct braid_text *t, const struct braid_view_message *m)
{
	braid_text_add(t, "{\"kind\":\"%s\",\"comm\":%u,\"number\":%u,\"tag\":%d,\"bytes\":%" PRIu64
		       ",\"bytes_done\":%" PRIu64 ",\"age_ms\":%" PRIu64
		       ",\"failed\":%s,\"lane_ill\":%s,\"state\":\"%s\"},",
		       m->what ? m->what : m->sender ? "send" : "receive", m->comm, m->seq,
		       m->tag, m->size, m->done,
		       (uint64_t)(m->age_ns / MS), bool_text(m->failed), bool_text(m->ill),
		       braid_view_words[m->state]);
}

static void put_link(struct braid_text *t, const struct braid_view *v, bool all)
{
	static const char *const states[] = {
		[BRAID_LINK_DIALING] = "dialling", [BRAID_LINK_WAITING] = "waiting",
		[BRAID_LINK_UP] = "up", [BRAID_LINK_DEAD] = "down",
	};
	uint64_t outstanding = v->outstanding[0] + v->outstanding[1];

	braid_text_add(t, "{\"link\":%u,", v->number);
	member(t, "device", v->device);
	if (v->peer[0])
		member(t, "peer", v->peer);
	member(t, "state", states[v->state]);
	if (v->err)
		member(t, "error", strerror(-v->err));
	braid_text_add(t, "\"busy\":%s,\"dialler\":%s,\"silent\":%s,\"late\":%s,"
		       "\"heard_ms\":%" PRIu64
		       ",\"stalls\":%u,\"comms\":%u,\"sent_messages\":%" PRIu64
		       ",\"sent_bytes\":%" PRIu64 ",\"received_messages\":%" PRIu64
		       ",\"received_bytes\":%" PRIu64 ",", bool_text(v->busy),
		       bool_text(v->dialler), bool_text(v->silent), bool_text(v->late),
		       (uint64_t)(v->silent_ns / MS), v->stalls,
		       v->ncomms, v->open[1].messages + v->closed[1].messages,
		       v->open[1].bytes + v->closed[1].bytes,
		       v->open[0].messages + v->closed[0].messages,
		       v->open[0].bytes + v->closed[0].bytes);
	if (v->peer_cpu >= 0)
		braid_text_add(t, "\"peer_cpu_percent\":%d,\"peer_cpu_wait_percent\":%d,",
			       v->peer_cpu, v->peer_wait);
	if (v->nchannels)
		braid_text_add(t, "\"channels\":%u,\"peer_windows\":%u,\"signals_waiting\":%u,",
			       v->nchannels, v->windows, v->signals_waiting);
	put_times(t, "small_sends", &v->took[0]);
	put_times(t, "large_sends", &v->took[1]);
	braid_text_add(t, "\"sends\":%" PRIu64 ",\"receives\":%" PRIu64 ",\"oldest_ms\":%" PRIu64
		       ",\"lanes\":[", v->outstanding[1], v->outstanding[0],
		       (uint64_t)(v->oldest_ns / MS));
	for (unsigned i = 0; i < v->nlanes; i++)
		put_lane(t, i, &v->lane[i]);
	comma_ends(t, "]");
	if (all) {
		braid_text_add(t, "\"messages\":[");
		for (unsigned i = 0; i < v->nmsgs; i++)
			put_message(t, &v->msg[i]);
		comma_ends(t, "]");
		braid_text_add(t, "\"messages_left_out\":%" PRIu64 ",", outstanding - v->nmsgs);
	}
	comma_ends(t, "}");
}

static void put_event(struct braid_text *t, const struct braid_event *e, uint64_t now)
{
	const struct braid_event_row *row = &braid_event_rows[e->kind];

	braid_text_add(t, "{\"ago_ms\":%" PRIu64 ",\"event\":\"%s\",\"link\":%u,",
		       (uint64_t)(now > e->ns ? (now - e->ns) / MS : 0), row->words, e->link);
	if (e->lane != BRAID_FLIGHT_NONE)
		braid_text_add(t, "\"lane\":%u,", e->lane);
	if (row->a)
		braid_text_add(t, "\"%s\":%" PRId64 ",", row->a, e->a);
	if (row->b)
		braid_text_add(t, "\"%s\":%" PRId64 ",", row->b, e->b);
	comma_ends(t, "}");
}

static int put_events(struct braid_text *t)
{
	struct braid_event *e = calloc(BRAID_FLIGHT_MAX, sizeof(*e));
	uint64_t now = braid_os->now_ns();
	unsigned n;

	if (!e)
		return -ENOMEM;
	n = braid_flight_copy(e, BRAID_FLIGHT_MAX);
	braid_text_add(t, "\"events\":[");
	for (unsigned i = 0; i < n; i++)
		put_event(t, &e[i], now);
	comma_ends(t, "]");
	free(e);
	return 0;
}

int braid_report_json(struct braid_text *t, bool all)
{
	struct braid_view *v = malloc(sizeof(*v));
	struct braid_link *link = NULL;
	uint64_t budget_ns = BRAID_REPORT_LOCK_NS;
	int err = 0;

	if (!v)
		return -ENOMEM;
	braid_text_add(t, "{\"braid_report\":%d,\"version\":\"%s\",\"pid\":%u,",
		       BRAID_REPORT_VERSION, PACKAGE_VERSION, braid_self.pid);
	member(t, "host", braid_self.host);
	braid_text_add(t, "\"links\":[");
	while ((link = braid_links_next(link))) {
		braid_view_link(link, &budget_ns, v);
		put_link(t, v, all);
	}
	comma_ends(t, "]");
	if (all)
		err = put_events(t);
	comma_ends(t, "}");
	if (!t->bad)
		t->p[t->len - 1] = '\n';
	free(v);
	return err ? err : t->bad ? -ENOMEM : 0;
}
