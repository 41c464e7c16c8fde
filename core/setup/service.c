/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.c - the table of links, and the thread that looks after them.
 *
 * Locks, outermost first: the service's (a mutex: links, and what listen.c, handshake.c, dial.c
 * and connect.c keep; set-up calls and the thread take it for moments), a lane's io lock, a
 * link's lock, that of the listens.
 *
 * The thread's body is service_step(): wait for events, handle them, look at the clock.  Links
 * are moved without the service's lock, for only this thread ever frees one.  A link is in one of
 * two modes.  *Active*: callers move it, and the thread only checks it every tick.  *Watched*: no
 * call came for a tick, and its sockets are in the thread's epoll set.  Ticks grow longer while no
 * active link holds anything that its peer would wait for if the callers stopped calling.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/proto/auth.h"
#include "core/setup/lane_count.h"
#include "core/setup/recover.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/setup/service_int.h"
#include "core/watch/stat.h"
#include "core/transport.h"
#include "core/base/work.h"
#include "core/base/wakeup.h"
#include "topo/sys.h"

enum {
	TICK_MS = 2, TICK_MAX_MS = 16,
	TIDY_MS = 20,			/* how often what callers left pending is sent */
	STOP_MS = 1000,			/* for goodbyes to leave, even on a busy host */
	WATCH_MOVES = 4,		/* of a link before it is watched, at most */
	LINGER_MS = 3000,		/* for lost lanes with unacknowledged frames to return */
	JOIN_MS = LINGER_MS + STOP_MS + 2000,	/* finalize() waits so long for the thread to end */
	DEVICES_MAX = 16,		/* devices that have had links */
};

struct braid_self braid_self;
struct braid_svc braid_svc = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	bool ready;
	unsigned contexts;

	bool running, stop;
	pthread_t thread;
	int ep, efd;
	const struct braid_dev *device[DEVICES_MAX];
	unsigned ndevices;
	struct braid_lock links_lock;	/* the table of links, their `looks`, and device[];
					 * its holder never waits */
	uint64_t idle_since_ns, looked_ns;
	int tick_ms;
	uint64_t stop_ns;		/* when the thread was asked to stop; 0: not yet */
} svc = { .ep = -1, .tick_ms = TICK_MS };

int braid_watch(int op, int fd, uint32_t events, void *obj, enum braid_tag tag)
{
	struct epoll_event ev = { .events = events, .data.u64 = (uint64_t)(uintptr_t)obj | tag };

	return braid_os->epoll_ctl(svc.ep, op, fd, &ev) ? -errno : 0;
}

void braid_unwatch(int fd)
{
	braid_os->epoll_ctl(svc.ep, EPOLL_CTL_DEL, fd, NULL);
}

/* --- process ------------------------------------------------------------------------------- */

/* In a forked child: descriptors are closed already; keys must not stay. */
static void wipe_child(void)
{
	for (struct braid_list *n = braid_svc.links.next; n && n != &braid_svc.links; n = n->next) {
		struct braid_link *link = braid_list_entry(n, struct braid_link, node);

		braid_auth_wipe(link->session, sizeof(link->session));
		braid_auth_wipe(&link->target, sizeof(link->target));
	}
	braid_listens_wipe();
	braid_connects_wipe();
}

