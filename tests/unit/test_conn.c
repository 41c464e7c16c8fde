/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_conn.c - the handshake: both roles against each other, and against hostile peers.
 *
 * Sockets are two queues of bytes behind a fake braid_os, which can limit the bytes of a call,
 * interrupt calls, and end a stream after some bytes.  Two functions here replace the tables that
 * accept.c reads, so a case chooses what the accepting end finds.  BRAID_TEST_FORGERIES=N forges N.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/os.h"
#include "core/base/self.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"
#include "tests/lib/null.h"

enum { PIPE_MAX = 4096, DIALLER = 0, ACCEPTER = 1, EITHER = -1 };

struct braid_self braid_self;		/* instead of self.c's */

static struct {
	struct {			/* indexed by the end that writes */
		uint8_t buf[PIPE_MAX];
		size_t n, read;
		size_t total;		/* ever written */
		bool ended, closed;	/* end of the stream; the end has closed its socket */
		unsigned calls;
	} pipe[2];
	size_t bite;			/* bytes that a call moves at most; 0: any number */
	unsigned interrupt;		/* each `interrupt`-th call fails with EINTR; 0: none */
	int so_error, recv_error;

	uint8_t token[BRAID_KEY_SIZE];
	int find_err;
	uint8_t status, admit_status;
	unsigned finds, admits;
	uint64_t found;
	struct braid_conn c[2];
	uint8_t seed;

	/* The fake transport's set-up, per end: calls that a step needs; calls of it so far. */
	unsigned lazy[2], asked[2];
	unsigned made[2], dropped;
} w;
static uint32_t life;			/* number of this handshake, in its nonces */

/* --- the fake socket ----------------------------------------------------------------------- */

static bool stingy(int fd, size_t *n)
{
	unsigned calls = ++w.pipe[fd].calls;

	if (w.interrupt && calls % w.interrupt == 0) {
		errno = EINTR;
		return true;
	}
	/* Some calls move `bite` bytes, others nothing, so that steps end at any byte. */
	if (w.bite && *n > w.bite)
		*n = calls / 2 & 1 ? w.bite : 0;
	return false;
}

static ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	size_t n = msg->msg_iov[0].iov_len;

	assert_true(flags & MSG_NOSIGNAL);
	assert_true(flags & MSG_DONTWAIT);
	if (stingy(fd, &n))
		return -1;
	if (w.pipe[!fd].closed) {
		errno = EPIPE;
		return -1;
	}
	if (!n) {
		errno = EAGAIN;
		return -1;
	}
	assert_true(w.pipe[fd].n + n <= PIPE_MAX);
	memcpy(w.pipe[fd].buf + w.pipe[fd].n, msg->msg_iov[0].iov_base, n);
	w.pipe[fd].n += n;
	w.pipe[fd].total += n;
	return (ssize_t)n;
}

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	size_t have = w.pipe[!fd].n - w.pipe[!fd].read, n = msg->msg_iov[0].iov_len;

	assert_true(flags & MSG_DONTWAIT);
	assert_true(n > 0);
	if (w.recv_error) {
		errno = w.recv_error;
		return -1;
	}
	if (n > have)
		n = have;
	if (!n && (w.pipe[!fd].closed || w.pipe[!fd].ended))
		return 0;
	if (stingy(fd, &n))
		return -1;
	if (!n) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(msg->msg_iov[0].iov_base, w.pipe[!fd].buf + w.pipe[!fd].read, n);
	w.pipe[!fd].read += n;
	return (ssize_t)n;
}

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	assert_int_equal(flags, MSG_DONTWAIT | MSG_PEEK);
	assert_int_equal(len, 1);
	(void)buf;
	if (w.pipe[!fd].n > w.pipe[!fd].read)
		return 1;
	errno = EAGAIN;
	return w.pipe[!fd].closed || w.pipe[!fd].ended ? 0 : -1;
}

static int os_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	(void)fd;
	assert_int_equal(level, SOL_SOCKET);
	assert_int_equal(name, SO_ERROR);
	assert_int_equal(*len, sizeof(int));
	memcpy(val, &w.so_error, sizeof(w.so_error));
	return 0;
}

static int os_random(void *buf, size_t len)
{
	memset(buf, ++w.seed, len);
	if (len >= 8)
		memcpy((uint8_t *)buf + 4, &life, sizeof(life));
	return 0;
}

