/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn.c - the handshake, one row per state:
 *
 *	dialler    connect -> tx hello ------------> rx answer -> tx proof ------------> up
 *	accepter        rx hello -> admit -> tx answer ---------------------> rx proof -> up
 *
 * If the transport agreed on needs more than the socket, two set-up messages and a "ready" come
 * before "up".  Each of them can decline that transport; then the socket itself carries the lane.
 *
 *	dialler    ask setup ------------------------> rx answered -> wait ready -> tx ready -> up
 *	accepter   rx asked -> answer setup ------------------------------> rx ready -> wait -> up
 *
 * The accepter checks the hello's MAC before it answers, so a stranger costs one 256-byte read.
 * A refusal is an answer whose status is not OK; the accepter closes once it is sent.
 */
#include "core/setup/conn.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/self.h"
#include "core/proto/auth.h"
#include "core/setup/encrypt.h"
#include "core/setup/job_key.h"
#include "core/setup/keypair.h"
#include "core/setup/offer.h"

static const uint8_t proof_tag[8] = { '!', 'B', 'R', 'P', 'R', 'O', 'O', 'F' };

void braid_conn_forget_keys(struct braid_conn *c)
{
	braid_secret_free(c->key);
	braid_secret_free(c->secret);
	c->key = c->secret = NULL;
}

int braid_conn_init(struct braid_conn *c, int fd, bool dialler,
		    const struct braid_conn_owner *owner)
{
	int err = -ENOMEM;

	c->owner = owner;
	c->fd = fd;
	c->dialler = dialler;
	c->state = dialler ? BRAID_CONN_CONNECT : BRAID_CONN_RX_HELLO;
	c->mine.least = BRAID_WIRE_LEAST;
	c->mine.most = BRAID_WIRE_MOST;
	c->mine.pid = braid_self.pid;
	memcpy(c->mine.process, braid_self.process, sizeof(c->mine.process));
	memcpy(c->mine.host, braid_self.host, sizeof(c->mine.host));
	if (!c->key)
		c->key = braid_secret_new();
	if (!c->secret)
		c->secret = braid_secret_new();
	if (c->key && c->secret)
		err = braid_os->random(c->secret, BRAID_KEY_SIZE);
	if (err)
		braid_conn_forget_keys(c);
	return err;
}

/* Send or receive the rest of one message of fixed size: 0 when it is complete. */
static int move(struct braid_conn *c, uint8_t *buf, unsigned size, bool tx)
{
	while (c->done < size) {
		struct iovec iov = { buf + c->done, size - c->done };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
		ssize_t n = tx ? braid_os->sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) :
				 braid_os->recvmsg(c->fd, &msg, MSG_DONTWAIT);

		if (n > 0)
			c->done += (unsigned)n;
		else if (!n)
			return -ENOTCONN;
		else if (errno != EINTR)
			return -errno;
		/* The first eight bytes show whether the other end speaks Braid. */
		if (!tx && (buf == c->m1 || buf == c->m2) && c->done >= 8) {
			uint64_t magic;

			memcpy(&magic, buf, sizeof(magic));
			if (magic != htole64(BRAID_WIRE_MAGIC))
				return -EPROTO;
		}
	}
	c->done = 0;
	return 0;
}

static int conn_connect(struct braid_conn *c)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (braid_os->getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	if (err)
		return -err;
	err = c->owner->ready(c);
	c->shutting = err == -EAGAIN;
	if (err)
		return err;
	braid_keypair_take(c->secret, c->mine.nonce);
	braid_job_key_sign(c);
	return 0;
}

static int conn_tx_hello(struct braid_conn *c)
{
	return move(c, c->m1, sizeof(c->m1), true);
}

/* The peer's hello is here: settle the version.  A peer that is known to speak a later one must. */
static int agree_version(struct braid_conn *c)
{
	c->version = braid_version_agreed(c->mine.most, c->theirs.most);
	return c->must_be && c->version != c->must_be ? -EACCES : 0;
}

/* From now on c->key is a key of this handshake alone. */
static int exchange_keys(struct braid_conn *c)
{
	return c->version < 2 ? 0 : braid_auth_exchange(c->secret, c->theirs.nonce, c->key);
}

