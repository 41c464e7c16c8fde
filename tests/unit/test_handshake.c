/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_handshake.c - the handshakes under way: how long each may take, how many strangers there may
 * be, and what becomes of a handshake that ends.
 *
 * The linker puts the test's step of a handshake in place of conn.c's, so a case decides how each
 * one goes on.  Descriptors are numbers, and epoll is a table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/msg/open.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/transport.h"

enum { FDS = 128 };

static const uint64_t start = 1000 * SEC;

static struct {
	bool open[FDS], watched[FDS];
	uint32_t events[FDS];
	int no_epoll;			/* errno of the next epoll_ctl() that adds */
	int err;			/* of each step, which then waits for: */
	uint32_t wants;
	unsigned steps, dones;
	int done_err;			/* of the last done() */
	unsigned dropped;		/* set-ups */
	bool unconnected;
	char info[1024];
} w;
static int next_fd;
static uint64_t log_ns;			/* when the line about strangers was last asked for */
static struct braid_dev dev;
static struct braid_params saved;

/* --- what is around a handshake ------------------------------------------------------------ */

int __wrap_braid_conn_step(struct braid_conn *c, uint32_t *ret_events);
int __wrap_braid_conn_step(struct braid_conn *c, uint32_t *ret_events)
{
	(void)c;
	w.steps++;
	*ret_events = w.wants;
	return w.err;
}

static int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	(void)ep;
	assert_true(w.open[fd]);
	if (op == EPOLL_CTL_ADD && w.no_epoll) {
		errno = w.no_epoll;
		return -1;
	}
	if (op == EPOLL_CTL_DEL && !w.watched[fd]) {
		errno = ENOENT;
		return -1;
	}
	assert_int_equal(w.watched[fd], op != EPOLL_CTL_ADD);
	w.watched[fd] = op != EPOLL_CTL_DEL;
	w.events[fd] = ev ? ev->events : 0;
	return 0;
}

static int os_close(int fd)
{
	assert_true(w.open[fd]);
	w.open[fd] = false;
	return 0;
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	(void)level, (void)name, (void)val, (void)len;
	assert_true(w.open[fd]);
	return 0;
}

static int os_random(void *buf, size_t len)
{
	memset(buf, 1, len);
	return 0;
}

static int os_getpeername(int fd, struct sockaddr *sa, socklen_t *len)
{
	(void)sa, (void)len;
	assert_true(w.open[fd]);
	errno = ENOTCONN;
	return w.unconnected ? -1 : 0;
}

static uint64_t os_now_ns(void)
{
	return start;
}

static const struct braid_os fake = {
	.getpeername = os_getpeername, .now_ns = os_now_ns,
	.epoll_ctl = os_epoll_ctl, .close = os_close, .setsockopt = os_setsockopt,
	.random = os_random,
};

static void setup_drop(struct braid_setup *s)
{
	assert_non_null(s->priv);
	w.dropped++;
}

static const struct braid_transport tcp = { .name = "tcp", .id = BRAID_TRANSPORT_TCP };
static const struct braid_transport rdma = {
	.name = "rdma", .blob = true, .dma = true, .setup_drop = setup_drop,
};
static const struct braid_transport slow = {
	.name = "slow", .blob = true, .slow = true, .setup_drop = setup_drop,
};

static void owner_done(struct braid_conn *c, int err, uint64_t now)
{
	(void)c, (void)now;
	w.dones++;
	w.done_err = err;
}

static const struct braid_conn_owner owner = { .done = owner_done };

static void keep_info(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)level, (void)file, (void)line;
	strncpy(w.info, text, sizeof(w.info) - 1);
}

static int open_fd(void)
{
	int fd = next_fd++;

	assert_true(fd < FDS);
	w.open[fd] = true;
	return fd;
}

static struct braid_conn *newest(void)
{
	return braid_list_entry(braid_handshakes.prev, struct braid_conn, node);
}

/* A peer connects; its handshake waits. */
static struct braid_conn *accepted(void)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct sockaddr_storage sa = { 0 };

	memcpy(&sa, &from, sizeof(from));
	assert_int_equal(braid_handshake_accept(open_fd(), &dev, &owner, &sa, start), 0);
	return newest();
}

static struct braid_conn *dialled(void)
{
	struct braid_conn *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	braid_conn_init(c, open_fd(), true, &owner);
	c->deadline_ns = start + 5 * SEC;
	assert_int_equal(braid_handshake_add(c, EPOLLOUT), 0);
	return c;
}

