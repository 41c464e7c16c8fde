/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.c - see metrics.h.
 *
 * There is one metric of each kind per device, so that their number does not grow with the peers.
 */
#include "core/watch/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/launchers.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/mover.h"
#include "core/setup/links.h"
#include "core/watch/report.h"
#include "core/watch/view.h"

enum {
	DEVICES_MAX = 16,		/* devices that are reported; further ones are not */
	ILL_MAX = 32,			/* likewise silent peers, and lanes that are down */
	TIMES_MAX = 16,			/* likewise links whose times are reported */
	LE_FIRST = 10, LE_LAST = 30,	/* their buckets: powers of two, in ns */
};

/* Whose process this is; "" if no launcher says so. */
static struct {
	char job[BRAID_LABEL_LEN], rank[BRAID_LABEL_LEN];
} labels;

/* The first of these variables that is set, and says something. */
static void from_env(char ret[BRAID_LABEL_LEN], const char *const *names)
{
	ret[0] = 0;
	for (; *names && !ret[0]; names++) {
		const char *value = getenv(*names);

		if (value && strcmp(value, BRAID_NO_JOB) != 0)
			snprintf(ret, BRAID_LABEL_LEN, "%s", value);
	}
}

void braid_metrics_job(void)
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
	LINKS, LINKS_SILENT, LINKS_FAILED, LANES, LANES_DOWN, COMMS, SENDS, RECEIVES, OLDEST,
	QUEUED, RESENT, SENT_MESSAGES, SENT_BYTES, RECEIVED_MESSAGES, RECEIVED_BYTES, LOST,
	REDIALS, SLOW, CORRUPT, STALLS, THREADS, THREAD_BYTES, ZEROCOPY_BYTES, ZEROCOPY_COPIED,
	METRICS,
};

static const struct {
	const char *name, *help;
	bool counter;
} rows[METRICS] = {
	[LINKS] = { "links", "Links that are up.", false },
	[LINKS_SILENT] = { "links_silent", "Links whose peer was not heard for 3 s.", false },
	[LINKS_FAILED] = { "links_failed", "Links that ended by an error, as where a peer went.",
		false },
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
	[SLOW] = { "lanes_slow", "Times that a lane was so slow that it was dialled again.", true },
	[CORRUPT] = { "lanes_corrupt", "Times that a checksum was wrong.", true },
	[STALLS] = { "stalls", "Times that a message was so late that a WARN said so.", true },
	[THREADS] = { "threads", "Threads of BRAID_THREADS that move lanes.", false },
	[THREAD_BYTES] = { "threads_bytes", "Bytes that they moved.", true },
	[ZEROCOPY_BYTES] = { "zerocopy_bytes", "Sent by MSG_ZEROCOPY (BRAID_ZEROCOPY).", true },
	[ZEROCOPY_COPIED] = { "zerocopy_copied", "Calls of these whose bytes the kernel copied.",
		true },
};

struct sums {			/* of one device */
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
	s->of[SLOW] = atomic_load(&dev->slow);
	s->of[CORRUPT] = atomic_load(&dev->corrupt);
	s->of[STALLS] = atomic_load(&dev->stalls);
	s->of[ZEROCOPY_BYTES] = atomic_load(&dev->zerocopy_bytes);
	s->of[ZEROCOPY_COPIED] = atomic_load(&dev->zerocopy_copied);
	for (unsigned i = 0; i < dev->nmembers; i++) {
		struct braid_movers_seen seen;

		braid_movers_look(dev->member[i], &seen);
		s->of[THREADS] += seen.active;
		s->of[THREAD_BYTES] += seen.sent + seen.received;
	}
}

