/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_dial.c - the service thread dials: what a hello says and where it goes, which failures are
 * repeated, and what becomes of a dial that is over.
 *
 * Sockets are numbers, and calls fail as the test says.  The linker puts functions of the test in
 * place of braid_why_dial(), which has a test of its own, and of the device's listening port.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/secret.h"
#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"
#include "core/setup/dial.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/redial.h"
#include "core/setup/why.h"
#include "tests/lib/pair.h"
#include "tests/lib/warns.h"

enum { FD0 = 100, LISTEN = 77, PEER_DEV = 3, PORT = 4711 };

static struct {
	int socket_err, bind_err, connect_err, epoll_err;
	unsigned sockets, closed, binds;
	uint16_t free_port;		/* every other port gets taken_err; 0: no port does */
	int taken_err;
	uint32_t events;
	int segment;			/* TCP_MAXSEG; 0: not set */
	bool nodelay, late_port;
	struct sockaddr_in from, to;
	/* The end of the link, as braid_why_dial() is to report it. */
	unsigned whys;
	enum braid_dial_stage stage;
	int err;
} w;

static struct null_pair p;
static struct braid_link *link;		/* to be dialled */
static struct braid_link *up;		/* of p's dialler, with two lanes and two paths */
static uint8_t session[BRAID_KEY_SIZE] = { 9 };	/* of up */
static const uint8_t token[BRAID_KEY_SIZE] = { 1, 2, 3 };
static struct braid_params saved;
static const struct braid_os *standing;
static struct braid_os os;

/* --- what is around a dial ----------------------------------------------------------------- */

uint16_t __wrap_braid_listener_port(struct braid_dev *dev);
uint16_t __wrap_braid_listener_port(struct braid_dev *dev)
{
	return (uint16_t)(9000 + dev->index);
}

void __wrap_braid_why_dial(struct braid_link *l, const struct braid_conn *c, enum braid_dial_stage stage,
			   int err);
void __wrap_braid_why_dial(struct braid_link *l, const struct braid_conn *c, enum braid_dial_stage stage,
			   int err)
{
	(void)c;
	w.whys++;
	w.stage = stage;
	w.err = err;
	atomic_store(&l->state, BRAID_LINK_DEAD);
}

static int fails(int err)
{
	errno = err;
	return err ? -1 : 0;
}

static int os_socket(int family, int protocol)
{
	assert_int_equal(family, AF_INET);
	assert_int_equal(protocol, IPPROTO_TCP);
	return fails(w.socket_err) ? -1 : FD0 + (int)w.sockets++;
}

static int os_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	assert_int_equal(fd, FD0 + (int)w.sockets - 1);
	assert_int_equal(len, sizeof(w.from));
	memcpy(&w.from, sa, sizeof(w.from));
	w.binds++;
	if (w.free_port && ntohs(w.from.sin_port) != w.free_port)
		return fails(w.taken_err);
	return fails(w.bind_err);
}

static int os_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	assert_int_equal(fd, FD0 + (int)w.sockets - 1);
	assert_int_equal(len, sizeof(w.to));
	memcpy(&w.to, sa, sizeof(w.to));
	return fails(w.connect_err);
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	assert_int_equal(fd, FD0 + (int)w.sockets - 1);
	assert_int_equal(len, sizeof(int));
	if (level == IPPROTO_TCP && name == TCP_MAXSEG)
		memcpy(&w.segment, val, sizeof(w.segment));
	w.nodelay |= level == IPPROTO_TCP && name == TCP_NODELAY;
	w.late_port |= level == IPPROTO_IP && name == IP_BIND_ADDRESS_NO_PORT;
	return 0;
}

static int os_close(int fd)
{
	assert_true(fd >= FD0);
	w.closed++;
	return 0;
}

static int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	(void)ep, (void)fd;
	if (w.epoll_err && op == EPOLL_CTL_ADD) {
		errno = w.epoll_err;
		return -1;
	}
	if (ev)
		w.events = ev->events;
	return 0;
}

static int os_route(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
		    struct braid_route *ret)
{
	(void)from, (void)to, (void)ifindex, (void)ret;
	return -ENOSYS;				/* nothing is bound to an interface */
}

/* --- links --------------------------------------------------------------------------------- */