static bool is_left(const struct braid_conn *c)
{
	struct braid_conn *i;

	braid_list_for(i, &braid_handshakes, node) {
		if (i == c)
			return true;
	}
	return false;
}

/* The line about strangers is due, if there were any. */
static void log_strangers(void)
{
	w.info[0] = '\0';
	braid_handshakes_log_strangers(log_ns += 60 * SEC);
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	next_fd = 3;
	w.err = -EAGAIN;
	w.wants = EPOLLIN;
	saved = braid_param;
	braid_param.handshake_timeout = 5;
	braid_param.half_open = 64;
	braid_os = &fake;
	braid_log_to(keep_info);
	braid_svc_lock();
	braid_handshakes_init();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_handshakes_close();
	braid_handshakes_free();
	log_strangers();			/* forget this case's */
	braid_svc_unlock();
	braid_log_to(NULL);
	braid_param = saved;
	for (int i = 0; i < FDS; i++)
		assert_false(w.open[i] || w.watched[i]);
	return 0;
}

/* --- one handshake ------------------------------------------------------------------------- */

static void an_accepted_socket_is_watched_for_what_it_waits_for(void **state)
{
	struct braid_conn *c = accepted();

	(void)state;
	assert_string_equal(c->addr, "0.0.0.0:9");
	assert_int_equal(c->from.port, 9);
	assert_ptr_equal(c->met, &dev);
	assert_int_equal(c->deadline_ns, start + 5 * SEC);
	assert_int_equal(w.steps, 1);
	assert_int_equal(w.events[c->fd], EPOLLIN);
	w.wants = EPOLLOUT;
	braid_handshake_event(c, start);
	assert_int_equal(w.events[c->fd], EPOLLOUT);
	assert_true(is_left(c));
}

static void one_that_ends_is_handed_to_its_owner_and_freed(void **state)
{
	struct braid_conn *c = dialled();
	int fd = c->fd;

	(void)state;
	w.err = 0;
	braid_handshake_event(c, start);
	assert_int_equal(w.dones, 1);
	assert_int_equal(w.done_err, 0);
	assert_false(braid_handshakes_left() || w.open[fd]);
	c = dialled();
	w.err = -ECONNRESET;
	braid_handshake_event(c, start);
	assert_int_equal(w.dones, 2);
	assert_int_equal(w.done_err, -ECONNRESET);
	assert_false(braid_handshakes_left());
}

static void the_end_is_known_to_link_and_lane(void **state)
{
	static struct braid_link link;
	static struct braid_lane lane;
	struct braid_conn *c = dialled();

	(void)state;
	c->link = &link;
	c->lane = &lane;
	link.dial.conn = lane.recover.conn = c;
	braid_handshake_end(c);
	assert_null(link.dial.conn);
	assert_null(lane.recover.conn);
	/* But not where another dial goes on. */
	c = dialled();
	c->link = &link;
	c->lane = &lane;
	link.dial.conn = lane.recover.conn = dialled();
	braid_handshake_end(c);
	assert_ptr_equal(link.dial.conn, newest());
	assert_ptr_equal(lane.recover.conn, newest());
}

static void what_it_holds_is_given_back(void **state)
{
	struct braid_conn *c = dialled();
	size_t all = braid_pool_promise((size_t)1 << 40);

	(void)state;
	braid_pool_unpromise(all);
	c->mine.window = (uint32_t)braid_pool_promise(65536);
	assert_int_equal(c->mine.window, 65536);
	c->tr = &rdma;
	c->setup.priv = &dev;
	braid_handshake_end(c);
	assert_int_equal(w.dropped, 1);
	assert_int_equal(braid_pool_promise((size_t)1 << 40), all);
	braid_pool_unpromise(all);
}

static void one_that_cannot_be_watched_is_closed(void **state)
{
	struct sockaddr_storage from = { .ss_family = AF_INET };
	int fd = open_fd();

	(void)state;
	w.no_epoll = ENOSPC;
	assert_int_equal(braid_handshake_accept(fd, &dev, &owner, &from, start), -ENOSPC);
	assert_false(w.open[fd] || braid_handshakes_left());
	assert_int_equal(w.steps + w.dones, 0);
}