static void add_up(struct sums *s, const struct braid_view *v)
{
	s->of[LINKS] += v->state == BRAID_LINK_UP;
	s->of[LINKS_SILENT] += v->silent;
	s->of[LINKS_FAILED] += v->state == BRAID_LINK_DEAD && v->err && v->ncomms;
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

/* A link that is ill has series of its own; healthy ones only add to the counts of their device. */
struct ill {
	struct braid_text peers, lanes;
	unsigned npeers, nlanes;
};

static void put_link_labels(struct braid_text *t, const char *name, const struct braid_view *v)
{
	braid_text_add(t, "%s", name);
	put_labels(t);
	braid_text_add(t, ",link=\"%u\",", v->number);
	put_label(t, "device", v->device);
	put_label(t, "peer", v->peer);		/* last: it may be left out */
	if (!t->bad && t->p[t->len - 1] == ',')
		t->len--;
}

static void note_ill(struct ill *ill, const struct braid_view *v)
{
	if (v->silent && v->silent_ns && ill->npeers < ILL_MAX) {
		ill->npeers++;
		put_link_labels(&ill->peers, "braid_peer_silent_seconds", v);
		braid_text_add(&ill->peers, "} %" PRIu64 ".%03u\n", (uint64_t)(v->silent_ns / SEC),
			       (unsigned)(v->silent_ns / MS % 1000));
	}
	for (unsigned i = 0; i < v->nlanes; i++) {
		if (v->lane[i].up || v->state != BRAID_LINK_UP || ill->nlanes == ILL_MAX)
			continue;
		ill->nlanes++;
		put_link_labels(&ill->lanes, "braid_lane_down", v);
		braid_text_add(&ill->lanes, ",lane=\"%u\"} 1\n", i);
	}
}

static void put_heading_of(struct braid_text *t, const char *name, const char *type,
			   const char *help)
{
	braid_text_add(t, "# HELP braid_%s %s\n# TYPE braid_%s %s\n", name, help, name, type);
}

static void put_heading(struct braid_text *t, const char *name, const char *help)
{
	put_heading_of(t, name, "gauge", help);
}

/* How long sends and frames take: histograms of a link's, and of each of its lanes. */
struct times {
	struct braid_text sends, acks;
	unsigned nlinks;
};

struct one_hist {
	const char *name;		/* of the metric */
	const struct braid_view *v;
	const struct braid_hist *h;
	const char *label, *value;	/* of its own */
	const char *nic;		/* or NULL */
};

static void put_of_hist(struct braid_text *t, const struct one_hist *x, const char *end)
{
	char name[80];

	snprintf(name, sizeof(name), "%s_%s", x->name, end);
	put_link_labels(t, name, x->v);
	braid_text_add(t, ",%s=\"%s\"", x->label, x->value);
	if (x->nic) {
		braid_text_add(t, ",nic=");
		braid_text_string(t, x->nic);
	}
}

static void put_hist(struct braid_text *t, const struct one_hist *x)
{
	uint64_t seen = 0;
	unsigned i = 0;

	if (!x->h->count)
		return;
	for (unsigned e = LE_FIRST; e <= LE_LAST; e++) {
		uint64_t le = UINT64_C(1) << e;

		while (braid_hist_bound(i) <= le)
			seen += x->h->n[i++];
		put_of_hist(t, x, "bucket");
		braid_text_add(t, ",le=\"%u.%09u\"} %" PRIu64 "\n", (unsigned)(le / SEC),
			       (unsigned)(le % SEC), seen);
	}
	put_of_hist(t, x, "bucket");
	braid_text_add(t, ",le=\"+Inf\"} %" PRIu64 "\n", x->h->count);
	put_of_hist(t, x, "sum");
	braid_text_add(t, "} %" PRIu64 ".%09u\n", (uint64_t)(x->h->sum_ns / SEC),
		       (unsigned)(x->h->sum_ns % SEC));
	put_of_hist(t, x, "count");
	braid_text_add(t, "} %" PRIu64 "\n", x->h->count);
}

/* The labels of a busy link are not known now; it is shown the next time. */
static void note_times(struct times *times, const struct braid_view *v)
{
	static const char *const sizes[] = { "small", "large" };
	char number[16];

	if (times->nlinks == TIMES_MAX || (times->nlinks++, v->busy))
		return;
	for (int large = 0; large < 2; large++)
		put_hist(&times->sends, &(struct one_hist){
			"braid_send_seconds", v, &v->took[large], "size", sizes[large], NULL });
	for (unsigned i = 0; i < v->nlanes; i++) {
		snprintf(number, sizeof(number), "%u", i);
		put_hist(&times->acks, &(struct one_hist){
			"braid_lane_ack_seconds", v, &v->lane[i].acks, "lane", number,
			v->lane[i].nic });
	}
}

static void put_times(struct braid_text *t, struct times *times)
{
	put_heading_of(t, "send_seconds", "histogram",
		       "From isend to done, of sends that are timed.");
	braid_text_add(t, "%s", times->sends.p ? times->sends.p : "");
	put_heading_of(t, "lane_ack_seconds", "histogram",
		       "From queued to acknowledged, of frames that are timed.");
	braid_text_add(t, "%s", times->acks.p ? times->acks.p : "");
	t->bad |= times->sends.bad || times->acks.bad;
	braid_text_free(&times->sends);
	braid_text_free(&times->acks);
}

static void put_ill(struct braid_text *t, struct ill *ill)
{
	put_heading(t, "peer_silent_seconds", "How long a peer was not heard that is silent.");
	braid_text_add(t, "%s", ill->peers.p ? ill->peers.p : "");
	put_heading(t, "lane_down", "A lane that is lost and not yet back.");
	braid_text_add(t, "%s", ill->lanes.p ? ill->lanes.p : "");
	t->bad |= ill->peers.bad || ill->lanes.bad;
	braid_text_free(&ill->peers);
	braid_text_free(&ill->lanes);
}

static void put_process(struct braid_text *t)
{
	struct timespec now = { 0 };

	clock_gettime(CLOCK_REALTIME, &now);
	put_heading(t, "up", "The process answers.");
	braid_text_add(t, "braid_up");
	put_labels(t);
	braid_text_add(t, "} 1\n");
	put_heading(t, "metrics_timestamp_seconds", "When the process gave its metrics.");
	braid_text_add(t, "braid_metrics_timestamp_seconds");
	put_labels(t);
	braid_text_add(t, "} %" PRId64 "\n", (int64_t)now.tv_sec);
}

int braid_metrics_text(struct braid_text *t)
{
	const struct braid_dev *devs[DEVICES_MAX];
	unsigned n = braid_links_devices(devs, DEVICES_MAX);
	struct braid_view *v = malloc(sizeof(*v));
	struct sums s[DEVICES_MAX] = { { 0 } };
	struct braid_link *link = NULL;
	uint64_t budget_ns = BRAID_REPORT_LOCK_NS;
	struct ill ill = { .npeers = 0 };
	struct times times = { .nlinks = 0 };

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
		note_ill(&ill, v);
		note_times(&times, v);
	}
	hold_up(s, n);
	put_process(t);
	put_ill(t, &ill);
	for (enum metric m = 0; m < METRICS; m++)
		put_metric(t, m, s, n);
	put_times(t, &times);
	braid_text_add(t, "# EOF\n");
	free(v);
	return t->bad ? -ENOMEM : 0;
}