/* A number for this boot of this host, and for the network namespace; 0: unknown. */
static uint16_t place(void)
{
	uint64_t hash = 0xcbf29ce484222325u;	/* FNV-1a */
	char text[128] = "";
	struct stat st = { 0 };
	size_t len;

	if (!braid_sys_line("/proc/sys/kernel/random/boot_id", text, 64) ||
	    stat("/proc/self/ns/net", &st))
		return 0;
	len = strlen(text);
	snprintf(text + len, sizeof(text) - len, " %llu", (unsigned long long)st.st_ino);
	for (const char *p = text; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
	hash ^= hash >> 32;
	hash ^= hash >> 16;
	return (uint16_t)hash ? (uint16_t)hash : 1;
}

int braid_service_init(void)
{
	int err = 0;

	pthread_mutex_lock(&braid_svc.lock);
	if (!svc.ready) {
		err = braid_auth_init();
		if (!err)
			err = braid_os_atfork(wipe_child);
		if (err) {
			braid_error(err, "can't prepare keys and forks: %s "
				    "[no-start]", strerror(-err));
			goto out;
		}
		braid_list_init(&braid_svc.links);
		braid_listens_init();
		braid_handshakes_init();
		braid_os->random(braid_self.process, sizeof(braid_self.process));
		braid_self.pid = (uint32_t)getpid();
		if (gethostname(braid_self.host, sizeof(braid_self.host) - 1))
			strcpy(braid_self.host, "unknown");
		braid_self.place = place();
		svc.ready = true;
	}
out:
	pthread_mutex_unlock(&braid_svc.lock);
	return err;
}

static void *service_thread(void *arg);

static void close_fds(void)
{
	braid_wakeup_close();
	braid_os->close(svc.ep);
	svc.ep = -1;
}

int braid_service_failed(int err)
{
	return braid_error(err, "can't start the service thread: %s%s [no-start]", strerror(-err),
			   err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

int braid_service_try(void)
{
	int err;

	if (svc.running)
		return 0;
	svc.ep = braid_os->epoll_create();
	if (svc.ep < 0)
		return -errno;
	svc.efd = braid_wakeup_open();
	err = svc.efd < 0 ? svc.efd :
			    braid_watch(EPOLL_CTL_ADD, svc.efd, EPOLLIN, NULL, BRAID_TAG_WAKE);
	svc.stop = false;
	svc.stop_ns = 0;
	svc.idle_since_ns = 0;
	if (!err)
		err = braid_os->thread_start(&svc.thread, service_thread, NULL, "braid-service");
	if (err) {
		close_fds();
		return err;
	}
	svc.running = true;
	braid_stat_start();
	return 0;
}

int braid_service_start(void)
{
	int err = braid_service_try();

	return err ? braid_service_failed(err) : 0;
}

void braid_service_get(void)
{
	pthread_mutex_lock(&braid_svc.lock);
	svc.contexts++;
	pthread_mutex_unlock(&braid_svc.lock);
}

void braid_service_put(void)
{
	bool last;

	pthread_mutex_lock(&braid_svc.lock);
	last = --svc.contexts == 0;
	pthread_mutex_unlock(&braid_svc.lock);
	if (last)
		braid_service_stop();
}

void braid_service_stop(void)
{
	pthread_t thread;
	bool running;

	pthread_mutex_lock(&braid_svc.lock);
	running = svc.running;
	thread = svc.thread;
	svc.stop = true;
	pthread_mutex_unlock(&braid_svc.lock);
	if (!running)
		return;
	braid_wake_service();
	if (braid_os->thread_join(thread, JOIN_MS))
		braid_warn("the service thread did not end within %d s; it is left behind "
			   "[thread-left]", JOIN_MS / 1000);
}

/* --- links, as time goes by ---------------------------------------------------------------- */

static bool same_key(const struct braid_link_key *a, const struct braid_link_key *b)
{
	return !memcmp(a->process, b->process, sizeof(a->process)) && a->dev == b->dev &&
	       a->peer_dev == b->peer_dev && a->traffic_class == b->traffic_class &&
	       a->self_accepted == b->self_accepted;
}

void braid_link_number(struct braid_link *link)
{
	static uint32_t last;

	link->number = ++last;
}

void braid_link_list(struct braid_link *link)
{
	unsigned i = 0;

	braid_lock_wait(&svc.links_lock);
	braid_list_add_tail(&braid_svc.links, &link->node);
	while (i < svc.ndevices && svc.device[i] != link->key.dev)
		i++;
	if (i == svc.ndevices && i < DEVICES_MAX)
		svc.device[svc.ndevices++] = link->key.dev;
	braid_unlock(&svc.links_lock);
}

unsigned braid_links_devices(const struct braid_dev **ret, unsigned max)
{
	unsigned n;

	braid_lock_wait(&svc.links_lock);
	n = svc.ndevices < max ? svc.ndevices : max;
	memcpy(ret, svc.device, n * sizeof(*ret));
	braid_unlock(&svc.links_lock);
	return n;
}

/* Take the link out of the table.  False: a viewer still reads it. */
static bool link_unlist(struct braid_link *link)
{
	bool free;

	braid_lock_wait(&svc.links_lock);
	free = !link->looks;
	if (free)
		braid_list_del(&link->node);
	braid_unlock(&svc.links_lock);
	return free;
}

struct braid_link *braid_links_next(struct braid_link *link)
{
	struct braid_list *n;

	braid_lock_wait(&svc.links_lock);
	n = link ? link->node.next : braid_svc.links.next;
	if (link)
		link->looks--;
	link = n == &braid_svc.links ? NULL : braid_list_entry(n, struct braid_link, node);
	if (link)
		link->looks++;
	braid_unlock(&svc.links_lock);
	return link;
}

void braid_links_leave(struct braid_link *link)
{
	braid_lock_wait(&svc.links_lock);
	link->looks--;
	braid_unlock(&svc.links_lock);
}

struct braid_link *braid_link_find(const struct braid_link_key *key, bool pending)
{
	struct braid_link *link;

	braid_list_for(link, &braid_svc.links, node) {
		int state = atomic_load(&link->state);

		if (same_key(&link->key, key) && state != BRAID_LINK_DEAD && !link->peer_gone &&
		    (!pending || state != BRAID_LINK_UP))
			return link;
	}
	return NULL;
}

static void lane_unwatch(struct braid_lane *lane)
{
	if (lane->in_epoll)
		braid_unwatch(lane->fd);
	if (lane->event_in_epoll)
		braid_unwatch(lane->event_fd);
	lane->in_epoll = lane->event_in_epoll = false;
}

static int lane_watch(struct braid_lane *lane)
{
	uint32_t room = lane->blocked && !lane->tr->dma ? EPOLLOUT : 0u;
	int err = braid_watch(lane->in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, lane->fd,
			      EPOLLIN | EPOLLRDHUP | EPOLLONESHOT |
			      (lane->event_fd < 0 ? room : 0), lane, BRAID_TAG_LANE);

	lane->in_epoll |= !err;
	if (err || lane->event_fd < 0)
		return err;
	err = braid_watch(lane->event_in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, lane->event_fd,
			  EPOLLIN | EPOLLONESHOT | room, lane, BRAID_TAG_LANE);
	lane->event_in_epoll |= !err;
	return err;
}

int braid_lane_shut(struct braid_lane *lane)
{
	lane_unwatch(lane);
	return braid_lane_fence(lane);
}

/* A caller is back.  Even a disarmed epoll entry costs the kernel a look for every packet. */
static void link_unwatch(struct braid_link *link)
{
	atomic_store(&link->watched, false);
	for (unsigned i = 0; i < link->nlanes; i++)
		lane_unwatch(link->lane[i]);
}

/*
 * No call came for a tick: send what is pending, and watch the sockets.  A call in between shows
 * in `touched` at the next tick at the latest, so the link is checked once more before the thread
 * may sleep (settled).
 */
static void link_watch(struct braid_link *link)
{
	bool idle = true;
	int moved = 1;

	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_lane_up(link->lane[i]))
			idle &= link->lane[i]->tr->arm(link->lane[i]);
	}
	for (unsigned i = 0; i < WATCH_MOVES && moved > 0; i++)
		moved = braid_link_move(link);
	/* Work left behind by a held lock or an unfinished GPU copy will raise no event. */
	if (!braid_link_try_flush_control(link) || moved > 0 || atomic_load(&link->copies) ||
	    !idle) {
		link_unwatch(link);
		return;
	}
	atomic_store(&link->watched, true);
	link->settled = false;
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		/* A peer's NIC reports new room by a write into our memory: no event comes. */
		if (braid_lane_up(lane) && ((lane->tr->dma && lane->blocked) || lane_watch(lane))) {
			link_unwatch(link);	/* not now: the next tick tries again */
			return;
		}
	}
}