static void a_dead_link_takes_its_handshakes_with_it(void **state)
{
	static struct braid_link one, two;
	struct braid_conn *c[3] = { dialled(), dialled(), dialled() };

	(void)state;
	c[0]->link = c[2]->link = &one;
	c[1]->link = &two;
	braid_handshakes_drop(&one);
	assert_ptr_equal(braid_handshakes.next, &c[1]->node);
	assert_ptr_equal(braid_handshakes.prev, &c[1]->node);
	assert_int_equal(w.dones, 0);
}

/* --- strangers ----------------------------------------------------------------------------- */

static void the_oldest_stranger_makes_room_for_the_next_one(void **state)
{
	struct braid_conn *first, *second, *ours;

	(void)state;
	braid_param.half_open = 2;
	ours = dialled();
	first = accepted();
	assert_true(braid_handshake_has_room(start + SEC));
	second = accepted();
	assert_true(is_left(first));
	assert_true(braid_handshake_has_room(start + SEC));
	assert_false(is_left(first));
	assert_true(is_left(second) && is_left(ours));
	assert_int_equal(w.dones, 0);
}

/* They may be peers whose hello is on its way: others wait in the kernel meanwhile. */
static void nobody_who_has_just_come_makes_room(void **state)
{
	struct braid_conn *first;

	(void)state;
	braid_param.half_open = 1;
	first = accepted();
	assert_false(braid_handshake_has_room(start + 249 * MS));
	assert_true(is_left(first));
	assert_true(braid_handshake_has_room(start + 250 * MS));
	assert_false(is_left(first));
}

static void who_has_shown_the_key_has_two_seconds(void **state)
{
	struct braid_conn *knows;

	(void)state;
	braid_param.half_open = 1;
	knows = accepted();
	knows->known = true;
	assert_false(braid_handshake_has_room(start + 2 * SEC - 1));
	assert_false(braid_handshake_make_room(start + 2 * SEC - 1, true));
	assert_true(is_left(knows));
	assert_true(braid_handshake_has_room(start + 2 * SEC));
	assert_false(is_left(knows));
}

static void strangers_hold_at_most_an_eighth_of_the_descriptors(void **state)
{
	struct rlimit lim, few;
	struct braid_conn *first, *second;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	few = lim;
	few.rlim_cur = 16;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	braid_handshakes_init();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	first = accepted();
	second = accepted();
	assert_true(is_left(first));
	assert_false(braid_handshake_has_room(start));
	assert_true(braid_handshake_has_room(start + SEC));
	assert_false(is_left(first));
	assert_true(is_left(second));
}

static void one_that_has_shown_the_key_is_dropped_last(void **state)
{
	struct braid_conn *knows = accepted(), *stranger = accepted();

	(void)state;
	knows->known = true;
	assert_true(braid_handshake_make_room(start + 2 * SEC, false));
	assert_true(is_left(knows));
	assert_false(is_left(stranger));
	assert_true(braid_handshake_make_room(start + 2 * SEC, false));
	assert_false(braid_handshakes_left());
}

static void our_own_dials_make_no_room(void **state)
{
	(void)state;
	dialled();
	assert_false(braid_handshake_make_room(start + 5 * SEC, true));
	assert_true(braid_handshakes_left());
}

static void strangers_are_counted_in_one_line(void **state)
{
	(void)state;
	log_strangers();
	assert_string_equal(w.info, "");
	w.err = -EPROTO;			/* speaks something else */
	accepted();
	w.err = -EACCES;			/* has no key */
	accepted();
	w.err = -ECONNRESET;			/* may be anybody */
	accepted();
	w.err = -EAGAIN;
	accepted();
	braid_handshake_make_room(start, true);
	log_strangers();
	assert_non_null(strstr(w.info, "refused 2 connections of strangers, dropped 1 that proved nothing "
				       "in time"));
	log_strangers();
	assert_string_equal(w.info, "");
}

/* --- time limits --------------------------------------------------------------------------- */

static void a_dial_that_takes_too_long_ends_with_etimedout(void **state)
{
	struct braid_conn *c = dialled();

	(void)state;
	braid_handshakes_expire(start + 5 * SEC - 1);
	assert_true(is_left(c));
	braid_handshakes_expire(start + 5 * SEC);
	assert_false(braid_handshakes_left());
	assert_int_equal(w.dones, 1);
	assert_int_equal(w.done_err, -ETIMEDOUT);
}