static const struct braid_os fake = {
	.random = os_random, .sendmsg = os_sendmsg, .recvmsg = os_recvmsg, .recv = os_recv,
	.getsockopt = os_getsockopt,
};

/* --- a transport with a set-up ------------------------------------------------------------- */

static int more_takes(const struct braid_setup *s)
{
	int end = s->dialler ? DIALLER : ACCEPTER;

	if (w.asked[end]++ < w.lazy[end])
		return -EAGAIN;
	w.asked[end] = 0;
	return 0;
}

static int more_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	s->priv = &w;
	assert_true(s->dialler == !theirs);
	if (more_takes(s))
		return -EAGAIN;
	memset(mine, s->dialler ? 'd' : 'a', BRAID_BLOB_SIZE);
	assert_true(s->dialler || theirs[0] == 'd');
	w.made[!s->dialler]++;
	return 0;
}

static int more_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	assert_true(s->dialler && s->priv && theirs[0] == 'a');
	return 0;
}

static int more_setup_ready(struct braid_setup *s)
{
	assert_non_null(s->priv);
	return more_takes(s);
}

static void more_setup_drop(struct braid_setup *s)
{
	assert_non_null(s->priv);
	w.dropped++;
}

static const struct braid_transport more = {
	.name = "more", .id = BRAID_TRANSPORT_UCX, .blob = true, .setup = more_setup,
	.setup_peer = more_setup_peer, .setup_ready = more_setup_ready,
	.setup_drop = more_setup_drop,
};

/* --- the accepting end's tables ------------------------------------------------------------ */

static int owner_find(struct braid_conn *c)
{
	w.finds++;
	w.found = c->theirs.ident;
	if (w.find_err)
		return w.find_err;
	c->mine.kind = c->theirs.kind;
	c->mine.status = w.status;
	c->mine.lanes_max = 4;
	memcpy(c->mine.transports, w.c[DIALLER].mine.transports, sizeof(c->mine.transports));
	memcpy(c->key, w.token, sizeof(w.token));
	return 0;
}

static int owner_ready(struct braid_conn *c)
{
	(void)c;
	return 0;
}

static const struct braid_transport tcp = { .name = "tcp", .id = BRAID_TRANSPORT_TCP };
static const struct braid_transport *const both[] = { &tcp, &more, NULL };

static void owner_setup(struct braid_conn *c)
{
	c->setup.dialler = c->dialler;
}

static int owner_admit(struct braid_conn *c)
{
	w.admits++;
	assert_true(c->known);
	c->mine.status = w.admit_status;
	c->mine.ident = 0x5555;
	return 0;
}

static const struct braid_conn_owner owner = {
	.find = owner_find, .admit = owner_admit, .ready = owner_ready, .setup = owner_setup,
};

/* --- two ends ------------------------------------------------------------------------------ */

static void be(const char *host, uint8_t id)
{
	memset(&braid_self, 0, sizeof(braid_self));
	memset(braid_self.process, id, sizeof(braid_self.process));
	strcpy(braid_self.host, host);
	braid_self.pid = id;
}

static void meet(void)
{
	memset(&w, 0, sizeof(w));
	for (unsigned i = 0; i < sizeof(w.token); i++)
		w.token[i] = (uint8_t)(i + 1);
	be("dialler", 1);
	braid_conn_init(&w.c[DIALLER], DIALLER, true, &owner);
	w.c[DIALLER].mine.kind = BRAID_HELLO_LINK;
	w.c[DIALLER].mine.lanes_max = 8;
	w.c[DIALLER].mine.transports[0] = BRAID_TRANSPORT_TCP;
	w.c[DIALLER].mine.ident = 0x1234;
	w.c[DIALLER].mine.window = 524288;
	memcpy(w.c[DIALLER].key, w.token, sizeof(w.token));
	be("accepter", 2);
	braid_conn_init(&w.c[ACCEPTER], ACCEPTER, false, &owner);
}

static int setup(void **state)
{
	(void)state;
	braid_os = &fake;
	braid_transports_use(both);
	life = 0;
	meet();
	return braid_auth_init();
}

