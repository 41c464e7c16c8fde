/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_tap.c - attackers that know a token, or read the network: what that opens, and what not.
 *
 * The attacker's code is here and in tests/lib/speak.c.  It speaks every wire version.
 */
#include "tests/lib/hostile.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Dials lane 0 of the overheard link as its next owner; true if the plugin accepts that. */
static bool take_lane(const struct braid_handle *to, const struct record *r, unsigned guess,
		      uint16_t most)
{
	struct braid_hello theirs;
	struct speaker sp;
	bool in;

	speaker_init(&sp, to);
	TRUE(!braid_hello_unpack(r->m2, &theirs));
	TRUE(!braid_hello_unpack(r->m1, &sp.mine));
	speaker_draw(&sp);
	speaker_guess(&sp, guess, to, r->m1, r->m2);
	sp.mine.most = most;
	sp.mine.kind = BRAID_HELLO_LANE;
	sp.mine.lane = 0;
	sp.mine.ident = theirs.ident;
	sp.mine.epoch = 1000;
	TRUE(speak_dial(&sp, to));
	in = speak_until(&sp, SPEAK_PROOF, false);
	in = in && !speak_closed(sp.fd, 1000);
	close(sp.fd);
	return in;
}

static void sender(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	send_one(net, send, 1000, 1);
	meet(fd);			/* the attack */
	send_one(net, send, 1000, 2);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

static void token_and_tap(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer relay = relay_start(t), friend = peer_start(t, sender);
	struct record r;
	struct stage s;
	void *recv = NULL;

	stage_up(t, &s);
	relay_through(&relay, &s.to, handle);
	give(friend.fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	recv_one(s.net, recv, 1000, 1);
	relay_record(&relay, &r);
	for (unsigned guess = 0; guess < SPEAK_GUESSES; guess++) {
		for (uint16_t most = BRAID_WIRE_LEAST; most <= BRAID_WIRE_MOST; most++) {
			if (take_lane(&s.to, &r, guess, most))
				FAIL("guess %u, version %u: taken for the peer", guess, most);
		}
	}
	stage_empty(&s);
	meet(friend.fd);
	recv_one(s.net, recv, 1000, 2);	/* and the peer's connection has not been touched */
	meet(friend.fd);
	OK(net_close_recv(s.net, recv));
	peer_join(&friend);
	relay_end(&relay);
	stage_quiet(&s, 0);
	stage_down(&s);
}

static void receiver(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1000, 3);
	meet(fd);
	OK(net_close_recv(net, recv));
	abi_down(net);
	end_well();
}

enum { SILENT = BRAID_HELLO_STATUS_MAX };

/* Takes an OPEN, if one has come, and refuses it by that code, or is silent. */
static bool refuse(struct speaker *sp, uint16_t code)
{
	struct pollfd pfd = { .fd = sp->fd, .events = POLLIN };
	struct braid_hdr h;

	if (poll(&pfd, 1, 0) <= 0 || !speak_hear_frame(sp, &h, NULL, 0) || h.type != BRAID_F_OPEN)
		return false;
	if (code == SILENT)
		return true;
	h = (struct braid_hdr){ .type = BRAID_F_REFUSED, .comm = h.comm, .n = code };
	TRUE(speak_frame(sp, &h, NULL, 0));
	return true;
}

/* Holds a token of this process, and links in under another process's id before that is met. */
static void squat(struct stage *s, struct peer *victim, uint16_t code)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle theirs;
	struct speaker sp;
	void *send = NULL;
	unsigned refused = 0;

	take(victim->fd, handle, sizeof(handle));
	theirs = handle_of(handle);
	speaker_init(&sp, &s->to);
	memcpy(sp.mine.process, theirs.process, sizeof(sp.mine.process));
	sp.mine.dev = theirs.dev;
	TRUE(speak_dial(&sp, &s->to));
	TRUE(speak_until(&sp, SPEAK_PROOF, false));
	nap_ms(100);
	WAIT_FOR((refused += refuse(&sp, code), connect_step(s->net, handle, &send)));
	EQ(1, refused);			/* the link was taken for the victim's */
	send_one(s->net, send, 1000, 3);
	meet(victim->fd);
	OK(net_close_send(s->net, send));
	peer_join(victim);
	close(sp.fd);
}

static void squatter(struct abi *t)
{
	struct peer one = peer_start(t, receiver), two = peer_start(t, receiver);
	struct peer three = peer_start(t, receiver);
	struct stage s;

	stage_up(t, &s);
	squat(&s, &one, BRAID_HELLO_NO_LISTEN);
	squat(&s, &two, BRAID_HELLO_NO_ROOM);
	squat(&s, &three, BRAID_HELLO_CROSSED);
	stage_down(&s);
}

/* It would cost this connect() all of its time. */
static void silent_squatter(struct abi *t)
{
	struct peer victim = peer_start(t, receiver);
	struct stage s;

	stage_up(t, &s);
	squat(&s, &victim, SILENT);
	stage_quiet(&s, 0);
	stage_down(&s);
}

/* Its link is as doubtful as a squatter's, until it goes on: then one comm of two is taken. */
static void stops(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *listen, *recv = NULL;

	OK(net_listen(net, the_device(), handle, &listen));
	give(fd, handle, sizeof(handle));
	raise(SIGSTOP);
	WAIT_FOR(accept_step(net, listen, &recv));
	OK(net_close_listen(net, listen));
	recv_one(net, recv, 1000, 3);
	send_one(net, send, 1000, 4);
	meet(fd);
	OK(net_close_recv(net, recv));
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

static void stopped(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer peer = peer_start(t, stops);
	struct stage s;
	void *send = NULL, *recv = NULL;

	stage_up(t, &s);
	give(peer.fd, s.handle, sizeof(s.handle));
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	take(peer.fd, handle, sizeof(handle));
	peer_stopped(&peer);
	for (uint64_t end = now_us() + 1500000; now_us() < end; nap_ms(1))
		TRUE(!connect_step(s.net, handle, &send));
	kill(peer.pid, SIGCONT);
	WAIT_FOR(connect_step(s.net, handle, &send));
	send_one(s.net, send, 1000, 3);
	recv_one(s.net, recv, 1000, 4);
	meet(peer.fd);
	OK(net_close_send(s.net, send));
	OK(net_close_recv(s.net, recv));
	peer_join(&peer);
	stage_quiet(&s, 0);
	stage_down(&s);
}

static const struct abi_case cases[] = {
	CASE("a token and a recorded handshake do not open the link", token_and_tap, ONCE),
	CASE("a process that claims another's id costs it a second dial, and no connection", squatter,
	     ONCE),
	CASE("a process that claims another's id and is silent costs it a second dial", silent_squatter,
	     ONCE),
	CASE("a process that is stopped while another connects to it is met once", stopped, ONCE),
};

ABI_MAIN(cases)
