/* SPDX-License-Identifier: BSD-3-Clause */
/* share.c - see share.h. */
#include "core/setup/share.h"

#include <stdbool.h>
#include <stdio.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/proto/frame.h"
#include "core/setup/links.h"

enum {
	SAMPLE_MS = 500,		/* between two readings of this process's own figures */
	WINDOW_MS = 5000,		/* `before` is replaced once `last` is so much newer */
	ANSWER_MS = 10000,		/* after a silence, to wait for what the peer announces */
};

static struct {				/* this process */
	bool known;
	uint64_t at_ns, used_ms, queued_ms;
} mine;

static void sample(uint64_t now)
{
	braid_svc_assert_locked();
	if (mine.at_ns && braid_since(mine.at_ns, now) < SAMPLE_MS * MS)
		return;
	mine.at_ns = now;
	mine.known = braid_os->cpu(&mine.used_ms, &mine.queued_ms);
}

void braid_share_announce(struct braid_hdr *h)
{
	if (!mine.known)
		return;
	h->tag = BRAID_ALIVE_CPU;
	h->seq = (uint32_t)mine.used_ms;
	h->rseq = (uint32_t)mine.queued_ms;
}

void braid_share_tick(uint64_t asleep_ns, uint64_t now)
{
	static struct braid_log_gate gate;
	uint64_t queued = mine.queued_ms;

	sample(now);
	if (!asleep_ns || !mine.known || !braid_log_gate_open(&gate, now))
		return;
	if (mine.queued_ms - queued >= asleep_ns / MS / 2)
		braid_warn("this process's service thread got no CPU for %llu s, though it was "
			   "ready to run: peers may report this rank as silent. Give the process "
			   "more: see its cgroup's cpu.max, its affinity, and what else runs there "
			   "[no-cpu]", (unsigned long long)seconds(asleep_ns));
	else
		braid_info("this process did not run for %llu s: it was stopped, frozen or "
			   "suspended", (unsigned long long)seconds(asleep_ns));
}

/*
 * Log why the peer was silent, now that it is heard again.  Its first announcement may have been
 * written before the silence and sent now.  So that it did not run shows only in a second one, or
 * if none comes for a while.
 */
static void judge(struct braid_link *link, uint64_t now)
{
	struct braid_link_share *share = &link->share;
	uint64_t ms = share->silent_ms;
	uint32_t used = share->last.used_ms - share->base.used_ms;
	uint32_t queued = share->last.queued_ms - share->base.queued_ms;
	bool starved = queued >= ms / 2, ran = used >= ms / 2;
	bool over = braid_since(share->heard_ns, now) >= ANSWER_MS * MS;

	if (!over && (!share->answers || (!starved && !ran && share->answers < 2)))
		return;
	share->silent_ms = 0;
	if (!share->answers)
		return;
	if (starved)
		braid_warn("device %s, peer %s: heard again after %llu ms: it was not stopped, but "
			   "starved: its service thread waited for a CPU for %u ms, and its "
			   "process used %u ms. Give it more: see its cgroup's cpu.max, its "
			   "affinity, and what else runs there [peer-starved]",
			   link->key.dev->net.name, link->peer, (unsigned long long)ms, queued,
			   used);
	else
		braid_info("device %s, peer %s: heard again after %llu ms: its process used %u ms "
			   "of CPU meanwhile and its service thread waited for one for %u ms: %s",
			   link->key.dev->net.name, link->peer, (unsigned long long)ms, used,
			   queued, ran ?
			   "it ran, so the path was down, or the kernel held that thread up" :
			   "it was stopped (SIGSTOP, a debugger, a frozen cgroup), or the path was "
			   "down");
}

static int percent(uint32_t ms, uint64_t of_ms)
{
	return (int)((uint64_t)ms * 100 / of_ms);
}

static void keep(struct braid_link_share *share, const struct braid_share *s)
{
	uint64_t ms;

	if (!share->before.at_ns ||
	    braid_since(share->before.at_ns, share->last.at_ns) >= WINDOW_MS * MS)
		share->before = share->last;
	share->last = *s;
	ms = braid_since(share->before.at_ns, s->at_ns) / MS;
	if (!share->before.at_ns || ms < SAMPLE_MS)
		return;
	share->used_percent = percent(s->used_ms - share->before.used_ms, ms);
	share->queued_percent = percent(s->queued_ms - share->before.queued_ms, ms);
	share->known = true;
}

void braid_share_note(struct braid_link *link, uint64_t now)
{
	struct braid_share s = { .at_ns = now };
	uint32_t n = braid_link_peer_cpu(link, &s.used_ms, &s.queued_ms);
	bool in_time = braid_since(link->share.heard_ns, now) < ANSWER_MS * MS;

	braid_svc_assert_locked();
	if (n != link->share.announced && (in_time || !link->share.silent_ms)) {
		link->share.announced = n;
		link->share.answers += link->share.base.at_ns != 0;
		keep(&link->share, &s);
	}
	if (link->share.silent_ms)
		judge(link, now);
}

void braid_share_heard(struct braid_link *link, uint64_t silent_ms, uint64_t now)
{
	braid_svc_assert_locked();
	link->share.silent_ms = silent_ms;
	link->share.heard_ns = now;
	link->share.base = link->share.last;
	link->share.answers = 0;
}

const char *braid_share_text(const struct braid_link *link, char ret[BRAID_SHARE_TEXT])
{
	int used = link->share.used_percent, queued = link->share.queued_percent;

	braid_svc_assert_locked();
	*ret = '\0';
	if (!link->share.known)
		return ret;
	if (queued >= 50)
		snprintf(ret, BRAID_SHARE_TEXT, "; it gets too little CPU: its service thread "
			 "waited for one %d %% of the time", queued);
	else
		snprintf(ret, BRAID_SHARE_TEXT, "; its process uses %d %% of a CPU", used);
	return ret;
}

void braid_share_get(const struct braid_link *link, int *ret_used, int *ret_queued)
{
	bool known = link->share.known;

	*ret_used = known ? link->share.used_percent : -1;
	*ret_queued = known ? link->share.queued_percent : -1;
}