static int step(int end)
{
	uint32_t events = 0;
	int err = braid_conn_step(&w.c[end], &events);

	if (err == -EAGAIN)
		assert_true(events == EPOLLIN || events == EPOLLOUT ||
			    (!events && braid_conn_polls(&w.c[end])));
	else
		assert_int_equal(events, 0);
	return err;
}

struct verdict {
	int err[2];
};

/* Steps both ends until neither can go on; an end that fails closes its socket. */
static struct verdict shake(void)
{
	struct verdict v = { { -EAGAIN, -EAGAIN } };

	for (unsigned still = 0; still < 8; still++) {
		size_t before = w.pipe[0].total + w.pipe[1].total + w.pipe[0].read + w.pipe[1].read;

		for (int i = 0; i < 2; i++) {
			if (v.err[i] == -EAGAIN)
				v.err[i] = step(i);
			if (v.err[i] && v.err[i] != -EAGAIN)
				w.pipe[i].closed = true;
		}
		if (before != w.pipe[0].total + w.pipe[1].total + w.pipe[0].read + w.pipe[1].read)
			still = 0;
	}
	return v;
}

static void assert_up(void)
{
	uint8_t session[2][BRAID_KEY_SIZE];

	assert_int_equal(w.c[DIALLER].state, BRAID_CONN_UP);
	assert_int_equal(w.c[ACCEPTER].state, BRAID_CONN_UP);
	braid_conn_session(&w.c[DIALLER], session[0]);
	braid_conn_session(&w.c[ACCEPTER], session[1]);
	assert_memory_equal(session[0], session[1], BRAID_KEY_SIZE);
	assert_memory_not_equal(session[0], w.token, BRAID_KEY_SIZE);
	assert_true(w.c[DIALLER].known && w.c[ACCEPTER].known);
}

/* --- handshakes that succeed --------------------------------------------------------------- */

static void both_ends_come_up_and_know_each_other(void **state)
{
	struct verdict v = shake();

	(void)state;
	assert_int_equal(v.err[DIALLER], 0);
	assert_int_equal(v.err[ACCEPTER], 0);
	assert_up();
	assert_int_equal(w.finds, 1);
	assert_int_equal(w.admits, 1);
	assert_int_equal(w.found, 0x1234);
	assert_string_equal(w.c[DIALLER].theirs.host, "accepter");
	assert_string_equal(w.c[ACCEPTER].theirs.host, "dialler");
	assert_int_equal(w.c[DIALLER].theirs.pid, 2);
	assert_int_equal(w.c[ACCEPTER].theirs.process[15], 1);
	assert_int_equal(w.c[DIALLER].theirs.ident, 0x5555);
	assert_int_equal(w.c[DIALLER].theirs.lanes_max, 4);
	assert_int_equal(w.c[ACCEPTER].theirs.window, 524288);
	assert_int_equal(w.pipe[DIALLER].total, BRAID_HELLO_SIZE + BRAID_PROOF_SIZE);
	assert_int_equal(w.pipe[ACCEPTER].total, BRAID_HELLO_SIZE);
}

static void one_byte_at_a_time_does_as_well(void **state)
{
	(void)state;
	for (size_t bite = 1; bite < 300; bite += 1 + bite / 8) {
		for (unsigned interrupt = 0; interrupt < 5; interrupt++) {
			struct verdict v;

			meet();
			w.bite = bite;
			w.interrupt = interrupt == 1 ? 0 : interrupt;
			v = shake();
			assert_int_equal(v.err[DIALLER], 0);
			assert_int_equal(v.err[ACCEPTER], 0);
			assert_up();
			assert_int_equal(w.finds, 1);
		}
	}
}

static void bytes_behind_the_handshake_stay_in_the_socket(void **state)
{
	struct verdict v;

	(void)state;
	step(DIALLER);
	step(ACCEPTER);
	assert_int_equal(step(DIALLER), 0);
	memcpy(w.pipe[DIALLER].buf + w.pipe[DIALLER].n, "frames", 6);
	w.pipe[DIALLER].n += 6;
	v = shake();
	assert_int_equal(v.err[ACCEPTER], 0);
	assert_int_equal(w.pipe[DIALLER].n - w.pipe[DIALLER].read, 6);
}