static void the_owner_learns_of_a_known_peer_that_takes_too_long(void **state)
{
	(void)state;
	accepted()->known = true;
	braid_handshakes_expire(start + 5 * SEC);
	assert_false(braid_handshakes_left());
	assert_int_equal(w.dones, 1);
	assert_int_equal(w.done_err, -ETIMEDOUT);
}

static void a_stranger_that_takes_too_long_is_dropped_silently(void **state)
{
	(void)state;
	accepted();
	braid_handshakes_expire(start + 5 * SEC);
	assert_false(braid_handshakes_left());
	assert_int_equal(w.dones, 0);
}

/* The peer must first stop the queue pair that the lane had. */
static void a_peer_that_has_rdma_gets_two_seconds_to_answer(void **state)
{
	static struct braid_link link;
	static struct braid_lane lane;
	struct braid_conn *c = dialled();

	(void)state;
	link.setup.better = true;
	c->deadline_ns = start + 500 * MS;
	c->link = &link;
	c->lane = &lane;
	braid_handshake_event(c, start);	/* TCP has not connected yet */
	assert_int_equal(c->deadline_ns, start + 500 * MS);
	c->state = BRAID_CONN_RX_ANSWER;
	link.setup.better = false;		/* nor is there anything to stop */
	braid_handshake_event(c, start);
	assert_int_equal(c->deadline_ns, start + 500 * MS);
	link.setup.better = true;
	braid_handshake_event(c, start + 100 * MS);
	assert_int_equal(c->deadline_ns, start + 2100 * MS);
	braid_handshake_event(c, start + 200 * MS);
	assert_int_equal(c->deadline_ns, start + 2100 * MS);
}

/* A lane of a link that is up, at which one end makes what is more than a socket. */
static struct braid_conn *sets_up(const struct braid_transport *tr, enum braid_hello_kind kind)
{
	struct braid_conn *c = dialled();

	c->tr = tr;
	c->mine.kind = (uint8_t)kind;
	c->mine.transports[0] = c->theirs.transports[0] = BRAID_TRANSPORT_TCP;
	c->state = BRAID_CONN_ASK_SETUP;
	c->making = true;
	return c;
}

static void a_set_up_gets_the_whole_time_again_and_each_part_of_it_a_second(void **state)
{
	struct braid_conn *c = sets_up(&rdma, BRAID_HELLO_LANE);
	uint64_t now = start + 4 * SEC;

	(void)state;
	braid_handshake_event(c, now);
	assert_int_equal(c->deadline_ns, now + 5 * SEC);
	assert_int_equal(c->ready_by_ns, now + SEC);
	braid_handshake_event(c, now + 500 * MS);
	assert_int_equal(c->deadline_ns, now + 5 * SEC);
	assert_int_equal(c->ready_by_ns, now + SEC);
	/* It is the peer's turn, which has as long. */
	c->making = false;
	c->state = BRAID_CONN_RX_ANSWERED;
	now += SEC;
	braid_handshake_event(c, now);
	assert_int_equal(c->deadline_ns, now + 5 * SEC);
	assert_int_equal(c->ready_by_ns, 0);
	c->state = BRAID_CONN_WAIT_READY;
	braid_handshake_event(c, now + SEC);
	assert_int_equal(c->ready_by_ns, now + 2 * SEC);
}

static void a_slow_transport_gets_half_of_the_time(void **state)
{
	struct braid_conn *c = sets_up(&slow, BRAID_HELLO_LANE);

	(void)state;
	braid_handshake_event(c, start);
	assert_int_equal(c->ready_by_ns, start + 2500 * MS);
}

static void a_new_link_that_cannot_use_the_socket_waits_on(void **state)
{
	struct braid_conn *c = sets_up(&rdma, BRAID_HELLO_LINK);

	(void)state;
	c->theirs.transports[0] = 0;
	braid_handshake_event(c, start);
	assert_int_equal(c->ready_by_ns, UINT64_MAX);
	c = sets_up(&rdma, BRAID_HELLO_LANE);	/* a lane can be had later */
	c->theirs.transports[0] = 0;
	braid_handshake_event(c, start);
	assert_int_equal(c->ready_by_ns, start + SEC);
	c = sets_up(&rdma, BRAID_HELLO_LINK);
	braid_handshake_event(c, start);
	assert_int_equal(c->ready_by_ns, start + SEC);
}

