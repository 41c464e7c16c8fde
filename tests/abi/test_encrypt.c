/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_encrypt.c - what somebody on the path sees of an encrypted job, and what he can do to it; and
 * what a path that flips bits does to a job with checksums.
 *
 * A process relays all connections between two others.  It looks for the job's bytes in what crosses,
 * flips bits, repeats bytes, turns them back, and mixes those of one connection into another.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* memmem */
#endif
#include "tests/abi/loss.h"
#include "tests/lib/hostile.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHANGES = 60, PAIRS = 256, HANDSHAKE = BRAID_HELLO_SIZE + BRAID_PROOF_SIZE };
/* The last two flip a bit in each connection of lane 1, towards the end that accepted or dialled it. */
enum meddling { LOOK_ON, FLIP, REPEAT, REFLECT, MIX, DROP, FLIP_THERE, FLIP_BACK };
enum { LANE = 1, HELLO_KIND = 12, HELLO_LANE = 14 };

static const char marker[] = "the weights of a secret model";

static struct path {			/* shared by all processes */
	atomic_uint how;		/* enum meddling */
	atomic_uint most;		/* changes */
	atomic_uint changes, marked;
	atomic_uint dials;		/* of lane 1 */
	_Atomic uint64_t bytes;
} *path;

static struct way {			/* one direction of a connection */
	int from, to;
	bool back;			/* to the end that dialled */
	bool lane, flipped;		/* of lane 1; a bit of it */
	uint64_t passed;
} ways[2 * PAIRS];
static unsigned nways;

/* --- the process on the path --------------------------------------------------------------- */

static void end_pair(unsigned i)
{
	i &= ~1u;
	close(ways[i].from);
	close(ways[i].to);
	ways[i].from = ways[i].to = ways[i + 1].from = ways[i + 1].to = -1;
}

static bool pass(const struct way *w, const char *p, size_t n)
{
	return speak_write(w->to, p, n);
}

/* Another connection's or, where there is none, earlier bytes of this one. */
static char other_bytes[4096];
static size_t nother;

/* The first bytes of a connection come: its hello names the lane. */
static void look_up_lane(struct way *w, const char *p, size_t n)
{
	w->lane = n > HELLO_LANE && p[HELLO_KIND] == BRAID_HELLO_LANE && p[HELLO_LANE] == LANE;
	if (w->lane)
		atomic_fetch_add(&path->dials, 1);
}

static bool flip_lane(struct abi *t, struct way *w, char *p, size_t n)
{
	size_t handshake = w->back ? BRAID_HELLO_SIZE : HANDSHAKE;
	size_t spared = w->passed < handshake ? handshake - w->passed : 0;

	if (!w->passed)
		look_up_lane(w, p, n);
	w->passed += n;
	if (w->lane && !w->flipped && n > spared) {
		w->flipped = true;
		atomic_fetch_add(&path->changes, 1);
		p[spared + rnd_below(t, (unsigned)(n - spared))] ^= (char)(1 << rnd_below(t, 8));
	}
	return pass(w, p, n);
}

static bool meddle(struct abi *t, struct way *w, char *p, size_t n)
{
	size_t spared = w->passed < HANDSHAKE ? HANDSHAKE - w->passed : 0;
	unsigned how = atomic_load(&path->how);

	if (how == (w->back ? FLIP_BACK : FLIP_THERE))
		return flip_lane(t, w, p, n);
	w->passed += n;
	if (n <= spared || how == LOOK_ON || atomic_load(&path->changes) >= atomic_load(&path->most) ||
	    rnd_below(t, 8))
		return pass(w, p, n);
	atomic_fetch_add(&path->changes, 1);
	switch (how) {
	case FLIP:
		p[spared + rnd_below(t, (unsigned)(n - spared))] ^= (char)(1 << rnd_below(t, 8));
		return pass(w, p, n);
	case REPEAT:
		return pass(w, p, n) && pass(w, p + spared, n - spared);
	case REFLECT:
		return pass(w, p, n) && speak_write(w->from, p + spared, n - spared);
	case MIX:
		return pass(w, p, spared) && pass(w, other_bytes, nother) &&
		       pass(w, p + spared, n - spared);
	default:
		return pass(w, p, n - 1);	/* a byte is lost, and all after it are askew */
	}
}

static void carry(struct abi *t, unsigned i)
{
	static char buf[65536];
	ssize_t n = recv(ways[i].from, buf, sizeof(buf), MSG_DONTWAIT);
	size_t keep;

	if (n <= 0) {
		end_pair(i);
		return;
	}
	atomic_fetch_add(&path->bytes, (uint64_t)n);
	if (memmem(buf, (size_t)n, marker, sizeof(marker) - 1))
		atomic_fetch_add(&path->marked, 1);
	keep = (size_t)n < sizeof(other_bytes) ? (size_t)n : sizeof(other_bytes);
	if (!meddle(t, &ways[i], buf, (size_t)n))
		end_pair(i);
	memcpy(other_bytes, buf, keep);
	nother = keep;
}