static void every_handshake_has_a_session_of_its_own(void **state)
{
	uint8_t one[BRAID_KEY_SIZE], two[BRAID_KEY_SIZE];

	(void)state;
	shake();
	braid_conn_session(&w.c[DIALLER], one);
	life = 1;				/* other nonces, everything else the same */
	meet();
	shake();
	assert_up();
	braid_conn_session(&w.c[DIALLER], two);
	assert_memory_not_equal(one, two, sizeof(one));
}

/* A peer of wire version 1: what it sends as a nonce is no public key. */
static void older_peers_meet_without_an_exchange(void **state)
{
	uint8_t old[BRAID_KEY_SIZE], session[BRAID_KEY_SIZE];

	(void)state;
	for (int end = 0; end < 2; end++) {
		meet();
		w.c[end].mine.most = 1;
		shake();
		assert_up();
		assert_int_equal(w.c[DIALLER].version, 1);
		assert_int_equal(w.c[ACCEPTER].version, 1);
		braid_auth_session(w.token, w.c[0].m1, w.c[0].m2, old);
		braid_conn_session(&w.c[DIALLER], session);
		assert_memory_equal(session, old, sizeof(old));
	}
}

/* The token and both hellos, which a tap can read, do not give the session. */
static void a_token_and_a_tap_do_not_give_the_session(void **state)
{
	uint8_t guess[BRAID_KEY_SIZE], key[BRAID_KEY_SIZE], session[BRAID_KEY_SIZE];

	(void)state;
	shake();
	assert_up();
	assert_int_equal(w.c[DIALLER].version, 2);
	braid_conn_session(&w.c[DIALLER], session);
	braid_auth_session(w.token, w.c[0].m1, w.c[0].m2, guess);
	assert_memory_not_equal(guess, session, sizeof(session));
	for (int end = 0; end < 2; end++) {	/* with one of the secrets, the formula of auth.h */
		memcpy(key, w.token, sizeof(key));
		assert_int_equal(braid_auth_exchange(w.c[end].secret, w.c[!end].mine.nonce, key), 0);
		braid_auth_session(key, w.c[0].m1, w.c[0].m2, guess);
		assert_memory_equal(guess, session, sizeof(session));
	}
}

/* --- handshakes that fail ------------------------------------------------------------------ */

/* The stream from `end` stops for good after n bytes. */
static struct verdict cut_after(int end, size_t n)
{
	struct verdict v = { { -EAGAIN, -EAGAIN } };

	for (unsigned i = 0; i < 20000 && (v.err[0] == -EAGAIN || v.err[1] == -EAGAIN); i++) {
		int who = (int)(i & 1);

		if (v.err[who] != -EAGAIN)
			continue;
		v.err[who] = step(who);
		if (v.err[who] && v.err[who] != -EAGAIN)
			w.pipe[who].closed = true;
		if (w.pipe[end].total >= n) {
			w.pipe[end].n -= w.pipe[end].total - n;
			w.pipe[end].total = n;
			w.pipe[end].ended = true;
			v.err[end] = v.err[end] == -EAGAIN ? -ECANCELED : v.err[end];
		}
	}
	return v;
}

static void a_stream_cut_at_any_byte_is_an_end_and_nothing_else(void **state)
{
	(void)state;
	for (size_t n = 0; n < BRAID_HELLO_SIZE + BRAID_PROOF_SIZE; n++) {
		struct verdict v;

		meet();
		w.bite = 1;
		v = cut_after(DIALLER, n);
		assert_int_equal(v.err[ACCEPTER], -ENOTCONN);
		if (n >= BRAID_HELLO_SIZE) {
			assert_int_equal(w.pipe[ACCEPTER].total,
					 n > BRAID_HELLO_SIZE ? BRAID_HELLO_SIZE : 0);
			continue;
		}
		assert_int_equal(w.pipe[ACCEPTER].total, 0);
		meet();
		w.bite = 1;
		v = cut_after(ACCEPTER, n);
		assert_int_equal(v.err[DIALLER], -ENOTCONN);
		assert_int_not_equal(w.c[DIALLER].state, BRAID_CONN_UP);
	}
}