/* Data arrived on a watched link: move the link, unless a caller is back. */
static void link_event(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;

	if (atomic_load(&link->state) != BRAID_LINK_UP)
		return;
	braid_yield();			/* the callers may only have been waiting for this CPU */
	if (atomic_load(&link->touched) == link->seen && atomic_load(&link->watched))
		link_watch(link);
	else
		link_unwatch(link);
}

/* True: the next tick may be later. */
static bool link_tick(struct braid_link *link, uint64_t now)
{
	unsigned long touched = atomic_load(&link->touched);
	bool calm = true, all;

	if (touched != link->seen) {
		link->seen = touched;
		link_unwatch(link);
		all = braid_since(link->tidied_ns, now) >= TIDY_MS * MS;
		if (all)
			link->tidied_ns = now;
		calm = !braid_link_flush_if_urgent(link, all) && !link->ndown &&
		       !atomic_load(&link->copies);
	} else if (!atomic_load(&link->watched)) {
		link_watch(link);
		calm = false;
	} else {
		link->settled = true;
	}
	return calm;
}

static void comms_bury(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	braid_lock_wait(&link->lock);
	braid_list_for_safe(c, tmp, &link->comms, node) {
		/*
		 * A comm that waits for accept() has no owner, so a failed one may go.  A comm that
		 * its sender has closed has not failed: what was sent is still to be received.
		 */
		if (c->closed || (atomic_load(&c->err) && braid_listen_withdraw(c)))
			braid_comm_free(c);
	}
	braid_unlock(&link->lock);
}