static void a_socket_alone_has_no_such_limits(void **state)
{
	struct braid_conn *c = sets_up(&tcp, BRAID_HELLO_LANE);

	(void)state;
	c->making = false;
	braid_handshake_event(c, start + 4 * SEC);
	assert_int_equal(c->deadline_ns, start + 5 * SEC);
	assert_int_equal(c->ready_by_ns, 0);
}

/* --- polling ------------------------------------------------------------------------------- */

static void what_raises_no_event_is_polled_once_in_each_round(void **state)
{
	struct braid_conn *c = sets_up(&rdma, BRAID_HELLO_LANE);

	(void)state;
	dialled();				/* waits for its socket */
	assert_true(braid_handshakes_poll(start));
	assert_int_equal(w.steps, 1);
	assert_true(braid_handshakes_poll(start + 1));
	assert_int_equal(w.steps, 2);
	c->making = false;
	assert_false(braid_handshakes_poll(start + 2));
	assert_int_equal(w.steps, 2);
}

static void a_round_ends_and_the_next_one_goes_on(void **state)
{
	struct braid_conn *first = sets_up(&rdma, BRAID_HELLO_LANE);

	(void)state;
	for (unsigned i = 0; i < 69; i++)
		sets_up(&rdma, BRAID_HELLO_LANE);
	braid_handshakes_poll(start);
	assert_int_equal(w.steps, 64);
	w.err = 0;				/* the rest comes first now */
	braid_handshakes_poll(start);
	assert_int_equal(w.dones, 64);
	assert_true(is_left(newest()));
	assert_int_equal(w.steps, 128);
	assert_false(is_left(first));
}

static void a_set_up_that_is_not_ready_in_time_is_given_up(void **state)
{
	struct braid_conn *c = sets_up(&rdma, BRAID_HELLO_LANE);

	(void)state;
	braid_handshake_event(c, start);
	braid_handshakes_poll(start + SEC - 1);
	assert_int_equal(c->mine_setup.err, 0);
	braid_handshakes_poll(start + SEC);
	assert_int_equal(c->mine_setup.err, ETIMEDOUT);
	assert_true(is_left(c));		/* the peer gets the error; sockets may carry the lane */
}

/* --- revoked memory ------------------------------------------------------------------------ */

static void a_set_up_older_than_a_revocation_is_dropped_at_once(void **state)
{
	static struct braid_link link, other;
	struct braid_conn *old = sets_up(&rdma, BRAID_HELLO_LANE);
	struct braid_conn *young = sets_up(&rdma, BRAID_HELLO_LANE);
	struct braid_conn *others = sets_up(&rdma, BRAID_HELLO_LANE);
	struct braid_conn *no_dma = sets_up(&slow, BRAID_HELLO_LANE);

	(void)state;
	link.lanes.rkey_epoch = other.lanes.rkey_epoch = 3;
	old->link = young->link = no_dma->link = &link;
	others->link = &other;
	old->setup.priv = young->setup.priv = others->setup.priv = no_dma->setup.priv = &dev;
	old->mine_setup.rkey_epoch = others->mine_setup.rkey_epoch = 2;
	no_dma->mine_setup.rkey_epoch = 2;
	young->mine_setup.rkey_epoch = 3;
	braid_svc_unlock();
	braid_comm_hooks.revoked(&link);
	braid_svc_lock();
	assert_int_equal(w.dropped, 1);
	assert_true(old->revoked);
	assert_false(young->revoked || others->revoked || no_dma->revoked);
	assert_true(is_left(old));		/* the service thread may be handling it */
}

/* --- callers that wait ---------------------------------------------------------------------- */

static void a_caller_that_helps_has_the_socket_to_itself(void **state)
{
	struct braid_conn *c = dialled();

	(void)state;
	assert_int_equal(w.events[c->fd], EPOLLOUT);
	braid_handshake_help(c, start);
	braid_handshake_help(c, start);
	assert_int_equal(w.steps, 2);
	assert_int_equal(w.events[c->fd], 0);
	w.err = 0;
	braid_handshake_help(c, start);
	assert_int_equal(w.dones, 1);
	assert_false(braid_handshakes_left());
}

