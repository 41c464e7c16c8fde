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
#include "core/base/launchers.h"
#include "core/base/os.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/setup/links.h"
#include "core/watch/view.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

/* How long to wait for locks, for all links together: half of what a dump may take. */
#define LOCK_BUDGET_NS (300 * MS)

enum { DEVICES_MAX = 16 };		/* devices that are reported; further ones are not */

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

static void put_lane(struct braid_text *t, unsigned index, const struct braid_view_lane *l)
{
	braid_text_add(t, "{\"lane\":%u,", index);
	if (l->transport)
		member(t, "transport", l->transport);
	if (l->wire.text[0])
		member(t, "wire", l->wire.text);
	braid_text_add(t, "\"up\":%s,\"home\":%s,\"suspect_ms\":%" PRIu64 ",\"sent_bytes\":%" PRIu64
		       ",\"received_bytes\":%" PRIu64 ",\"queued_bytes\":%" PRIu64
		       ",\"unacked_bytes\":%" PRIu64 ",\"resent_packets\":%" PRIu64
		       ",\"lost\":%u,\"back\":%u,\"corrupt\":%u},", bool_text(l->up),
		       bool_text(l->home), (uint64_t)(l->suspect_ns / MS), l->sent,
		       l->received, l->queued, l->unacked, l->wire.resent, l->lost, l->back,
		       l->corrupt);
}