static void link_close_lanes(struct braid_link *link)
{
	unsigned n = braid_link_stop(link);

	braid_link_end_copies(link);
	for (unsigned i = 0; i < n; i++)
		link->lane[i]->tr->lane_close(link->lane[i]);
	if (!link->closing)
		braid_stops_mark(link->key.dev, &link->stops);
	link->closing = true;
	braid_link_go(link, n);
}

/* With the link's lock held. */
static void link_say_close(struct braid_link *link)
{
	struct braid_hdr h = { .type = BRAID_F_CLOSE };

	if (!braid_link_attach(link) && !link->peer_gone) {
		braid_link_send_control(link);
		braid_link_ctl(link, &h, NULL);
		braid_link_flush(link);
	}
}

/* Close an idle link, unless a comm has been opened since the caller checked. */
static void link_close_idle(struct braid_link *link)
{
	braid_lock_wait(&link->lock);
	if (!link->ncomms) {
		link_say_close(link);
		braid_link_down(link, -ENOTCONN, "idle link closed [link-closed]");
	}
	braid_unlock(&link->lock);
}

/* A link just accepted waits for its first comm, longer where a socket may have to replace RDMA. */
static uint64_t idle_limit(const struct braid_link *link)
{
	uint64_t limit = braid_param.share ? (uint64_t)braid_param.link_idle * SEC : 0;
	uint64_t first = (link->better ? 10 : 2) * SEC;

	return link->dialler || link->used || limit > first ? limit : first;
}

/* True if the link is gone and freed.  braid_svc.lock is held. */
static bool link_reap(struct braid_link *link, uint64_t now)
{
	int state = atomic_load(&link->state);

	if (state == BRAID_LINK_DEAD) {
		link_unwatch(link);
		link_close_lanes(link);
		comms_bury(link);
		braid_handshakes_drop(link);
		/* A NIC that has not stopped may still read the link's queues. */
		if (link->ncomms || atomic_load(&link->pins) ||
		    !braid_stops_past(link->key.dev, &link->stops) || !link_unlist(link))
			return false;
		braid_link_free(link);
		return true;
	}
	if (link->ncomms || link->refusals || atomic_load(&link->pins) || state != BRAID_LINK_UP) {
		link->idle_since_ns = 0;
		return false;
	}
	if (!link->idle_since_ns)
		link->idle_since_ns = now;
	if (braid_since(link->idle_since_ns, now) > 50 * MS && link->attached) {
		unsigned n = braid_link_stop(link);	/* accept() may be moving the link */

		if (!link->ncomms)
			braid_link_detach(link);
		braid_link_go(link, n);
	}
	if (braid_since(link->idle_since_ns, now) >= idle_limit(link) || link->peer_gone)
		link_close_idle(link);
	return false;
}

/* If too many links carry nothing, close the one that has been idle longest. */
static void bound_idle(void)
{
	struct braid_link *link, *oldest = NULL;
	unsigned n = 0;

	braid_list_for(link, &braid_svc.links, node) {
		if (!link->idle_since_ns || atomic_load(&link->state) != BRAID_LINK_UP ||
		    (!link->dialler && !link->used))	/* its first comm is on its way */
			continue;
		n++;
		if (!oldest || link->idle_since_ns < oldest->idle_since_ns)
			oldest = link;
	}
	if (n > (unsigned)braid_param.links_idle)
		link_close_idle(oldest);
}

/* --- the thread ---------------------------------------------------------------------------- */

/* The shorter of two times to wait; below 0 is forever. */
static int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Look after the NICs' commands.  Returns as service_look() does. */
static int look_at_nics(uint64_t now)
{
	int ms = -1;

	for (unsigned i = 0; i < svc.ndevices; i++) {
		const struct braid_dev *dev = svc.device[i];

		for (unsigned k = 0; k < dev->nmembers; k++)
			ms = sooner(ms, braid_later_look(dev->member[k], now));
	}
	return ms;
}