static void a_handshake_returns_the_sockets_own_error(void **state)
{
	(void)state;
	w.so_error = ECONNREFUSED;
	assert_int_equal(step(DIALLER), -ECONNREFUSED);
	assert_int_equal(w.pipe[DIALLER].total, 0);
	meet();
	w.recv_error = ECONNRESET;
	assert_int_equal(step(DIALLER), -ECONNRESET);
	assert_int_equal(step(ACCEPTER), -ECONNRESET);
	meet();
	w.pipe[ACCEPTER].closed = true;
	assert_int_equal(step(DIALLER), -EPIPE);
}

static void a_stranger_is_known_by_its_first_eight_bytes_and_gets_no_answer(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

	(void)state;
	for (size_t n = 1; n < sizeof(http); n++) {
		meet();
		memcpy(w.pipe[DIALLER].buf, http, n);
		w.pipe[DIALLER].n = n;
		assert_int_equal(step(ACCEPTER), n < 8 ? -EAGAIN : -EPROTO);
		assert_int_equal(w.pipe[ACCEPTER].total, 0);
		assert_int_equal(w.finds, 0);
	}
	meet();				/* the same where we dialled */
	memcpy(w.pipe[ACCEPTER].buf, http, 20);
	w.pipe[ACCEPTER].n = 20;
	assert_int_equal(step(DIALLER), -EPROTO);
}

static void versions_that_do_not_meet_are_named_at_both_ends(void **state)
{
	struct verdict v;

	(void)state;
	w.c[DIALLER].mine.least = 3;	/* a newer dialler */
	w.c[DIALLER].mine.most = 5;
	v = shake();
	assert_int_equal(v.err[ACCEPTER], -EPROTONOSUPPORT);
	assert_int_equal(w.c[ACCEPTER].theirs.least, 3);
	assert_int_equal(w.c[ACCEPTER].theirs.most, 5);
	assert_int_equal(v.err[DIALLER], -EPROTONOSUPPORT);
	assert_int_equal(w.c[DIALLER].theirs.least, BRAID_WIRE_LEAST);
	assert_int_equal(w.c[DIALLER].theirs.most, BRAID_WIRE_MOST);
	assert_int_equal(w.finds, 0);

	meet();				/* a newer accepter */
	w.c[ACCEPTER].mine.least = 7;
	w.c[ACCEPTER].mine.most = 9;
	v = shake();
	assert_int_equal(v.err[DIALLER], -EPROTONOSUPPORT);
	assert_int_equal(w.c[DIALLER].theirs.least, 7);
	assert_int_equal(w.c[DIALLER].theirs.most, 9);
	assert_int_not_equal(v.err[ACCEPTER], 0);
}

/* The handle, or the link that a lane is for, says what the peer speaks. */
static void a_peer_that_pretends_to_be_older_is_refused(void **state)
{
	struct verdict v;

	(void)state;
	for (int end = 0; end < 2; end++) {
		meet();
		w.c[!end].must_be = 2;
		w.c[end].mine.most = 1;
		v = shake();
		assert_int_equal(v.err[!end], -EACCES);
		assert_int_not_equal(v.err[end], 0);
		assert_false(w.c[!end].known);
	}
}

/* An X25519 key of small order would make the same secret for everyone. */
static void a_public_key_of_small_order_is_refused(void **state)
{
	(void)state;
	step(DIALLER);
	memset(w.c[DIALLER].m1 + 56, 0, BRAID_NONCE_SIZE);
	braid_auth_hello(w.token, w.c[DIALLER].m1, w.c[DIALLER].m1 + BRAID_HELLO_SIGNED);
	memcpy(w.pipe[DIALLER].buf, w.c[DIALLER].m1, BRAID_HELLO_SIZE);
	assert_int_equal(step(ACCEPTER), -EACCES);
}

static void a_wrong_key_is_refused_without_an_answer(void **state)
{
	struct verdict v;

	(void)state;
	w.c[DIALLER].key[31] ^= 1;
	v = shake();
	assert_int_equal(v.err[ACCEPTER], -EACCES);
	assert_false(w.c[ACCEPTER].known);
	assert_int_equal(w.admits, 0);
	assert_int_equal(w.pipe[ACCEPTER].total, 0);
	assert_int_equal(v.err[DIALLER], -ENOTCONN);

	meet();
	w.find_err = -EACCES;
	v = shake();
	assert_int_equal(v.err[ACCEPTER], -EACCES);
	assert_int_equal(w.pipe[ACCEPTER].total, 0);
}