static int conn_rx_answer(struct braid_conn *c)
{
	uint8_t mac[BRAID_MAC_SIZE];
	int err = move(c, c->m2, sizeof(c->m2), false);

	if (!err)
		err = braid_hello_unpack(c->m2, &c->theirs);
	if (err)
		return err;
	if (c->theirs.status == BRAID_HELLO_VERSION)
		return -EPROTONOSUPPORT;
	if (c->theirs.status == BRAID_HELLO_NO_LISTEN || c->theirs.status == BRAID_HELLO_NO_LINK)
		return -EREMOTEIO;	/* unsigned, for want of a key; a forged one costs a dial */
	if (c->theirs.status != BRAID_HELLO_SECRET)
		braid_job_key_mix(c);
	err = agree_version(c);
	if (!err)
		err = exchange_keys(c);
	if (err)
		return err;
	braid_auth_answer(c->key, c->m1, c->m2, mac);
	if (!braid_auth_equal(mac, c->theirs.mac))
		return -EACCES;
	if (c->theirs.status == BRAID_HELLO_SECRET)
		return -EKEYREJECTED;
	c->known = true;
	if (c->theirs.status == BRAID_HELLO_ENCRYPT)
		return -ENOKEY;
	if (c->theirs.status != BRAID_HELLO_OK)
		return -EREMOTEIO;
	err = braid_encrypt_check(c);
	if (err)
		return err;
	if (c->mine.kind != BRAID_HELLO_ALIVE) {
		c->tr = braid_offer_agreed(&c->mine, &c->theirs);
		if (!c->tr)		/* the peer should have refused */
			return -EBADMSG;
	}
	memcpy(c->proof, proof_tag, sizeof(proof_tag));
	braid_auth_proof(c->key, c->m1, c->m2, c->proof + sizeof(proof_tag));
	return c->owner->answered ? c->owner->answered(c) : 0;
}

static int conn_tx_proof(struct braid_conn *c)
{
	return move(c, c->proof, sizeof(c->proof), true);
}

/* A peer that has not shown the key learns a status from us, but not who we are. */
static void anonymous(struct braid_conn *c)
{
	c->mine.pid = 0;
	memset(c->mine.process, 0, sizeof(c->mine.process));
	memset(c->mine.host, 0, sizeof(c->mine.host));
}

/* No message is due.  A byte means that the peer revoked the set-up; EOF, that it is gone. */
static int socket_lives(struct braid_conn *c)
{
	char byte;
	ssize_t n = braid_os->recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return n ? -EALREADY : -ENOTCONN;
}

static int conn_rx_hello(struct braid_conn *c)
{
	int err = move(c, c->m1, sizeof(c->m1), false);

	/* In a storm of dials it may have waited for too long, and hung up. */
	if (!err && socket_lives(c) == -ENOTCONN)
		err = -ENOTCONN;
	if (err)
		return err;
	err = braid_hello_unpack(c->m1, &c->theirs);
	if (err == -EPROTONOSUPPORT) {
		c->mine.kind = BRAID_HELLO_LINK;
		c->mine.lanes_max = 1;
		c->mine.status = BRAID_HELLO_VERSION;
		anonymous(c);
		return 0;
	}
	if (err)
		return err;
	err = c->owner->find(c);
	if (!err && c->mine.status == BRAID_HELLO_OK)
		err = braid_job_key_check(c);
	if (!err)
		err = agree_version(c);
	if (err)
		return err;
	if (c->mine.status == BRAID_HELLO_OK) {
		c->known = true;
		braid_encrypt_choose(c);
		if (c->theirs.kind != BRAID_HELLO_ALIVE)
			c->tr = braid_offer_agreed(&c->theirs, &c->mine);
	} else {
		anonymous(c);
	}
	return 0;
}

static int conn_admit(struct braid_conn *c)
{
	bool admits = c->known && c->mine.status == BRAID_HELLO_OK;
	int err = admits ? c->owner->admit(c) : 0;

	c->shutting = err == -EAGAIN;
	if (c->shutting)
		return socket_lives(c);
	if (err)
		return err;
	if (c->known || c->mine.status == BRAID_HELLO_SECRET) {
		braid_keypair_take(c->secret, c->mine.nonce);
		err = exchange_keys(c);
	}
	if (err)
		return err;
	braid_hello_pack(&c->mine, c->m2);
	if (c->theirs.least > BRAID_WIRE_MOST || c->theirs.most < BRAID_WIRE_LEAST)
		return 0;		/* no common version: no key was looked up */
	braid_auth_answer(c->key, c->m1, c->m2, c->mine.mac);
	braid_hello_pack(&c->mine, c->m2);
	return 0;
}

static int conn_tx_answer(struct braid_conn *c)
{
	int err = move(c, c->m2, sizeof(c->m2), true);

	if (err)
		return err;
	switch (c->mine.status) {
	case BRAID_HELLO_OK:
		if (c->owner->greeted)
			c->owner->greeted(c);
		return 0;
	case BRAID_HELLO_VERSION:
		return c->known ? -ENOKEY : -EPROTONOSUPPORT;
	case BRAID_HELLO_ENCRYPT:
		return -ENOKEY;
	default:
		return -EREMOTEIO;
	}
}