static union braid_netdev_addr at(const char *ip, uint16_t port)
{
	union braid_netdev_addr a = { .in = { .sin_family = AF_INET, .sin_port = htons(port) } };

	assert_int_equal(inet_pton(AF_INET, ip, &a.in.sin_addr), 1);
	return a;
}

/* The link to a listen at 10.1.0.2, which may be dialled for 60 s. */
static struct braid_link *to_dial(void)
{
	struct braid_link_key key = { .dev = &p.dev[0], .peer_dev = PEER_DEV, .traffic_class = 5 };
	struct braid_link *l = braid_link_new(&key);

	assert_non_null(l);
	l->dialler = true;
	l->dial.until_ns = null_now_ns + 60 * SEC;
	l->dial.target = (struct braid_handle){
		.least = BRAID_WIRE_LEAST, .most = BRAID_WIRE_MOST, .listen_id = LISTEN,
		.has4 = 1, .addr4 = { 10, 1, 0, 2 }, .port = PORT,
	};
	l->dial.token = memcpy(braid_secret_new(), token, sizeof(token));
	return l;
}

static void two_paths(void)
{
	up->npaths = 2;
	for (unsigned i = 0; i < 2; i++) {
		struct braid_path *path = &up->setup.path[i];

		path->dev = &p.dev[0];
		path->ways.n = 1;
		path->ways.way[0].pair = (struct braid_pair){
			.net = &p.dev[0].net, .from.addr = at("10.1.0.1", 0),
			.to = at(i ? "10.1.0.9" : "10.1.0.8", PORT),
		};
	}
}

static int setup(void **state)
{
	struct null_config config = { .held = true, .lanes = 2 };

	(void)state;
	memset(&w, 0, sizeof(w));
	w.connect_err = EINPROGRESS;
	saved = braid_param;
	braid_param.handshake_timeout = 5;
	braid_param.connect_timeout = 60;
	null_pair_init(&p, &config);
	null_now_ns += 1000 * SEC;
	standing = braid_os;
	os = *braid_os;
	os.socket = os_socket;
	os.bind = os_bind;
	os.connect = os_connect;
	os.setsockopt = os_setsockopt;
	os.close = os_close;
	os.epoll_ctl = os_epoll_ctl;
	os.route = os_route;
	braid_os = &os;
	p.dev[0].net.addr = at("10.1.0.1", 0);
	p.dev[0].net.prefix = 24;
	link = to_dial();
	up = p.end[0];
	up->setup.id = 0x1234;
	up->setup.session = session;
	two_paths();
	braid_svc_lock();
	braid_handshakes_init();
	return braid_auth_init();
}

static int teardown(void **state)
{
	(void)state;
	braid_handshakes_close();
	braid_svc_unlock();
	braid_os = standing;
	braid_link_free(link);
	null_pair_fini(&p);
	braid_param = saved;
	assert_int_equal(w.closed, w.sockets);
	return 0;
}

static struct braid_conn *dial(void)
{
	braid_dial_link(link, null_now_ns);
	return link->dial.conn;
}

/* The dial's handshake is over with that result. */
static void over(struct braid_conn *c, int err)
{
	c->owner->done(c, err, null_now_ns);
	braid_handshake_end(c);
}

static void assert_tries_on(void)
{
	assert_int_equal(w.whys, 0);
	assert_true(link->dial.at_ns > null_now_ns);
	assert_true(link->dial.at_ns < null_now_ns + SEC);
}

static void assert_gave_up(enum braid_dial_stage stage, int err)
{
	assert_int_equal(w.whys, 1);
	assert_int_equal(w.stage, stage);
	assert_int_equal(w.err, err);
}

/* --- a new link ---------------------------------------------------------------------------- */

static void a_dial_goes_from_our_address_to_the_listens(void **state)
{
	struct braid_conn *c = dial();
	union braid_netdev_addr from = at("10.1.0.1", 0), to = at("10.1.0.2", PORT);

	(void)state;
	assert_non_null(c);
	assert_memory_equal(&w.from, &from.in, sizeof(from.in));
	assert_memory_equal(&w.to, &to.in, sizeof(to.in));
	assert_true(w.nodelay && w.late_port);
	assert_int_equal(w.segment, 0);
	assert_int_equal(w.events, EPOLLOUT);
	assert_string_equal(c->addr, "10.1.0.2:4711");
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_DIALING);
}