static void put_message(struct braid_text *t, const struct braid_view_message *m)
{
	braid_text_add(t, "{\"kind\":\"%s\",\"comm\":%u,\"number\":%u,\"tag\":%d,\"bytes\":%" PRIu64
		       ",\"bytes_done\":%" PRIu64 ",\"age_ms\":%" PRIu64
		       ",\"failed\":%s,\"lane_ill\":%s,\"state\":\"%s\"},",
		       m->sender ? "send" : "receive", m->comm, m->seq, m->tag, m->size, m->done,
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
	uint64_t budget_ns = LOCK_BUDGET_NS;
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

/* --- metrics, in the text format of Prometheus ---------------------------------------------- */

enum { LABEL_LEN = 64 };

/* Whose process this is; "" if no launcher says so. */
static struct {
	char job[LABEL_LEN], rank[LABEL_LEN];
} labels;

/* The first of these variables that is set, and says something. */
static void from_env(char ret[LABEL_LEN], const char *const *names)
{
	ret[0] = 0;
	for (; *names && !ret[0]; names++) {
		const char *value = getenv(*names);

		if (value && strcmp(value, BRAID_NO_JOB) != 0)
			snprintf(ret, LABEL_LEN, "%s", value);
	}
}

void braid_report_job(void)
{
	static const char *const jobs[] = { BRAID_JOB_VARS, NULL };
	static const char *const ranks[] = { BRAID_RANK_VARS, NULL };

	from_env(labels.job, jobs);
	from_env(labels.rank, ranks);
}

static void put_label(struct braid_text *t, const char *name, const char *value)
{
	if (!*value)
		return;
	braid_text_add(t, "%s=", name);
	braid_text_string(t, value);
	braid_text_add(t, ",");
}

static void put_labels(struct braid_text *t)
{
	braid_text_add(t, "{");
	put_label(t, "host", braid_self.host);
	put_label(t, "job_id", labels.job);	/* "job" is the scraper's */
	put_label(t, "rank", labels.rank);
	braid_text_add(t, "pid=\"%u\"", braid_self.pid);
}

enum metric {
	LINKS, LINKS_SILENT, LANES, LANES_DOWN, COMMS, SENDS, RECEIVES, OLDEST, QUEUED, RESENT,
	SENT_MESSAGES, SENT_BYTES, RECEIVED_MESSAGES, RECEIVED_BYTES, LOST, REDIALS, CORRUPT,
	STALLS,
	METRICS,
};

static const struct {
	const char *name, *help;
	bool counter;
} rows[METRICS] = {
	[LINKS] = { "links", "Links that are up.", false },
	[LINKS_SILENT] = { "links_silent", "Links whose peer was not heard for 3 s.", false },
	[LANES] = { "lanes", "Lanes that are up.", false },
	[LANES_DOWN] = { "lanes_down", "Lanes that are lost and not yet back.", false },
	[COMMS] = { "comms", "Connections of NCCL that are open.", false },
	[SENDS] = { "sends_outstanding", "Sends that are not done.", false },
	[RECEIVES] = { "receives_outstanding", "Receives that are not done.", false },
	[OLDEST] = { "oldest_seconds", "Age of the oldest of them.", false },
	[QUEUED] = { "queued_bytes", "Not yet handed to the wire.", false },
	[RESENT] = { "resent_packets", "Sent again by TCP sockets that are open.", false },
	[SENT_MESSAGES] = { "sent_messages", "Sends that were done.", true },
	[SENT_BYTES] = { "sent_bytes", "Bytes of them.", true },
	[RECEIVED_MESSAGES] = { "received_messages", "Receives that were done.", true },
	[RECEIVED_BYTES] = { "received_bytes", "Bytes of them.", true },
	[LOST] = { "lanes_lost", "Times that a lane was lost.", true },
	[REDIALS] = { "lanes_back", "Times that a lane was back.", true },
	[CORRUPT] = { "lanes_corrupt", "Times that a checksum was wrong.", true },
	[STALLS] = { "stalls", "Times that a message was so late that a WARN said so.", true },
};

/* One metric of each kind per device, so that their number does not grow with the peers. */
struct sums {
	const struct braid_dev *dev;
	uint64_t of[METRICS];
};

/* Read closed comms before open ones, so that one that closes meanwhile is not counted twice. */
static void begin(struct sums *s)
{
	const struct braid_dev *dev = s->dev;

	s->of[SENT_MESSAGES] = atomic_load(&dev->sent.messages);
	s->of[SENT_BYTES] = atomic_load(&dev->sent.bytes);
	s->of[RECEIVED_MESSAGES] = atomic_load(&dev->got.messages);
	s->of[RECEIVED_BYTES] = atomic_load(&dev->got.bytes);
	s->of[LOST] = atomic_load(&dev->lost);
	s->of[REDIALS] = atomic_load(&dev->redials);
	s->of[CORRUPT] = atomic_load(&dev->corrupt);
	s->of[STALLS] = atomic_load(&dev->stalls);
}

static void add_up(struct sums *s, const struct braid_view *v)
{
	s->of[LINKS] += v->state == BRAID_LINK_UP;
	s->of[LINKS_SILENT] += v->silent;
	s->of[COMMS] += v->ncomms;
	s->of[SENDS] += v->outstanding[1];
	s->of[RECEIVES] += v->outstanding[0];
	s->of[SENT_MESSAGES] += v->open[1].messages;
	s->of[SENT_BYTES] += v->open[1].bytes;
	s->of[RECEIVED_MESSAGES] += v->open[0].messages;
	s->of[RECEIVED_BYTES] += v->open[0].bytes;
	if (v->oldest_ns / MS > s->of[OLDEST])
		s->of[OLDEST] = v->oldest_ns / MS;
	for (unsigned i = 0; i < v->nlanes; i++) {
		s->of[LANES] += v->lane[i].up;
		s->of[LANES_DOWN] += !v->lane[i].up;
		s->of[QUEUED] += v->lane[i].queued;
		s->of[RESENT] += v->lane[i].wire.resent;
	}
}

/* Counters must not fall, but a busy link or a comm closed meanwhile is missing from the sums. */
static void hold_up(struct sums *s, unsigned n)
{
	/* The last values reported.  Only one thread reports. */
	static uint64_t shown[DEVICES_MAX][METRICS];

	for (unsigned i = 0; i < n; i++) {
		for (unsigned m = 0; m < METRICS; m++) {
			if (rows[m].counter && s[i].of[m] < shown[i][m])
				s[i].of[m] = shown[i][m];
			shown[i][m] = s[i].of[m];
		}
	}
}

static void put_metric(struct braid_text *t, enum metric m, const struct sums *s, unsigned n)
{
	const char *name = rows[m].name, *end = rows[m].counter ? "_total" : "";

	braid_text_add(t, "# HELP braid_%s%s %s\n", name, end, rows[m].help);
	braid_text_add(t, "# TYPE braid_%s%s %s\n", name, end,
		       rows[m].counter ? "counter" : "gauge");
	for (unsigned i = 0; i < n; i++) {
		uint64_t v = s[i].of[m];

		braid_text_add(t, "braid_%s%s", name, end);
		put_labels(t);
		braid_text_add(t, ",device=");
		braid_text_string(t, s[i].dev->net.name);
		if (m == OLDEST)
			braid_text_add(t, "} %" PRIu64 ".%03u\n", v / 1000, (unsigned)(v % 1000));
		else
			braid_text_add(t, "} %" PRIu64 "\n", v);
	}
}

int braid_report_metrics(struct braid_text *t)
{
	const struct braid_dev *devs[DEVICES_MAX];
	unsigned n = braid_links_devices(devs, DEVICES_MAX);
	struct braid_view *v = malloc(sizeof(*v));
	struct sums s[DEVICES_MAX] = { { 0 } };
	struct braid_link *link = NULL;
	uint64_t budget_ns = LOCK_BUDGET_NS;

	if (!v)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		s[i].dev = devs[i];
		begin(&s[i]);
	}
	while ((link = braid_links_next(link))) {
		braid_view_link(link, &budget_ns, v);
		for (unsigned i = 0; i < n; i++) {
			if (s[i].dev == link->key.dev)
				add_up(&s[i], v);
		}
	}
	hold_up(s, n);
	braid_text_add(t, "# HELP braid_up The process answers.\n# TYPE braid_up gauge\nbraid_up");
	put_labels(t);
	braid_text_add(t, "} 1\n");
	for (enum metric m = 0; m < METRICS; m++)
		put_metric(t, m, s, n);
	braid_text_add(t, "# EOF\n");
	free(v);
	return t->bad ? -ENOMEM : 0;
}