static int conn_rx_proof(struct braid_conn *c)
{
	uint8_t mac[BRAID_MAC_SIZE];
	int err = move(c, c->proof, sizeof(c->proof), false);

	if (err)
		return err;
	braid_auth_proof(c->key, c->m1, c->m2, mac);
	return !memcmp(c->proof, proof_tag, sizeof(proof_tag)) &&
	       braid_auth_equal(mac, c->proof + sizeof(proof_tag)) ? 0 : -EACCES;
}

/* --- set-up of a lane that is more than its socket ----------------------------------------- */

static bool is_set_up(const struct braid_conn *c)
{
	return !c->tr || !c->tr->blob;
}

void braid_conn_drop(struct braid_conn *c)
{
	if (c->tr && c->tr->blob && c->setup.priv)
		c->tr->setup_drop(&c->setup);
	c->setup.priv = NULL;
}

bool braid_conn_socket_will_do(const struct braid_conn *c)
{
	return braid_offer_has(&c->mine, BRAID_TRANSPORT_TCP) &&
	       braid_offer_has(&c->theirs, BRAID_TRANSPORT_TCP);
}

/* The transport can't be had: use the socket, if both ends allow it. */
static int use_socket(struct braid_conn *c)
{
	braid_conn_drop(c);
	c->refused = c->tr;
	if (!braid_conn_socket_will_do(c)) {
		/* A link that was up may get the transport again later. */
		c->theirs.status = c->theirs.kind == BRAID_HELLO_LINK ? BRAID_HELLO_NO_TRANSPORT :
									BRAID_HELLO_NO_ROOM;
		return -EREMOTEIO;
	}
	c->tr = braid_transport_find(BRAID_TRANSPORT_TCP);
	return 0;
}

static int tx_setup(struct braid_conn *c)
{
	int err;

	if (!c->packed) {
		braid_setup_pack(&c->mine_setup, c->msg);
		braid_auth_setup(c->key, c->m1, c->m2, c->dialler, c->msg, c->mine_setup.mac);
		braid_setup_pack(&c->mine_setup, c->msg);
		c->packed = true;
	}
	err = move(c, c->msg, sizeof(c->msg), true);
	if (err)
		return err;
	c->packed = false;
	return c->mine_setup.err ? use_socket(c) : 0;
}

static int rx_setup(struct braid_conn *c)
{
	uint8_t mac[BRAID_MAC_SIZE];
	int err = move(c, c->msg, sizeof(c->msg), false);

	if (!err)
		err = braid_setup_unpack(c->msg, &c->their_setup);
	if (err)
		return err;
	braid_auth_setup(c->key, c->m1, c->m2, !c->dialler, c->msg, mac);
	if (!braid_auth_equal(mac, c->their_setup.mac))
		return -EACCES;
	return c->their_setup.err ? use_socket(c) : 0;
}

/* 0: c->mine_setup is filled; -EAGAIN: the transport is not done; otherwise the socket is lost. */
static int make_setup(struct braid_conn *c, const uint8_t *theirs)
{
	int err;

	if (c->helped)			/* it may sleep in the kernel */
		return -EAGAIN;
	if (!c->making)
		c->owner->setup(c);
	c->making = false;
	if (c->mine_setup.err)
		return 0;
	err = c->tr->setup(&c->setup, theirs, c->mine_setup.blob);
	if (err == -EAGAIN) {
		c->making = true;
		return socket_lives(c);
	}
	c->mine_setup.err = (uint16_t)-err;
	return 0;
}

static int conn_ask_setup(struct braid_conn *c)
{
	int err = is_set_up(c) || c->packed ? 0 : make_setup(c, NULL);

	return err || is_set_up(c) ? err : tx_setup(c);
}

static int conn_rx_answered(struct braid_conn *c)
{
	int err = is_set_up(c) ? 0 : rx_setup(c);

	if (err || is_set_up(c))
		return err;
	c->mine_setup.err = (uint16_t)-c->tr->setup_peer(&c->setup, c->their_setup.blob);
	return 0;
}