/* Do all that is due.  Returns the milliseconds until something is due again; -1: nothing is. */
static int service_look(uint64_t now)
{
	struct braid_link *link, *tmp;
	int wait_ms = -1;
	bool paused;

	braid_handshakes_expire(now);
	paused = braid_listeners_resume(now);
	braid_handshakes_tell(now);
	braid_list_for_safe(link, tmp, &braid_svc.links, node) {
		int state = atomic_load(&link->state);

		if (link_reap(link, now)) {
			wait_ms = sooner(wait_ms, TICK_MS);
			continue;
		}
		if ((state == BRAID_LINK_DIALING || state == BRAID_LINK_WAITING) && !link->conn &&
		    now >= link->dial_at_ns)
			braid_dial_link(link, now);
		if (state == BRAID_LINK_UP && link->dialler && !link->conn &&
		    braid_lane_count_may_dial(link, now)) {
			if (braid_dial_lane(link, NULL, now))
				braid_lane_count_dialled(link, -ENOMEM, now);
		}
		if (state == BRAID_LINK_UP) {
			braid_lane_count_tick(link, now);
			wait_ms = sooner(wait_ms, braid_recover_tick(link, now));
		}
		if (state != BRAID_LINK_UP || !atomic_load(&link->watched) || !link->settled)
			wait_ms = sooner(wait_ms, svc.tick_ms);
		else if (!link->ncomms || (link->dialler && braid_lane_count_wants_dial(link)))
			wait_ms = sooner(wait_ms, 100);
	}
	bound_idle();
	wait_ms = sooner(wait_ms, look_at_nics(now));
	if (paused || braid_handshakes_left())
		wait_ms = sooner(wait_ms, braid_handshakes_poll(now) ? 1 : 100);
	return wait_ms;
}

static bool nothing_left(uint64_t now)
{
	if (braid_listens_left() || braid_connects_left() || !braid_list_empty(&braid_svc.links)) {
		svc.idle_since_ns = 0;
		return false;
	}
	if (!svc.idle_since_ns)
		svc.idle_since_ns = now;
	return braid_since(svc.idle_since_ns, now) >= (uint64_t)braid_param.link_idle * SEC;
}

/* While stopping: has some link lost its home lane while frames on it are unacknowledged? */
static bool must_linger(uint64_t now)
{
	struct braid_link *link;
	bool any = false;

	if (!svc.stop_ns)
		svc.stop_ns = now;
	if (braid_since(svc.stop_ns, now) >= LINGER_MS * MS)
		return false;
	braid_list_for(link, &braid_svc.links, node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP || link->peer_gone ||
		    braid_lane_up(braid_link_home(link)))
			continue;
		braid_lock_wait(&link->lock);
		any |= !braid_txq_idle(&braid_link_home(link)->tx);
		braid_unlock(&link->lock);
	}
	return any;
}

/* True: some links wait for a NIC to stop.  If it never does, the next thread frees them. */
static bool reap_all(void)
{
	struct braid_link *link, *tmp;
	bool any = false;

	braid_list_for_safe(link, tmp, &braid_svc.links, node) {
		if (!link_reap(link, 0))
			any |= !braid_stops_past(link->key.dev, &link->stops);
	}
	return any;
}

static void close_all(void)
{
	struct braid_link *link;
	uint64_t until = braid_os->now_ns() + STOP_MS * MS;
	bool busy = true;

	braid_stat_stop();
	braid_list_for(link, &braid_svc.links, node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP)
			continue;
		braid_lock_wait(&link->lock);
		link_say_close(link);
		braid_unlock(&link->lock);
	}
	/* For a bounded time, let the goodbyes and what was sent before them reach the peers. */
	while (busy && braid_os->now_ns() < until) {
		struct epoll_event ev[1];

		busy = false;
		braid_list_for(link, &braid_svc.links, node) {
			if (atomic_load(&link->state) != BRAID_LINK_UP)
				continue;
			braid_link_move(link);
			braid_link_try_flush_control(link);
			busy |= !link->peer_gone && braid_lane_up(braid_link_home(link)) &&
				!braid_txq_idle(&braid_link_home(link)->tx);
		}
		if (busy)
			braid_os->epoll_wait(svc.ep, ev, 1, 1);
	}
	braid_list_for(link, &braid_svc.links, node)
		braid_link_fail(link, -ENOTCONN, "the last context was finalized [link-closed]");
	braid_handshakes_close();
	until = braid_os->now_ns() + STOP_MS * MS;
	while ((reap_all() || braid_listeners_news()) && braid_os->now_ns() < until) {
		struct epoll_event ev[1];

		look_at_nics(braid_os->now_ns());
		braid_os->epoll_wait(svc.ep, ev, 1, 1);
	}
	braid_work_end();
	braid_listeners_close();
	braid_connects_free();
	close_fds();
	braid_pool_trim();
}