static void on_the_path(struct abi *t, int fd)
{
	struct pollfd pfd[2 * PAIRS + 2];
	uint16_t real, port;
	int listener = speak_listen(&port);

	TRUE(listener >= 0);
	give(fd, &port, sizeof(port));
	take(fd, &real, sizeof(real));
	for (;;) {
		unsigned n = nways;

		for (unsigned i = 0; i < n; i++)
			pfd[i] = (struct pollfd){ .fd = ways[i].from, .events = POLLIN };
		pfd[n] = (struct pollfd){ .fd = listener, .events = POLLIN };
		pfd[n + 1] = (struct pollfd){ .fd = fd, .events = POLLIN };
		poll(pfd, n + 2, -1);
		if (pfd[n + 1].revents)
			end_well();
		for (unsigned i = 0; i < n; i++) {
			if (pfd[i].revents && ways[i].from >= 0)
				carry(t, i);
		}
		if (pfd[n].revents) {
			int a = speak_accept(listener), b = speak_connect(real);

			TRUE(a >= 0 && nways < 2 * PAIRS);
			ways[nways++] = (struct way){ .from = a, .to = b };
			ways[nways++] = (struct way){ .from = b, .to = a, .back = true };
		}
	}
}

static void path_new(unsigned how, unsigned most)
{
	path = mmap(NULL, sizeof(*path), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TRUE(path != MAP_FAILED);
	atomic_store(&path->how, how);
	atomic_store(&path->most, most);
}

/* --- a job of two processes, through it ---------------------------------------------------- */

static const size_t sizes[] = { 8, 0, 5000, 65536, 8193, 300001, 64, 1 << 20 };
static struct loss traffic = { .sizes = sizes, .rounds = 400 };

static void other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send, *recv;

	warns_expected();
	send = send_to(net, fd);
	recv = recv_from(net, fd);
	both_ways(t, net, send, recv, &traffic);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/* As recv_from(), but the handle leads through the relay. */
static void *recv_through(struct net *net, struct peer *relay, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	void *listen = NULL, *recv = NULL;
	struct braid_handle to;

	OK(net_listen(net, the_device(), handle, &listen));
	to = handle_of(handle);
	relay_through(relay, &to, handle);
	give(fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(net, listen, &recv));
	OK(net_close_listen(net, listen));
	return recv;
}

static void job(struct abi *t, const char *encrypt, void (*body)(struct abi *t, int fd),
		void (*talk)(struct abi *t, struct net *net, void *send, void *recv))
{
	struct peer relay, peer;
	struct net *net;
	void *recv, *send;

	streams_are_ours();
	setenv("BRAID_ENCRYPT", encrypt, 1);
	relay = peer_start(t, on_the_path);
	peer = peer_start(t, body);
	net = abi_up(t);
	warns_expected();
	recv = recv_through(net, &relay, peer.fd);
	send = send_to(net, peer.fd);
	talk(t, net, send, recv);
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
	relay_end(&relay);
}

static void talk_both_ways(struct abi *t, struct net *net, void *send, void *recv)
{
	both_ways(t, net, send, recv, &traffic);
}

static void meddled(struct abi *t, unsigned how)
{
	const char *more = getenv("BRAID_TEST_FLIPS");

	path_new(how, more ? (unsigned)atoi(more) : CHANGES);
	job(t, "require", other, talk_both_ways);
	printf("v%d: %u changes in %llu MB that crossed\n", t->abi, atomic_load(&path->changes),
	       (unsigned long long)atomic_load(&path->bytes) >> 20);
	TRUE(atomic_load(&path->changes) > 5);
}

static void flipped(struct abi *t)
{
	meddled(t, FLIP);
}

static void repeated(struct abi *t)
{
	meddled(t, REPEAT);
}

static void reflected(struct abi *t)
{
	meddled(t, REFLECT);
}

static void mixed(struct abi *t)
{
	meddled(t, MIX);
}

static void dropped(struct abi *t)
{
	meddled(t, DROP);
}

/* --- checksums ----------------------------------------------------------------------------- */

/* A path flips bits of one lane whenever it is dialled: the other one carries all, unchanged. */
static void flips_lane(struct abi *t, unsigned how)
{
	uint64_t begun = now_us();
	unsigned dials, most;

	path_new(how, 0);
	setenv("BRAID_CHECKSUM", "on", 1);
	setenv("BRAID_LANES", "2", 1);
	job(t, "off", other, talk_both_ways);
	dials = atomic_load(&path->dials);
	/* 10 s is the shortest pause.  A dial may also come late, and be made again. */
	most = 8 + 2 * (unsigned)((now_us() - begun) / 10000000);
	printf("v%d: %u changes in %u dials of lane 1\n", t->abi, atomic_load(&path->changes), dials);
	TRUE(atomic_load(&path->changes) >= 3);
	if (dials > most)
		FAIL("lane 1 was dialled %u times", dials);
}

static void flips_there(struct abi *t)
{
	flips_lane(t, FLIP_THERE);
}

static void flips_back(struct abi *t)
{
	flips_lane(t, FLIP_BACK);
}

/* --- what can be read ---------------------------------------------------------------------- */

enum { SECRETS = 64, SECRET_SIZE = 1 << 20 };

static unsigned secrets(void)
{
	const char *more = getenv("BRAID_TEST_CAPTURE_MB");

	return more ? (unsigned)atoi(more) : SECRETS;
}

/* Messages small and large of the marker, over and over. */
static void send_secrets(struct net *net, void *send)
{
	struct buf big = buf_new(net, send, SECRET_SIZE, 0), small = buf_new(net, send, 64, 0);

	for (size_t i = 0; i < SECRET_SIZE; i++)
		((char *)big.data)[i] = marker[i % (sizeof(marker) - 1)];
	memcpy(small.data, big.data, 64);
	for (unsigned i = 0; i < secrets(); i++) {
		struct op op = op_send(net, send, &big, SECRET_SIZE, 0);

		WAIT_FOR(op_post(&op));
		WAIT_FOR(op_test(&op));
		op = op_send(net, send, &small, 64, 0);
		WAIT_FOR(op_post(&op));
		WAIT_FOR(op_test(&op));
	}
	buf_free(net, &big);
	buf_free(net, &small);
}

static void confides(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	send_secrets(net, send);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void hear_secrets(struct abi *t, struct net *net, void *send, void *recv)
{
	struct buf buf = buf_new(net, recv, SECRET_SIZE, 0);

	(void)t, (void)send;
	for (unsigned i = 0; i < 2 * secrets(); i++) {
		struct op op = op_recv(net, recv, &buf, SECRET_SIZE, 0);

		WAIT_FOR(op_post(&op));
		WAIT_FOR(op_test(&op));
		EQ(i % 2 ? 64 : SECRET_SIZE, op.got[0]);
		EQ(0, memcmp(buf.data, marker, sizeof(marker) - 1));
	}
	buf_free(net, &buf);
}

static void captured(struct abi *t, const char *encrypt)
{
	path_new(LOOK_ON, 0);
	job(t, encrypt, confides, hear_secrets);
	TRUE(atomic_load(&path->bytes) > (uint64_t)secrets() * SECRET_SIZE);
}

static void unread(struct abi *t)
{
	captured(t, "require");
	EQ(0, atomic_load(&path->marked));
}

/* That the capture would find it. */
static void read_in_plain(struct abi *t)
{
	captured(t, "off");
	TRUE(atomic_load(&path->marked) > secrets());
}

/* --- two settings -------------------------------------------------------------------------- */

static void encrypts_not(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net;
	void *send = NULL;
	ncclResult_t res;

	setenv("BRAID_ENCRYPT", "off", 1);
	net = abi_up(t);
	warns_expected();
	take(fd, handle, sizeof(handle));
	WAIT_FOR((res = net_connect(net, the_device(), handle, &send)) != ncclSuccess || send);
	EQ(ncclInvalidUsage, res);
	if (!strstr(net_last_warn(), "has BRAID_ENCRYPT=require, and BRAID_ENCRYPT=off here"))
		FAIL("%s", net_last_warn());
	meet(fd);
	abi_down(net);
	end_well();
}

static void required(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct peer peer;
	struct net *net;
	void *listen, *recv = NULL;

	setenv("BRAID_ENCRYPT", "require", 1);
	peer = peer_start(t, encrypts_not);
	net = abi_up(t);
	warns_expected();
	OK(net_listen(net, the_device(), handle, &listen));
	give(peer.fd, handle, sizeof(handle));
	WAIT_FOR(strstr(net_last_warn(), "[encrypt-mismatch]"));
	OK(net_accept(net, listen, &recv));
	TRUE(!recv);
	if (!strstr(net_last_warn(), "does not encrypt"))
		FAIL("%s", net_last_warn());
	meet(peer.fd);
	OK(net_close_listen(net, listen));
	abi_down(net);
	peer_join(&peer);
}

static void plain_peer(struct abi *t, int fd)
{
	setenv("BRAID_ENCRYPT", "off", 1);
	other(t, fd);
}

static void preferred(struct abi *t)
{
	path_new(LOOK_ON, 0);
	job(t, "prefer", plain_peer, talk_both_ways);
}

static const struct abi_case cases[] = {
	CASE("what an encrypted job sends is in no capture of it", unread, ONCE),
	CASE("the same capture has it if the job is not encrypted", read_in_plain, ONCE),
	CASE("a lane whose bits are flipped on the way to its accepter is left", flips_there, ONCE,
	     .warns = "corrupt-data lane-left"),
	CASE("a lane whose bits are flipped on the way to its dialler is left", flips_back, ONCE,
	     .warns = "corrupt-data lane-left"),
	CASE("a flipped bit reaches no message, and the job goes on", flipped, ONCE),
	CASE("repeated bytes reach no message, and the job goes on", repeated, ONCE),
	CASE("bytes turned back reach no message, and the job goes on", reflected, ONCE),
	CASE("another connection's bytes reach no message, and the job goes on", mixed, ONCE),
	CASE("bytes taken out harm no message, and the job goes on", dropped, ONCE),
	CASE("a peer that does not encrypt is refused at both ends where it is required", required, ONCE),
	CASE("a peer that does not encrypt is spoken with where encryption is preferred", preferred, ONCE),
};

ABI_MAIN(cases)
