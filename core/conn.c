/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conn.c - the handshake, one row per state:
 *
 *	dialler    connect -> tx hello ------------> rx answer -> tx proof ------------> up
 *	accepter              rx hello -> tx answer ------------------------> rx proof -> up
 *
 * The accepter checks the hello's MAC before it answers, so a stranger costs one 256-byte read.
 * A refusal is an answer whose status is not OK; the accepter closes once it is sent.
 */
#include "core/conn.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "core/auth.h"
#include "core/os.h"
#include "core/service.h"

static const uint8_t proof_tag[8] = { '!', 'B', 'R', 'P', 'R', 'O', 'O', 'F' };

void braid_conn_init(struct braid_conn *c, int fd, bool dialler)
{
	c->fd = fd;
	c->dialler = dialler;
	c->state = dialler ? BRAID_CONN_CONNECT : BRAID_CONN_RX_HELLO;
	c->mine.least = BRAID_WIRE_LEAST;
	c->mine.most = BRAID_WIRE_MOST;
	c->mine.pid = braid_self.pid;
	memcpy(c->mine.process, braid_self.process, sizeof(c->mine.process));
	memcpy(c->mine.host, braid_self.host, sizeof(c->mine.host));
	braid_os->random(c->mine.nonce, sizeof(c->mine.nonce));
}

/* Send or receive the rest of one message of fixed size: 0 when it is whole. */
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
		/* A stranger is found out by its first eight bytes. */
		if (!tx && size == BRAID_HELLO_SIZE && c->done >= 8) {
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
	err = braid_conn_ready(c);
	if (err)
		return err;
	braid_hello_pack(&c->mine, c->m1);
	braid_auth_hello(c->key, c->m1, c->mine.mac);
	braid_hello_pack(&c->mine, c->m1);
	return 0;
}

static int conn_tx_hello(struct braid_conn *c)
{
	return move(c, c->m1, sizeof(c->m1), true);
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
		return -EREMOTEIO;	/* without the key it can't sign; at worst we dial again */
	braid_auth_answer(c->key, c->m1, c->m2, mac);
	if (!braid_auth_equal(mac, c->theirs.mac))
		return -EACCES;
	c->known = true;
	if (c->theirs.status != BRAID_HELLO_OK)
		return -EREMOTEIO;
	memcpy(c->proof, proof_tag, sizeof(proof_tag));
	braid_auth_proof(c->key, c->m1, c->m2, c->proof + sizeof(proof_tag));
	return 0;
}

static int conn_tx_proof(struct braid_conn *c)
{
	return move(c, c->proof, sizeof(c->proof), true);
}

/* Who has not shown a key learns a status from us, and not who we are. */
static void anonymous(struct braid_conn *c)
{
	c->mine.pid = 0;
	memset(c->mine.process, 0, sizeof(c->mine.process));
	memset(c->mine.host, 0, sizeof(c->mine.host));
}

static int conn_rx_hello(struct braid_conn *c)
{
	uint8_t mac[BRAID_MAC_SIZE];
	int err = move(c, c->m1, sizeof(c->m1), false);

	if (err)
		return err;
	err = braid_hello_unpack(c->m1, &c->theirs);
	if (err == -EPROTONOSUPPORT) {
		c->mine.kind = BRAID_HELLO_LINK;
		c->mine.lanes_max = 1;
		c->mine.status = BRAID_HELLO_VERSION;
		anonymous(c);
		braid_hello_pack(&c->mine, c->m2);
		return 0;
	}
	if (err)
		return err;
	err = braid_conn_find(c);
	if (err)
		return err;
	if (c->mine.status == BRAID_HELLO_OK) {
		braid_auth_hello(c->key, c->m1, mac);
		if (!braid_auth_equal(mac, c->theirs.mac))
			return -EACCES;
		c->known = true;
		braid_conn_admit(c);
	} else {
		anonymous(c);
	}
	braid_hello_pack(&c->mine, c->m2);
	braid_auth_answer(c->key, c->m1, c->m2, c->mine.mac);
	braid_hello_pack(&c->mine, c->m2);
	return 0;
}

static int conn_tx_answer(struct braid_conn *c)
{
	int err = move(c, c->m2, sizeof(c->m2), true);

	if (err)
		return err;
	return c->mine.status == BRAID_HELLO_VERSION ? -EPROTONOSUPPORT :
	       c->mine.status == BRAID_HELLO_OK ? 0 : -EREMOTEIO;
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

static const struct {
	int (*step)(struct braid_conn *c);	/* 0: go on; -EAGAIN: wait for `events` */
	uint32_t events;
	enum braid_conn_state next;
} states[BRAID_CONN_STATES] = {
	[BRAID_CONN_CONNECT]   = { conn_connect, EPOLLOUT, BRAID_CONN_TX_HELLO },
	[BRAID_CONN_TX_HELLO]  = { conn_tx_hello, EPOLLOUT, BRAID_CONN_RX_ANSWER },
	[BRAID_CONN_RX_ANSWER] = { conn_rx_answer, EPOLLIN, BRAID_CONN_TX_PROOF },
	[BRAID_CONN_TX_PROOF]  = { conn_tx_proof, EPOLLOUT, BRAID_CONN_UP },
	[BRAID_CONN_RX_HELLO]  = { conn_rx_hello, EPOLLIN, BRAID_CONN_TX_ANSWER },
	[BRAID_CONN_TX_ANSWER] = { conn_tx_answer, EPOLLOUT, BRAID_CONN_RX_PROOF },
	[BRAID_CONN_RX_PROOF]  = { conn_rx_proof, EPOLLIN, BRAID_CONN_UP },
};

int braid_conn_step(struct braid_conn *c, uint32_t *ret_events)
{
	while (c->state != BRAID_CONN_UP) {
		int err = states[c->state].step(c);

		if (err) {
			if (err == -EAGAIN)
				*ret_events = states[c->state].events;
			return err;
		}
		c->state = states[c->state].next;
	}
	return 0;
}

void braid_conn_session(const struct braid_conn *c, uint8_t *ret)
{
	braid_auth_session(c->key, c->m1, c->m2, ret);
}