static void a_caller_that_stays_away_is_not_waited_for(void **state)
{
	struct braid_conn *c = dialled();

	(void)state;
	braid_handshake_help(c, start);
	assert_true(braid_svc.wake);		/* for the thread to look */
	braid_svc.wake = false;
	for (int i = 0; i < 3; i++) {		/* it comes between two looks */
		assert_true(braid_handshakes_poll(start));
		braid_handshake_help(c, start);
	}
	assert_false(braid_svc.wake);
	assert_int_equal(w.steps, 4);
	assert_true(braid_handshakes_poll(start));
	assert_int_equal(w.steps, 4);
	assert_true(braid_handshakes_poll(start));
	assert_int_equal(w.steps, 5);
	assert_int_equal(w.events[c->fd], EPOLLIN);
	assert_false(braid_handshakes_poll(start));
}

static void a_caller_does_not_help_with_what_may_sleep(void **state)
{
	struct braid_conn *c = dialled();

	(void)state;
	c->state = BRAID_CONN_ASK_SETUP;
	braid_handshake_help(c, start);
	assert_int_equal(w.steps, 0);
	assert_int_equal(w.events[c->fd], EPOLLOUT);
}

static void a_caller_does_not_help_before_tcp_has_connected(void **state)
{
	struct braid_conn *c = dialled();

	(void)state;
	w.unconnected = true;
	braid_handshake_help(c, start);
	assert_int_equal(w.steps, 0);
	w.unconnected = false;
	braid_handshake_help(c, start);
	assert_int_equal(w.steps, 1);
}

static void who_accepts_helps_those_that_have_shown_the_key(void **state)
{
	struct braid_conn *c = accepted(), *stranger = accepted(), *dial = dialled();

	(void)state;
	c->state = BRAID_CONN_RX_PROOF;
	assert_int_equal(w.steps, 2);
	braid_handshakes_help();		/* somebody else has the lock */
	assert_int_equal(w.steps, 2);
	braid_svc_unlock();
	braid_handshakes_help();
	braid_svc_lock();
	assert_int_equal(w.steps, 3);
	assert_int_equal(w.events[c->fd], 0);
	assert_int_equal(w.events[stranger->fd], EPOLLIN);
	assert_int_equal(w.events[dial->fd], EPOLLOUT);
}

static void an_event_of_one_that_has_ended_is_ignored(void **state)
{
	struct braid_conn *c = dialled();

	(void)state;
	w.err = 0;
	braid_handshake_help(c, start);
	braid_handshake_event(c, start);	/* the service thread held it already */
	assert_int_equal(w.steps, 1);
	assert_int_equal(w.dones, 1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_accepted_socket_is_watched_for_what_it_waits_for),
		CASE(one_that_ends_is_handed_to_its_owner_and_freed),
		CASE(the_end_is_known_to_link_and_lane),
		CASE(what_it_holds_is_given_back),
		CASE(one_that_cannot_be_watched_is_closed),
		CASE(a_dead_link_takes_its_handshakes_with_it),
		CASE(the_oldest_stranger_makes_room_for_the_next_one),
		CASE(nobody_who_has_just_come_makes_room),
		CASE(who_has_shown_the_key_has_two_seconds),
		CASE(strangers_hold_at_most_an_eighth_of_the_descriptors),
		CASE(one_that_has_shown_the_key_is_dropped_last),
		CASE(our_own_dials_make_no_room),
		CASE(strangers_are_counted_in_one_line),
		CASE(a_dial_that_takes_too_long_ends_with_etimedout),
		CASE(the_owner_learns_of_a_known_peer_that_takes_too_long),
		CASE(a_stranger_that_takes_too_long_is_dropped_silently),
		CASE(a_peer_that_has_rdma_gets_two_seconds_to_answer),
		CASE(a_set_up_gets_the_whole_time_again_and_each_part_of_it_a_second),
		CASE(a_slow_transport_gets_half_of_the_time),
		CASE(a_new_link_that_cannot_use_the_socket_waits_on),
		CASE(a_socket_alone_has_no_such_limits),
		CASE(what_raises_no_event_is_polled_once_in_each_round),
		CASE(a_round_ends_and_the_next_one_goes_on),
		CASE(a_set_up_that_is_not_ready_in_time_is_given_up),
		CASE(a_set_up_older_than_a_revocation_is_dropped_at_once),
		CASE(a_caller_that_helps_has_the_socket_to_itself),
		CASE(a_caller_that_stays_away_is_not_waited_for),
		CASE(a_caller_does_not_help_with_what_may_sleep),
		CASE(a_caller_does_not_help_before_tcp_has_connected),
		CASE(who_accepts_helps_those_that_have_shown_the_key),
		CASE(an_event_of_one_that_has_ended_is_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