static void a_refusal_has_a_reason(void **state)
{
	static const struct {
		uint8_t status;
		bool known;		/* the refusal comes from an end with the key */
	} rows[] = {
		{ BRAID_HELLO_NO_LISTEN, false },
		{ BRAID_HELLO_NO_LINK, false },
		{ BRAID_HELLO_NO_LINK, true },
		{ BRAID_HELLO_CROSSED, true },
		{ BRAID_HELLO_NO_TRANSPORT, true },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct verdict v;

		meet();
		w.status = rows[i].known ? BRAID_HELLO_OK : rows[i].status;
		w.admit_status = rows[i].status;
		v = shake();
		assert_int_equal(v.err[DIALLER], -EREMOTEIO);
		assert_int_equal(w.c[DIALLER].theirs.status, rows[i].status);
		assert_int_equal(v.err[ACCEPTER], -EREMOTEIO);
		assert_int_equal(w.admits, rows[i].known);
	}
}

/* CROSSED makes the dialler wait, NO_TRANSPORT makes it give up: both must be signed with the key. */
static void what_changes_our_course_must_be_signed(void **state)
{
	(void)state;
	for (uint8_t status = BRAID_HELLO_CROSSED; status < BRAID_HELLO_STATUS_MAX; status++) {
		if (status == BRAID_HELLO_NO_LISTEN || status == BRAID_HELLO_NO_LINK)
			continue;
		meet();
		w.admit_status = status;
		assert_int_equal(step(DIALLER), -EAGAIN);
		step(ACCEPTER);
		w.pipe[ACCEPTER].buf[255] ^= 1;
		assert_int_equal(step(DIALLER), -EACCES);
	}
}

static void any_bit_flipped_on_the_way_keeps_the_link_down(void **state)
{
	size_t hello = BRAID_HELLO_SIZE * 8, proof = BRAID_PROOF_SIZE * 8;

	(void)state;
	for (size_t bit = 0; bit < hello; bit++) {		/* of M1 */
		meet();
		assert_int_equal(step(DIALLER), -EAGAIN);
		w.pipe[DIALLER].buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		shake();
		assert_int_not_equal(w.c[ACCEPTER].state, BRAID_CONN_UP);
		assert_int_not_equal(w.c[DIALLER].state, BRAID_CONN_UP);
		assert_int_equal(w.admits, 0);
	}
	for (size_t bit = 0; bit < hello; bit++) {		/* of M2 */
		struct verdict v;

		meet();
		step(DIALLER);
		assert_int_equal(step(ACCEPTER), -EAGAIN);
		w.pipe[ACCEPTER].buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		v = shake();
		assert_int_not_equal(w.c[DIALLER].state, BRAID_CONN_UP);
		assert_int_not_equal(w.c[ACCEPTER].state, BRAID_CONN_UP);
		assert_true(v.err[DIALLER] < 0 && v.err[DIALLER] != -EAGAIN);
	}
	for (size_t bit = 0; bit < 8 * (8 + BRAID_MAC_SIZE); bit++) {	/* of the proof */
		struct verdict v;

		meet();
		step(DIALLER);
		step(ACCEPTER);
		assert_int_equal(step(DIALLER), 0);
		w.pipe[DIALLER].buf[BRAID_HELLO_SIZE + bit / 8] ^= (uint8_t)(1u << bit % 8);
		v = shake();
		assert_int_equal(v.err[ACCEPTER], -EACCES);
	}
	assert_true(proof > 8 * (8 + BRAID_MAC_SIZE));	/* what is behind the MAC is reserved */
}

static void a_reflected_hello_is_no_answer(void **state)
{
	(void)state;
	assert_int_equal(step(DIALLER), -EAGAIN);
	memcpy(w.pipe[ACCEPTER].buf, w.pipe[DIALLER].buf, BRAID_HELLO_SIZE);
	w.pipe[ACCEPTER].n = BRAID_HELLO_SIZE;
	assert_int_equal(step(DIALLER), -EACCES);
}

