/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_hello.c - both roles of the handshake against any bytes.
 *
 * Input: a byte of switches, a byte for what the accepting end finds, and then what the other end
 * sends.  With SIGN the MACs in it are made right for the key that the other end is supposed to
 * know, for no fuzzer guesses those; without it nobody may ever come up, nor hear anything but
 * that versions do not meet or that there is no such listen.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/os.h"
#include "core/base/self.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"

enum { DIAL = 1, SIGN = 2, SLOW = 4, END = 8, FIND_FAILS = 16, LATE = 32, MORE = 64, FAILS = 128 };
/* A hello, a proof, and two set-ups of a lane. */
enum { OUT_MAX = BRAID_HELLO_SIZE + BRAID_PROOF_SIZE + 2 * BRAID_SETUP_SIZE };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct braid_self braid_self;		/* instead of self.c's */

static struct {
	uint8_t switches, status;
	uint8_t in[4096];
	size_t n, read;
	uint8_t out[OUT_MAX];
	size_t nout;
	unsigned calls, finds, admits;
	bool signed_hello, signed_proof;
	unsigned wires;
	struct braid_conn c;
} w;

static const uint8_t key[BRAID_KEY_SIZE] = { 1, 2, 3, 4, 5 };

/* --- the other end ------------------------------------------------------------------------- */

enum { AT_MOST = 10, AT_NONCE = 56 };	/* in a hello */

/* The key of the handshake, once the fuzzer's hello is there. */
static const uint8_t *made(void)
{
	static uint8_t e[BRAID_KEY_SIZE];

	memcpy(e, key, sizeof(e));
	if (braid_version_agreed(BRAID_WIRE_MOST,
				 (uint16_t)(w.in[AT_MOST] | w.in[AT_MOST + 1] << 8)) >= 2)
		braid_auth_exchange(w.c.secret, w.in + AT_NONCE, e);
	return e;
}

/* What the peer says in a lane's set-up follows its proof or answer; an accepter hears two. */
static void sign_setup(void)
{
	bool dialler = w.switches & DIAL;
	size_t at = BRAID_HELLO_SIZE + (dialler ? 0 : BRAID_PROOF_SIZE);

	for (; at + BRAID_SETUP_SIZE <= w.n && w.nout >= BRAID_HELLO_SIZE; at += BRAID_SETUP_SIZE)
		braid_auth_setup(made(), dialler ? w.out : w.in, dialler ? w.in : w.out, !dialler,
				 w.in + at, w.in + at + BRAID_SETUP_SIGNED);
}

/* As soon as both messages that a MAC covers are known, put it where it belongs. */
static void sign(void)
{
	if (!(w.switches & SIGN) || w.n < BRAID_HELLO_SIZE)
		return;
	if (!w.signed_hello) {
		if (!(w.switches & DIAL))
			braid_auth_hello(key, w.in, w.in + BRAID_HELLO_SIGNED);
		else if (w.nout >= BRAID_HELLO_SIZE)
			braid_auth_answer(made(), w.out, w.in, w.in + BRAID_HELLO_SIGNED);
		else
			return;
		w.signed_hello = true;
	}
	if (!w.signed_proof && !(w.switches & DIAL) && w.nout >= BRAID_HELLO_SIZE &&
	    w.n >= BRAID_HELLO_SIZE + BRAID_PROOF_SIZE) {
		braid_auth_proof(made(), w.in, w.out, w.in + BRAID_HELLO_SIZE + 8);
		w.signed_proof = true;
	}
	sign_setup();
}

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	size_t n = msg->msg_iov[0].iov_len;

	(void)fd, (void)flags;
	sign();
	if (n > w.n - w.read)
		n = w.n - w.read;
	if (w.switches & SLOW) {
		if (++w.calls % 3 == 0) {
			errno = w.calls % 2 ? EINTR : EAGAIN;
			return -1;
		}
		if (n > 7)
			n = 7;
	}
	if (!n) {
		errno = EAGAIN;
		return w.switches & END ? 0 : -1;
	}
	memcpy(msg->msg_iov[0].iov_base, w.in + w.read, n);
	w.read += n;
	return (ssize_t)n;
}

static ssize_t os_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	size_t n = msg->msg_iov[0].iov_len;

	(void)fd, (void)flags;
	if (w.switches & SLOW && n > 5)
		n = 5;
	assert(w.nout + n <= OUT_MAX);
	memcpy(w.out + w.nout, msg->msg_iov[0].iov_base, n);
	w.nout += n;
	return (ssize_t)n;
}

static int os_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	(void)fd, (void)level, (void)name;
	memset(val, 0, *len);
	return 0;
}

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	(void)fd, (void)buf, (void)len, (void)flags;
	errno = EAGAIN;
	return w.switches & END ? 0 : -1;
}

static int os_random(void *buf, size_t len)
{
	memset(buf, 0x3c, len);
	return 0;
}

static const struct braid_os fake = {
	.random = os_random, .sendmsg = os_sendmsg, .recvmsg = os_recvmsg,
	.getsockopt = os_getsockopt, .recv = os_recv,
};

/* --- the accepting end's tables ------------------------------------------------------------ */

static int fuzz_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	(void)theirs;
	if (w.switches & FAILS && w.status & 1)
		return -ENODEV;
	memset(mine, 0x77, BRAID_BLOB_SIZE);
	s->priv = &w;
	w.wires++;
	return 0;
}