static void with_a_range_it_goes_from_a_port_that_is_free(void **state)
{
	(void)state;
	strcpy(braid_param.port_range, "7001-7064");
	w.free_port = 7050;
	w.taken_err = EADDRINUSE;
	assert_non_null(dial());
	assert_int_equal(ntohs(w.from.sin_port), 7050);
	assert_false(w.late_port);
}

/* Within a host the peer may listen at the port that we would rather have. */
static void it_goes_from_a_port_of_the_range_whatever_the_peers_is(void **state)
{
	(void)state;
	strcpy(braid_param.port_range, "4711-4712");
	link->dial.target.addr4[3] = 1;		/* our own address */
	assert_int_equal(PORT, 4711);
	for (unsigned i = 0; i < 16; i++) {
		link->dial.base = (uint16_t)(i + 1);
		over(dial(), -ECONNREFUSED);
		assert_int_equal(ntohs(w.from.sin_port), 4712);
	}
}

static void a_range_without_a_free_port_is_named_at_once_and_tried_again(void **state)
{
	(void)state;
	warns_keep();
	strcpy(braid_param.port_range, "7001-7004");
	w.free_port = 1;
	w.taken_err = EACCES;			/* root's, for a user */
	assert_null(dial());
	assert_int_equal(w.binds, 1 + 4);	/* the one that it would rather have, and all */
	assert_tries_on();
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "BRAID_PORT_RANGE=7001-7004"));
	assert_non_null(strstr(warn_text, "[port-range]"));
	braid_log_to(NULL);
}

static void its_hello_names_the_listen_and_grants_a_window(void **state)
{
	struct braid_conn *c;

	(void)state;
	p.dev[0].index = 6;
	c = dial();
	assert_int_equal(c->mine.kind, BRAID_HELLO_LINK);
	assert_int_equal(c->mine.ident, LISTEN);
	assert_memory_equal(c->key, token, sizeof(token));
	assert_int_equal(c->mine.dev, 6);
	assert_int_equal(c->mine.peer_dev, PEER_DEV);
	assert_int_equal(c->mine.traffic_class, 5);
	assert_int_equal(c->mine.port, 9006);
	assert_int_equal(c->mine.window, braid_param.window);
	assert_ptr_equal(c->link, link);
	p.dev[0].index = 0;
}

static void it_may_take_as_long_as_a_handshake_or_as_its_caller_waits(void **state)
{
	struct braid_conn *c = dial();

	(void)state;
	assert_int_equal(c->deadline_ns, null_now_ns + 5 * SEC);
	null_now_ns += SEC;
	assert_int_equal(c->owner->ready(c), 0);	/* TCP has connected: the time begins anew */
	assert_int_equal(c->deadline_ns, null_now_ns + 5 * SEC);
	link->dial.until_ns = null_now_ns + 2 * SEC;
	assert_int_equal(c->owner->ready(c), 0);
	assert_int_equal(c->deadline_ns, null_now_ns + 2 * SEC);
	braid_handshake_end(c);
	assert_int_equal(dial()->deadline_ns, null_now_ns + 2 * SEC);
}

static void errors_of_this_host_are_repeated_unless_they_stay(void **state)
{
	static const struct {
		int *call, err, says;		/* says 0: tried again */
	} rows[] = {
		{ &w.socket_err, EMFILE, 0 }, { &w.socket_err, ENFILE, 0 },
		{ &w.socket_err, ENOMEM, ENOMEM }, { &w.bind_err, EADDRNOTAVAIL, 0 },
		{ &w.connect_err, ENETUNREACH, 0 }, { &w.connect_err, EACCES, 0 },
		{ &w.connect_err, ENOMEM, ENOMEM }, { &w.epoll_err, ENOSPC, 0 },
		{ &w.epoll_err, ENOMEM, ENOMEM },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		w.socket_err = w.bind_err = w.epoll_err = 0;
		w.whys = 0;
		w.connect_err = EINPROGRESS;
		*rows[i].call = rows[i].err;
		assert_null(dial());
		assert_int_equal(link->dial.err, -rows[i].err);
		assert_int_equal(link->dial.stage, BRAID_DIAL_HERE);
		assert_int_equal(w.closed, w.sockets);
		if (rows[i].says)
			assert_gave_up(BRAID_DIAL_HERE, -rows[i].says);
		else
			assert_tries_on();
	}
}