/* A tick follows: after an event the thread does not sleep. */
static void device_event(struct braid_listener *p)
{
	struct braid_link *link;

	braid_listener_news(p);
	braid_list_for(link, &braid_svc.links, node) {
		if (atomic_load(&link->state) == BRAID_LINK_UP)
			braid_recover_port(link);
	}
}

static void handle_event(const struct epoll_event *ev, uint64_t now)
{
	void *obj = (void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)BRAID_TAG_MASK);

	switch ((enum braid_tag)(ev->data.u64 & BRAID_TAG_MASK)) {
	case BRAID_TAG_WAKE:
		braid_os->unwake(svc.efd);
		break;
	case BRAID_TAG_PORT:
		braid_listener_event(obj, now);
		break;
	case BRAID_TAG_CONN:
		braid_handshake_event(obj, now);
		break;
	case BRAID_TAG_DEVICE:
		device_event(obj);
		break;
	default:
		break;
	}
}

static bool is_lane(const struct epoll_event *ev)
{
	return (ev->data.u64 & BRAID_TAG_MASK) == BRAID_TAG_LANE;
}

static void links_tick(uint64_t now)
{
	struct braid_link *link;
	unsigned touched = 0;
	bool calm = true;

	braid_list_for(link, &braid_svc.links, node)
		touched += atomic_load(&link->touched) != link->seen;
	braid_list_for(link, &braid_svc.links, node) {
		braid_hint(&link->alone, touched == 1);
		if (atomic_load(&link->state) != BRAID_LINK_UP || !link_tick(link, now))
			calm = false;
	}
	if (!calm)
		svc.tick_ms = TICK_MS;
	else if (svc.tick_ms < TICK_MAX_MS && now - svc.looked_ns >= (unsigned)svc.tick_ms * MS)
		svc.tick_ms *= 2;
}

/* One round of the thread's loop; false when nothing is left to look after. */
static bool service_step(int *wait_ms)
{
	struct epoll_event ev[1];
	uint64_t now;
	bool go_on, look;
	int n;

	/*
	 * One event at a time: handling one may free what another is about.  Lanes are freed by
	 * this thread only, so that they can be moved without braid_svc.lock.
	 */
	n = braid_os->epoll_wait(svc.ep, ev, 1, *wait_ms);
	if (n > 0 && is_lane(ev)) {
		struct braid_lane *lane =
			(void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)BRAID_TAG_MASK);

		link_event(lane);
	}
	now = braid_clock_set();
	look = n <= 0 || now - svc.looked_ns >= TICK_MS * MS;	/* also while events pour in */
	pthread_mutex_lock(&braid_svc.lock);
	if (n > 0 && !is_lane(ev))
		handle_event(ev, now);
	if (look)
		links_tick(now);	/* first: service_look() says how long to sleep after it */
	*wait_ms = 0;
	if (look) {
		int ms = service_look(now);

		svc.looked_ns = now;
		*wait_ms = n > 0 ? 0 : ms;
	}
	go_on = (!svc.stop || must_linger(now)) && !nothing_left(now);
	if (go_on && svc.stop)
		*wait_ms = sooner(*wait_ms, 1);
	if (go_on && *wait_ms < 0 && svc.idle_since_ns)
		*wait_ms = 100;
	pthread_mutex_unlock(&braid_svc.lock);
	return go_on;
}

/* The lock is held from the decision to end until the end: no link may be added in between. */
static void *service_thread(void *arg)
{
	int wait_ms = 0;

	(void)arg;
	for (;;) {
		if (service_step(&wait_ms))
			continue;
		pthread_mutex_lock(&braid_svc.lock);
		if ((svc.stop && !must_linger(braid_os->now_ns())) ||
		    nothing_left(braid_os->now_ns()))
			break;
		pthread_mutex_unlock(&braid_svc.lock);
		wait_ms = 0;
	}
	close_all();
	if (!svc.stop)
		pthread_detach(svc.thread);
	svc.running = false;
	pthread_mutex_unlock(&braid_svc.lock);
	return NULL;
}