static int fuzz_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	assert(s->priv && theirs);
	return w.switches & FAILS && w.status & 2 ? -EIO : 0;
}

static int fuzz_setup_ready(struct braid_setup *s)
{
	assert(s->priv);
	return w.switches & FAILS && w.status & 4 ? -EIO : 0;
}

static void fuzz_setup_drop(struct braid_setup *s)
{
	assert(s->priv && w.wires);
	w.wires--;
}

static const uint8_t both[] = { BRAID_TRANSPORT_VERBS, BRAID_TRANSPORT_TCP };
static const struct braid_transport more = {
	.name = "more", .id = BRAID_TRANSPORT_VERBS, .blob = true, .setup = fuzz_setup,
	.setup_peer = fuzz_setup_peer, .setup_ready = fuzz_setup_ready,
	.setup_drop = fuzz_setup_drop,
}, tcp = { .name = "tcp", .id = BRAID_TRANSPORT_TCP };

static void offer(struct braid_hello *h)
{
	if (w.switches & MORE)
		memcpy(h->transports, both, sizeof(both));
	else
		h->transports[0] = tcp.id;
}

static const struct braid_transport *const list[] = { &tcp, &more, NULL };

static void owner_setup(struct braid_conn *c)
{
	c->setup.dialler = c->dialler;
}

static int owner_find(struct braid_conn *c)
{
	w.finds++;
	assert(!c->known && c->theirs.least <= BRAID_WIRE_MOST);
	assert(c->theirs.lane < BRAID_LANES_MAX && c->theirs.lanes_max <= BRAID_LANES_MAX);
	assert(memchr(c->theirs.host, 0, sizeof(c->theirs.host)));
	if (w.switches & FIND_FAILS)
		return -EACCES;
	c->mine.kind = c->theirs.kind;
	c->mine.lanes_max = 4;
	c->mine.status = w.switches & LATE ? BRAID_HELLO_OK : w.status;
	memcpy(c->key, key, sizeof(key));
	offer(&c->mine);
	return 0;
}

static int owner_ready(struct braid_conn *c)
{
	(void)c;
	return 0;
}

static int owner_admit(struct braid_conn *c)
{
	w.admits++;
	assert(c->known && w.signed_hello);
	c->mine.status = w.status;
	return 0;
}

static const struct braid_conn_owner owner = {
	.find = owner_find, .admit = owner_admit, .ready = owner_ready, .setup = owner_setup,
};

/* --- */

static void check_dialler(int err)
{
	assert(w.nout >= BRAID_HELLO_SIZE && !w.finds && !w.admits);
	if (!w.signed_hello)
		assert(err && !w.c.known && w.nout == BRAID_HELLO_SIZE);
	if (err)
		return;
	assert(w.c.state == BRAID_CONN_UP && w.c.known && w.c.theirs.status == BRAID_HELLO_OK);
	assert(w.nout == BRAID_HELLO_SIZE + BRAID_PROOF_SIZE || w.switches & MORE);
}

static void check_accepter(int err)
{
	struct braid_hello h;

	assert(w.finds <= 1 && w.admits <= w.finds);
	assert(w.nout == 0 || w.nout == BRAID_HELLO_SIZE || w.switches & MORE);
	if (w.nout) {
		/* Whatever we say, we say well. */
		assert(braid_hello_unpack(w.out, &h) == 0);
		assert(h.status == BRAID_HELLO_VERSION || w.finds);
		assert(h.status != BRAID_HELLO_OK || w.signed_hello);
	}
	if (!err)
		assert(w.signed_hello && w.signed_proof && w.c.known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t session[BRAID_KEY_SIZE];
	uint32_t events = 0;
	int err = -EAGAIN;

	if (size < 2)
		return 0;
	braid_os = &fake;
	braid_transports_use(list);
	assert(braid_auth_init() == 0);
	memset(&w, 0, sizeof(w));
	w.switches = data[0];
	w.status = data[1] % BRAID_HELLO_STATUS_MAX;
	w.n = size - 2 < sizeof(w.in) ? size - 2 : sizeof(w.in);
	memcpy(w.in, data + 2, w.n);
	strcpy(braid_self.host, "here");
	braid_conn_init(&w.c, 0, w.switches & DIAL, &owner);
	if (w.switches & DIAL) {
		memcpy(w.c.key, key, sizeof(key));
		w.c.mine.kind = BRAID_HELLO_LINK;
		w.c.mine.lanes_max = 8;
		offer(&w.c.mine);
	}
	for (unsigned still = 0; err == -EAGAIN && still < 4; still++) {
		size_t before = w.read + w.nout;

		err = braid_conn_step(&w.c, &events);
		assert(err != -EAGAIN || events == EPOLLIN || events == EPOLLOUT);
		if (w.read + w.nout != before)
			still = 0;
	}
	assert(err <= 0 && (!err) == (w.c.state == BRAID_CONN_UP));
	if (w.switches & DIAL)
		check_dialler(err);
	else
		check_accepter(err);
	assert(err || w.wires == (w.c.tr == &more));
	if (!err)
		braid_conn_session(&w.c, session);
	braid_conn_drop(&w.c);
	assert(!w.wires);
	braid_conn_forget_keys(&w.c);
	return 0;
}