static void a_recorded_handshake_does_not_work_again(void **state)
{
	uint8_t hello[BRAID_HELLO_SIZE], answer[BRAID_HELLO_SIZE], proof[BRAID_PROOF_SIZE];

	(void)state;
	shake();
	memcpy(hello, w.pipe[DIALLER].buf, sizeof(hello));
	memcpy(answer, w.pipe[ACCEPTER].buf, sizeof(answer));
	memcpy(proof, w.pipe[DIALLER].buf + sizeof(hello), sizeof(proof));

	life = 1;
	meet();				/* to the accepter, whose nonce is new */
	memcpy(w.pipe[DIALLER].buf, hello, sizeof(hello));
	memcpy(w.pipe[DIALLER].buf + sizeof(hello), proof, sizeof(proof));
	w.pipe[DIALLER].n = sizeof(hello) + sizeof(proof);
	assert_int_equal(step(ACCEPTER), -EACCES);
	assert_int_equal(w.admits, 1);

	meet();				/* to the dialler, whose nonce is new, too */
	memcpy(w.pipe[ACCEPTER].buf, answer, sizeof(answer));
	w.pipe[ACCEPTER].n = sizeof(answer);
	assert_int_equal(step(DIALLER), -EACCES);
}

static uint8_t old[16][3][BRAID_HELLO_SIZE];	/* M1, M2 and proof of handshakes, as they crossed */

#define CROSSING(which) (w.pipe[(which) == 1].buf + ((which) == 2 ? BRAID_HELLO_SIZE : 0))

/* Change a bit, replay what another handshake had, reflect the other end's message, or make one up. */
static void forge(unsigned which, struct null_rnd *r)
{
	size_t len = which == 2 ? 8 + BRAID_MAC_SIZE : BRAID_HELLO_SIZE;
	uint8_t *p = CROSSING(which);

	switch (null_rnd(r) % 4) {
	case 0:
		p[null_rnd(r) % len] ^= (uint8_t)(1u << null_rnd(r) % 8);
		break;
	case 1:
		memcpy(p, old[null_rnd(r) % 16][which], len);
		break;
	case 2:
		if (which == 2)
			memcpy(p + 8, w.c[ACCEPTER].m2 + BRAID_HELLO_SIGNED, BRAID_MAC_SIZE);
		else
			memcpy(p, which ? CROSSING(0) : old[null_rnd(r) % 16][1], len);
		break;
	default:
		for (size_t i = 8; i < len; i++)	/* behind the magic word */
			p[i] = (uint8_t)null_rnd(r);
	}
}

static void no_handshake_with_a_forged_message_comes_up(void **state)
{
	const char *text = getenv("BRAID_TEST_FORGERIES");
	uint32_t n = text ? (uint32_t)strtoul(text, NULL, 10) : 3000;
	struct null_rnd r = { 26 };

	(void)state;
	for (life = 1; life <= n + 16; life++) {
		unsigned which = (unsigned)null_rnd(&r) % 3;

		meet();
		for (unsigned i = 0; life > 16 && i <= which; i++)
			step(i == 1 ? ACCEPTER : DIALLER);
		if (life > 16)
			forge(which, &r);
		shake();
		assert_int_equal(w.c[ACCEPTER].state == BRAID_CONN_UP, life <= 16);
		assert_true(w.c[DIALLER].state != BRAID_CONN_UP || life <= 16 || which == 2);
		for (unsigned i = 0; life <= 16 && i < 3; i++)
			memcpy(old[life - 1][i], CROSSING(i), i == 2 ? BRAID_PROOF_SIZE : BRAID_HELLO_SIZE);
		for (unsigned i = 0; i < 2; i++)
			braid_conn_forget_keys(&w.c[i]);
	}
}

/* A man in the middle has no key, only M1 and the accepter's own messages: no proof follows from them. */
static void an_answer_is_no_proof(void **state)
{
	uint8_t *p;

	(void)state;
	step(DIALLER);
	assert_int_equal(step(ACCEPTER), -EAGAIN);
	p = w.pipe[DIALLER].buf + w.pipe[DIALLER].n;
	memcpy(p, "!BRPROOF", 8);
	memcpy(p + 8, w.c[ACCEPTER].m2 + BRAID_HELLO_SIGNED, BRAID_MAC_SIZE);
	memset(p + 8 + BRAID_MAC_SIZE, 0, BRAID_PROOF_SIZE - 8 - BRAID_MAC_SIZE);
	w.pipe[DIALLER].n += BRAID_PROOF_SIZE;
	assert_int_equal(step(ACCEPTER), -EACCES);
}