/* bind() has taken the address, so it is not the address that connect() misses. */
static void local_ports_that_run_out_are_no_missing_address(void **state)
{
	(void)state;
	w.connect_err = EADDRNOTAVAIL;
	assert_null(dial());
	assert_int_equal(link->dial.err, -EADDRINUSE);
	w.bind_err = EADDRNOTAVAIL;
	assert_null(dial());
	assert_int_equal(link->dial.err, -EADDRNOTAVAIL);
	assert_int_equal(warn_count, 0);	/* it may pass */
}

static void descriptors_that_run_out_are_reported_once(void **state)
{
	(void)state;
	null_now_ns += 3600 * SEC;		/* earlier cases had theirs */
	link->dial.until_ns = null_now_ns + 60 * SEC;
	w.socket_err = EMFILE;
	dial();
	dial();
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[no-descriptors]"));
}

static void a_peer_of_the_other_ip_version_is_given_up_at_once(void **state)
{
	(void)state;
	link->dial.target.has4 = 0;
	link->dial.target.has6 = 1;
	link->dial.target.addr6[0] = 0xfd;
	assert_null(dial());
	assert_gave_up(BRAID_DIAL_HERE, -EAFNOSUPPORT);
	assert_int_equal(w.sockets, 0);
}

static void a_refusal_is_final_after_half_a_second(void **state)
{
	(void)state;
	over(dial(), -ECONNREFUSED);
	assert_tries_on();
	null_now_ns += 499 * MS;
	over(dial(), -ECONNREFUSED);
	assert_tries_on();
	null_now_ns += MS;
	over(dial(), -ECONNREFUSED);
	assert_gave_up(BRAID_DIAL_TCP, -ECONNREFUSED);
}

/* As behind a NAT, where only the peer can dial. */
static void a_refused_dial_is_not_final_while_the_peer_reaches_us(void **state)
{
	(void)state;
	over(dial(), -ECONNREFUSED);
	null_now_ns += SEC;
	link->dial.crossed_ns = null_now_ns;
	over(dial(), -ECONNREFUSED);
	assert_tries_on();
}

/* The handshake failed after TCP had connected; `known`: the peer had shown the key. */
static void answer(int err, bool known)
{
	struct braid_conn *c = dial();

	assert_non_null(c);
	c->state = BRAID_CONN_RX_ANSWER;
	c->known = known;
	over(c, err);
}

static void an_answer_that_the_peer_would_repeat_is_final(void **state)
{
	static const int errs[] = { EPROTONOSUPPORT, EREMOTEIO, EPROTO, EACCES };

	(void)state;
	for (unsigned i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		w.whys = 0;
		answer(-errs[i], true);
		assert_gave_up(BRAID_DIAL_PEER, -errs[i]);
	}
}

static void an_answer_that_may_be_a_strangers_is_final_after_half_a_second(void **state)
{
	(void)state;
	answer(-EPROTO, false);
	assert_tries_on();
	null_now_ns += 500 * MS;
	answer(-EPROTO, false);
	assert_gave_up(BRAID_DIAL_PEER, -EPROTO);
}

/* Who knows the token and not the secret can make one on the path. */
static void a_refusal_for_another_secret_is_final_after_half_a_second(void **state)
{
	(void)state;
	answer(-EKEYREJECTED, false);
	assert_tries_on();
	null_now_ns += 500 * MS;
	answer(-EKEYREJECTED, false);
	assert_gave_up(BRAID_DIAL_PEER, -EKEYREJECTED);
}

static void a_dial_that_fails_temporarily_is_repeated(void **state)
{
	static const int errs[] = { ENOTCONN, ECONNRESET, ETIMEDOUT, EBADMSG, EPIPE };
	struct braid_conn *c;

	(void)state;
	for (unsigned i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		answer(-errs[i], false);
		assert_tries_on();
	}
	/* The peer is out of descriptors. */
	c = dial();
	c->state = BRAID_CONN_RX_ANSWERED;
	c->known = true;
	c->their_setup.err = EMFILE;
	over(c, -EREMOTEIO);
	assert_tries_on();
}