void braid_conn_revoke(struct braid_conn *c)
{
	/* The peer may be a step ahead: one byte tells it that the close to come is no fault. */
	if (c->state == BRAID_CONN_RX_READY || c->state == BRAID_CONN_WAIT)
		braid_os->send(c->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	braid_conn_drop(c);
	c->revoked = true;
}

static int conn_wait_ready(struct braid_conn *c)
{
	int err, lives;

	if (is_set_up(c))
		return 0;
	err = c->mine_setup.err ? -c->mine_setup.err : c->tr->setup_ready(&c->setup);
	lives = err ? socket_lives(c) : 0;
	if (err == -EAGAIN || (err && lives != -EAGAIN))
		return lives;		/* revoked, or the socket is lost: no failure of c->tr */
	c->mine_setup.err = (uint16_t)-err;
	return 0;
}

static int conn_tx_ready(struct braid_conn *c)
{
	return is_set_up(c) ? 0 : tx_setup(c);
}

static int conn_rx_asked(struct braid_conn *c)
{
	return is_set_up(c) ? 0 : rx_setup(c);
}

static int conn_answer_setup(struct braid_conn *c)
{
	int err = is_set_up(c) || c->packed ? 0 : make_setup(c, c->their_setup.blob);

	return err || is_set_up(c) ? err : tx_setup(c);
}

static int conn_rx_ready(struct braid_conn *c)
{
	if (!is_set_up(c))
		c->tr->setup_ready(&c->setup);	/* the transport may have work to do meanwhile */
	return is_set_up(c) ? 0 : rx_setup(c);
}

static int conn_wait(struct braid_conn *c)
{
	int err = is_set_up(c) ? 0 : c->tr->setup_ready(&c->setup);

	return err == -EAGAIN ? socket_lives(c) : err;
}

bool braid_conn_polls(const struct braid_conn *c)
{
	return c->shutting || c->making || c->state == BRAID_CONN_WAIT_READY ||
	       c->state == BRAID_CONN_WAIT ||
	       (c->state == BRAID_CONN_RX_READY && !is_set_up(c));
}

/* --- the state table ----------------------------------------------------------------------- */

static const struct {
	int (*step)(struct braid_conn *c);	/* 0: go on; -EAGAIN: wait for `events` */
	uint32_t events;
	enum braid_conn_state next;
} states[BRAID_CONN_STATES] = {
	[BRAID_CONN_CONNECT]   = { conn_connect, EPOLLOUT, BRAID_CONN_TX_HELLO },
	[BRAID_CONN_TX_HELLO]  = { conn_tx_hello, EPOLLOUT, BRAID_CONN_RX_ANSWER },
	[BRAID_CONN_RX_ANSWER] = { conn_rx_answer, EPOLLIN, BRAID_CONN_TX_PROOF },
	[BRAID_CONN_TX_PROOF]  = { conn_tx_proof, EPOLLOUT, BRAID_CONN_ASK_SETUP },
	[BRAID_CONN_ASK_SETUP] = { conn_ask_setup, EPOLLOUT, BRAID_CONN_RX_ANSWERED },
	[BRAID_CONN_RX_ANSWERED] = { conn_rx_answered, EPOLLIN, BRAID_CONN_WAIT_READY },
	[BRAID_CONN_WAIT_READY] = { conn_wait_ready, 0, BRAID_CONN_TX_READY },
	[BRAID_CONN_TX_READY]  = { conn_tx_ready, EPOLLOUT, BRAID_CONN_UP },
	[BRAID_CONN_RX_HELLO]  = { conn_rx_hello, EPOLLIN, BRAID_CONN_ADMIT },
	[BRAID_CONN_ADMIT]     = { conn_admit, 0, BRAID_CONN_TX_ANSWER },
	[BRAID_CONN_TX_ANSWER] = { conn_tx_answer, EPOLLOUT, BRAID_CONN_RX_PROOF },
	[BRAID_CONN_RX_PROOF]  = { conn_rx_proof, EPOLLIN, BRAID_CONN_RX_ASKED },
	[BRAID_CONN_RX_ASKED]  = { conn_rx_asked, EPOLLIN, BRAID_CONN_ANSWER_SETUP },
	[BRAID_CONN_ANSWER_SETUP] = { conn_answer_setup, EPOLLOUT, BRAID_CONN_RX_READY },
	[BRAID_CONN_RX_READY]  = { conn_rx_ready, EPOLLIN, BRAID_CONN_WAIT },
	[BRAID_CONN_WAIT]      = { conn_wait, 0, BRAID_CONN_UP },
};

int braid_conn_step(struct braid_conn *c, uint32_t *ret_events)
{
	while (c->state != BRAID_CONN_UP) {
		int err = c->revoked ? -EALREADY : states[c->state].step(c);

		if (err == -EAGAIN)
			*ret_events = c->making || c->shutting ? 0 : states[c->state].events;
		if (err)
			return err;
		c->state = states[c->state].next;
	}
	return 0;
}

void braid_conn_session(const struct braid_conn *c, uint8_t *ret)
{
	braid_auth_session(c->key, c->m1, c->m2, ret);
}