static void no_end_comes_up_twice(void **state)
{
	(void)state;
	shake();
	assert_int_equal(step(DIALLER), 0);
	assert_int_equal(step(ACCEPTER), 0);
	assert_up();
}

/* --- a set-up that takes its time ---------------------------------------------------------- */

static void prefer_more(unsigned lazy_dialler, unsigned lazy_accepter)
{
	w.c[DIALLER].mine.transports[0] = BRAID_TRANSPORT_UCX;
	w.c[DIALLER].mine.transports[1] = BRAID_TRANSPORT_TCP;
	w.lazy[DIALLER] = lazy_dialler;
	w.lazy[ACCEPTER] = lazy_accepter;
}

static void both_ends_wait_for_what_is_being_made(void **state)
{
	(void)state;
	for (unsigned lazy = 0; lazy < 4; lazy++) {
		struct verdict v;

		meet();
		prefer_more(lazy, 3 - lazy);
		v = shake();
		assert_int_equal(v.err[DIALLER], 0);
		assert_int_equal(v.err[ACCEPTER], 0);
		assert_up();
		assert_ptr_equal(w.c[DIALLER].tr, &more);
		assert_ptr_equal(w.c[ACCEPTER].tr, &more);
		assert_int_equal(w.made[DIALLER], 1);
		assert_int_equal(w.made[ACCEPTER], 1);
		assert_int_equal(w.dropped, 0);
	}
}

/* Leave `end` in the middle of a transport set-up that never completes. */
static void shake_until_making(int end)
{
	prefer_more(end == DIALLER ? UINT32_MAX : 0, end == ACCEPTER ? UINT32_MAX : 0);
	shake();
	assert_true(w.c[end].making);
}

static void what_is_not_made_in_time_is_dropped_and_the_socket_will_do(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		struct verdict v;

		meet();
		shake_until_making(end);
		w.c[end].mine_setup.err = ETIMEDOUT;	/* as handshake.c does */
		v = shake();
		assert_int_equal(v.err[DIALLER], 0);
		assert_int_equal(v.err[ACCEPTER], 0);
		assert_up();
		assert_string_equal(w.c[DIALLER].tr->name, "tcp");
		assert_string_equal(w.c[ACCEPTER].tr->name, "tcp");
		assert_int_equal(w.c[!end].their_setup.err, ETIMEDOUT);
		assert_int_equal(w.dropped, end == ACCEPTER ? 2 : 1);
	}
}

static void a_peer_that_goes_meanwhile_is_noticed(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		meet();
		shake_until_making(end);
		w.pipe[!end].closed = true;
		assert_int_equal(step(end), -ENOTCONN);
		braid_conn_drop(&w.c[end]);
		assert_int_equal(w.dropped, 1);
	}
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(both_ends_come_up_and_know_each_other),
		CASE(one_byte_at_a_time_does_as_well),
		CASE(bytes_behind_the_handshake_stay_in_the_socket),
		CASE(every_handshake_has_a_session_of_its_own),
		CASE(older_peers_meet_without_an_exchange),
		CASE(a_token_and_a_tap_do_not_give_the_session),
		CASE(a_stream_cut_at_any_byte_is_an_end_and_nothing_else),
		CASE(a_handshake_returns_the_sockets_own_error),
		CASE(a_stranger_is_known_by_its_first_eight_bytes_and_gets_no_answer),
		CASE(versions_that_do_not_meet_are_named_at_both_ends),
		CASE(a_peer_that_pretends_to_be_older_is_refused),
		CASE(a_public_key_of_small_order_is_refused),
		CASE(a_wrong_key_is_refused_without_an_answer),
		CASE(a_refusal_has_a_reason),
		CASE(what_changes_our_course_must_be_signed),
		CASE(any_bit_flipped_on_the_way_keeps_the_link_down),
		CASE(a_reflected_hello_is_no_answer),
		CASE(no_handshake_with_a_forged_message_comes_up),
		CASE(a_recorded_handshake_does_not_work_again),
		CASE(an_answer_is_no_proof),
		CASE(no_end_comes_up_twice),
		CASE(both_ends_wait_for_what_is_being_made),
		CASE(what_is_not_made_in_time_is_dropped_and_the_socket_will_do),
		CASE(a_peer_that_goes_meanwhile_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