static void a_peer_that_dials_us_is_waited_for(void **state)
{
	struct braid_conn *c = dial();

	(void)state;
	c->state = BRAID_CONN_RX_ANSWER;
	c->known = true;
	c->theirs.status = BRAID_HELLO_CROSSED;
	over(c, -EREMOTEIO);
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_WAITING);
	assert_int_equal(link->dial.at_ns, null_now_ns + 500 * MS);
	assert_int_equal(w.whys, 0);
}

static void two_addresses(void)
{
	static const uint8_t second[4] = { 10, 1, 0, 3 };

	memcpy(link->dial.target.more4[0], second, sizeof(second));
}

/* The others lead to the same process, but perhaps only a stranger answers at this one. */
static void a_stranger_at_one_address_does_not_end_the_dial_of_the_others(void **state)
{
	(void)state;
	two_addresses();
	answer(-EPROTO, false);
	null_now_ns += 500 * MS;
	link->setup.path[0].ways.now = 0;
	answer(-EPROTO, false);			/* final here */
	assert_tries_on();
}

static void an_answer_with_the_key_counts_for_all_addresses(void **state)
{
	(void)state;
	two_addresses();
	answer(-EPROTONOSUPPORT, true);
	assert_gave_up(BRAID_DIAL_PEER, -EPROTONOSUPPORT);
}

static void the_last_dial_before_the_deadline_explains_less_than_the_one_before(void **state)
{
	(void)state;
	answer(-ECONNRESET, false);
	null_now_ns = link->dial.until_ns - 1;
	over(dial(), -ETIMEDOUT);
	assert_tries_on();
	assert_int_equal(link->dial.err, -ETIMEDOUT);
	answer(-ECONNRESET, false);
	null_now_ns = link->dial.until_ns;
	over(dial(), -ETIMEDOUT);
	assert_gave_up(BRAID_DIAL_PEER, -ECONNRESET);
}

static void a_link_that_is_up_or_dead_already_has_no_use_for_it(void **state)
{
	struct braid_conn *c = dial();

	(void)state;
	atomic_store(&link->state, BRAID_LINK_UP);	/* the peer's dial has made it */
	c->owner->done(c, -ENOMEM, null_now_ns);
	atomic_store(&link->state, BRAID_LINK_DEAD);
	over(c, -ENOMEM);
	assert_int_equal(w.whys, 0);
	assert_int_equal(link->dial.err, 0);
}

static void a_handshake_that_succeeds_brings_the_link_up(void **state)
{
	struct braid_conn *c = dial();

	(void)state;
	c->tr = &null_transport;
	c->theirs.lanes_max = 1;
	over(c, 0);
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_UP);
	assert_int_equal(link->nlanes, 1);
	w.closed++;				/* the lane has the socket, and null.h leaves it open */
}

/* --- lanes of a link that is up ------------------------------------------------------------ */

static void a_further_lane_is_dialled_in_the_links_name(void **state)
{
	struct braid_conn *c;

	(void)state;
	up->lane_count.dials = 7;
	assert_int_equal(braid_dial_lane(up, NULL, null_now_ns), 0);
	c = up->dial.conn;
	assert_non_null(c);
	assert_int_equal(c->mine.kind, BRAID_HELLO_LANE);
	assert_int_equal(c->mine.ident, 0x1234);
	assert_int_equal(c->mine.lane, 2);
	assert_int_equal(c->mine.epoch, 7);
	assert_int_equal(up->lane_count.dials, 8);	/* the next dial has another number */
	assert_memory_equal(c->key, session, sizeof(session));
	assert_int_equal(c->mine.window, 0);
	assert_int_equal(c->deadline_ns, null_now_ns + 5 * SEC);
	assert_int_equal(c->path, 0);			/* lane 2 of two paths */
	assert_int_equal(c->owner->ready(c), 0);
	assert_int_equal(c->deadline_ns, null_now_ns + 5 * SEC);
}

static void a_lane_that_comes_up_is_added_and_one_that_fails_waits(void **state)
{
	struct braid_conn *c;

	(void)state;
	assert_int_equal(braid_dial_lane(up, NULL, null_now_ns), 0);
	over(up->dial.conn, -ECONNRESET);
	assert_int_equal(up->nlanes, 2);
	assert_true(up->lane_count.dial_ns > null_now_ns);
	assert_int_equal(braid_dial_lane(up, NULL, null_now_ns), 0);
	c = up->dial.conn;
	c->tr = &null_transport;
	c->mine.lane = 2;
	over(c, 0);
	assert_int_equal(up->nlanes, 3);
	assert_int_equal(up->lane_count.dial_ns, null_now_ns);
	w.closed++;
}

static void a_lost_lane_gets_a_short_dial_with_a_new_number(void **state)
{
	struct braid_lane *lane = up->lane[1];
	struct braid_conn *c;

	(void)state;
	lane->recover.dialled = 4;
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	c = lane->recover.conn;
	assert_non_null(c);
	assert_ptr_equal(c->lane, lane);
	assert_null(up->dial.conn);
	assert_int_equal(c->mine.kind, BRAID_HELLO_LANE);
	assert_int_equal(c->mine.lane, 1);
	assert_int_equal(c->mine.epoch, 5);
	assert_int_equal(lane->recover.dialled, 5);
	assert_int_equal(c->deadline_ns, null_now_ns + 500 * MS);
	assert_int_equal(c->path, 1);
	assert_int_equal(w.segment, 0);
}

/* Perhaps large packets do not get through. */
static void one_that_is_lost_again_soon_gets_small_segments(void **state)
{
	struct braid_lane *lane = up->lane[1];

	(void)state;
	lane->recover.resumed_ns = null_now_ns - 10 * SEC;
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	assert_int_equal(w.segment, BRAID_SMALL_SEGMENT);
	braid_handshake_end(lane->recover.conn);
	w.segment = 0;
	null_now_ns++;
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	assert_int_equal(w.segment, 0);
}

static void a_lane_that_the_peer_closed_takes_another_path_once(void **state)
{
	struct braid_lane *lane = up->lane[1];

	(void)state;
	lane->recover.path = 1;
	atomic_store(&lane->loss.avoid_path, true);
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	assert_int_equal(lane->recover.conn->path, 0);
	braid_handshake_end(lane->recover.conn);
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	assert_int_equal(lane->recover.conn->path, 1);
	/* On the other path already: no need. */
	braid_handshake_end(lane->recover.conn);
	lane->recover.path = 0;
	atomic_store(&lane->loss.avoid_path, true);
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	assert_int_equal(lane->recover.conn->path, 1);
}

static void a_dial_of_a_lane_that_works_again_is_dropped(void **state)
{
	struct braid_lane *lane = up->lane[1];
	struct braid_conn *c;

	(void)state;
	lane->recover.path = 1;
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	c = lane->recover.conn;
	assert_int_equal(c->owner->ready(c), -EALREADY);
	assert_true(braid_lane_up(lane));
	/* It is still suspect: the old socket is closed, and the peer learns what came over it. */
	lane->loss.suspect_ns = null_now_ns;
	lane->rx_frames = 7;
	assert_int_equal(c->owner->ready(c), 0);
	assert_false(braid_lane_up(lane));
	assert_int_equal(c->mine.frames, 7);
}

/* The peer's hello says how often it has found changed data: each dial but the third goes on. */
static void a_dial_of_a_lane_on_which_the_peer_finds_changed_data_is_dropped(void **state)
{
	struct braid_lane *lane = up->lane[1];
	struct braid_conn *c;

	(void)state;
	lane->recover.path = 1;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
		c = lane->recover.conn;
		c->theirs.corrupt = i;
		assert_int_equal(c->owner->answered(c), i < 3 ? 0 : -EALREADY);
		assert_int_equal(c->owner->answered(c), 0);
		braid_handshake_end(c);
	}
	assert_non_null(strstr(warn_text, "it takes another path meanwhile [lane-left]"));
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	assert_int_equal(lane->recover.conn->path, 0);
}

static void a_lost_lane_that_comes_back_is_up_and_one_that_does_not_is_dialled_again(void **state)
{
	struct braid_lane *lane = up->lane[1];
	struct braid_conn *c;

	(void)state;
	up->npaths = 1;				/* there is no other to go to at once */
	null_transport.lane_close(lane);
	assert_int_equal(braid_lane_fence(lane), 0);
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	over(lane->recover.conn, -ECONNRESET);
	assert_false(braid_lane_up(lane));
	assert_true(lane->recover.dial_at_ns > null_now_ns);
	assert_int_equal(braid_dial_lane(up, lane, null_now_ns), 0);
	c = lane->recover.conn;
	c->tr = &null_transport;
	over(c, 0);
	assert_true(braid_lane_up(lane));
	assert_int_equal(lane->recover.dial_at_ns, 0);
	w.closed++;
}

static void an_error_here_is_returned_to_the_caller(void **state)
{
	(void)state;
	w.socket_err = EMFILE;
	assert_int_equal(braid_dial_lane(up, NULL, null_now_ns), -EMFILE);
	assert_int_equal(braid_dial_lane(up, up->lane[1], null_now_ns), -EMFILE);
	assert_int_equal(braid_dial_request(up, 0, null_now_ns), -EMFILE);
	assert_null(up->dial.conn);
	assert_null(up->lane[1]->recover.conn);
}

static void the_peer_is_asked_to_dial_in_homes_name(void **state)
{
	struct braid_conn *c;

	(void)state;
	up->lanes.home = 1;
	up->lane[1]->recover.dialled = 4;
	assert_int_equal(braid_dial_request(up, 0, null_now_ns), 0);
	c = up->dial.conn;
	assert_non_null(c);
	assert_int_equal(c->mine.kind, BRAID_HELLO_ALIVE);
	assert_int_equal(c->mine.ident, 0x1234);
	assert_int_equal(c->mine.lane, 1);
	assert_int_equal(c->mine.epoch, 4);		/* no dial of a lane: no new number */
	assert_int_equal(up->lane[1]->recover.dialled, 4);
	assert_int_equal(c->deadline_ns, null_now_ns + 500 * MS);
	over(c, 0);
	assert_true(up->recover.probe_ns > null_now_ns);
	assert_int_equal(up->nlanes, 2);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_dial_goes_from_our_address_to_the_listens),
		CASE(with_a_range_it_goes_from_a_port_that_is_free),
		CASE(it_goes_from_a_port_of_the_range_whatever_the_peers_is),
		CASE(a_range_without_a_free_port_is_named_at_once_and_tried_again),
		CASE(its_hello_names_the_listen_and_grants_a_window),
		CASE(it_may_take_as_long_as_a_handshake_or_as_its_caller_waits),
		CASE(errors_of_this_host_are_repeated_unless_they_stay),
		CASE(local_ports_that_run_out_are_no_missing_address),
		CASE(descriptors_that_run_out_are_reported_once),
		CASE(a_peer_of_the_other_ip_version_is_given_up_at_once),
		CASE(a_refusal_is_final_after_half_a_second),
		CASE(a_refused_dial_is_not_final_while_the_peer_reaches_us),
		CASE(an_answer_that_the_peer_would_repeat_is_final),
		CASE(an_answer_that_may_be_a_strangers_is_final_after_half_a_second),
		CASE(a_refusal_for_another_secret_is_final_after_half_a_second),
		CASE(a_dial_that_fails_temporarily_is_repeated),
		CASE(a_peer_that_dials_us_is_waited_for),
		CASE(a_stranger_at_one_address_does_not_end_the_dial_of_the_others),
		CASE(an_answer_with_the_key_counts_for_all_addresses),
		CASE(the_last_dial_before_the_deadline_explains_less_than_the_one_before),
		CASE(a_link_that_is_up_or_dead_already_has_no_use_for_it),
		CASE(a_handshake_that_succeeds_brings_the_link_up),
		CASE(a_further_lane_is_dialled_in_the_links_name),
		CASE(a_lane_that_comes_up_is_added_and_one_that_fails_waits),
		CASE(a_lost_lane_gets_a_short_dial_with_a_new_number),
		CASE(one_that_is_lost_again_soon_gets_small_segments),
		CASE(a_lane_that_the_peer_closed_takes_another_path_once),
		CASE(a_dial_of_a_lane_that_works_again_is_dropped),
		CASE(a_dial_of_a_lane_on_which_the_peer_finds_changed_data_is_dropped),
		CASE(a_lost_lane_that_comes_back_is_up_and_one_that_does_not_is_dialled_again),
		CASE(an_error_here_is_returned_to_the_caller),
		CASE(the_peer_is_asked_to_dial_in_homes_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
