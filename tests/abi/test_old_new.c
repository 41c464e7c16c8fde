/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_old_new.c - an older build of the plugin and this one understand each other over TCP.
 *
 * Two processes, each with its own plugin, send messages of 0 to 4 MiB to each other and check every
 * byte, while their connections are reset.  So what is on the wire has not changed in between.
 * BRAID_TEST_OLD is the older libnccl-net-braid.so, which make check-old-new builds.
 */
#include "tests/abi/loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 150, GROUP = 3, EARLY = 4, HEAD_START_MS = 20 };

static const size_t sizes[8] = { 0, 8, 5000, 65536, 8193, 300001, 1 << 20, 4 << 20 };

static char *old_plugin;

static struct {				/* of this case */
	bool old_dials;			/* the link, which both comms share */
	void (*body)(struct abi *t, int fd, bool is_old);
} play;

struct end {
	struct net *net;
	void *send, *recv;
};

static struct end end_up(struct abi *t, int fd, bool is_old)
{
	struct end e;

	e.net = abi_up(t);
	if (is_old == play.old_dials) {
		e.send = send_to(e.net, fd);
		e.recv = recv_from(e.net, fd);
	} else {
		e.recv = recv_from(e.net, fd);
		e.send = send_to(e.net, fd);
	}
	return e;
}

static void end_down(struct end *e, int fd)
{
	meet(fd);
	if (e->send)
		OK(net_close_send(e->net, e->send));
	if (e->recv)
		OK(net_close_recv(e->net, e->recv));
	abi_down(e->net);
}

static void old_end(struct abi *t, int fd)
{
	t->plugin = old_plugin;
	play.body(t, fd, true);
}

/* This process has the new build, the other one the old build. */
static void between(struct abi *t, bool old_dials, void (*body)(struct abi *t, int fd, bool is_old))
{
	struct peer peer;

	TRUE(strcmp(old_plugin, t->plugin));
	play.old_dials = old_dials;
	play.body = body;
	peer = peer_start(t, old_end);
	body(t, peer.fd, false);
	peer_join(&peer);
}

/* -- connections are reset ---------------------------------------------------------------- */

/* One end resets connections, then the other one. */
static void resets(struct abi *t, int fd, bool is_old)
{
	struct end e = end_up(t, fd, is_old);

	for (int turn = 0; turn < 2; turn++) {
		struct loss l = { .sizes = sizes, .rounds = ROUNDS, .resets = true };

		l.one_in = turn == is_old ? 2 : 0;
		both_ways(t, e.net, e.send, e.recv, &l);
		if (l.one_in) {
			printf("the %s build reset %u connections\n", is_old ? "old" : "new", l.shut);
			fflush(stdout);
			TRUE(l.shut > 2);
		}
		meet(fd);
	}
	end_down(&e, fd);
}

static void resets_of(struct abi *t, const char *lanes, bool old_dials)
{
	setenv("BRAID_LANES", lanes, 1);
	between(t, old_dials, resets);
}

static void old_dials_one(struct abi *t)
{
	resets_of(t, "1", true);
}

static void new_dials_one(struct abi *t)
{
	resets_of(t, "1", false);
}

static void old_dials_four(struct abi *t)
{
	resets_of(t, "4", true);
}

static void new_dials_four(struct abi *t)
{
	resets_of(t, "4", false);
}

static void two_links(struct abi *t)
{
	setenv("BRAID_SHARE", "0", 1);
	resets_of(t, "2", true);
}

/* -- groups, and messages before their receives ------------------------------------------- */

static void group_send(struct end *e)
{
	struct buf b = buf_new(e->net, e->send, GROUP * 1000, 0);
	struct op ops[GROUP];

	for (int i = 0; i < GROUP; i++) {
		ops[i] = op_send(e->net, e->send, &b, 1000, GROUP - 1 - i);
		ops[i].data[0] = b.data + (GROUP - 1 - i) * 1000;
	}
	fill(b.data, b.size, 7);
	ops_run(ops, GROUP);
	buf_free(e->net, &b);
}

static void group_recv(struct end *e)
{
	struct buf b = buf_new(e->net, e->recv, GROUP * 1000, 0);
	struct op op = op_group(e->net, e->recv);

	for (int i = 0; i < GROUP; i++) {
		op_add(&op, &b, 1000, i);
		op.data[i] = b.data + i * 1000;
	}
	ops_run(&op, 1);
	filled(b.data, b.size, 7);
	buf_free(e->net, &b);
}

/* Messages of four sizes; their receives are posted when they have been under way for a while. */
static void early(struct end *e, int fd, bool sends)
{
	void *comm = sends ? e->send : e->recv;
	struct buf b[EARLY];
	struct op ops[EARLY];

	for (unsigned i = 0; i < EARLY; i++) {
		size_t size = sizes[2 * i + 1];

		b[i] = buf_new(e->net, comm, size, 0);
		if (sends)
			fill(b[i].data, size, i);
		ops[i] = sends ? op_send(e->net, comm, &b[i], size, 0) :
				 op_recv(e->net, comm, &b[i], size, 0);
	}
	if (sends)
		ops_post(ops, EARLY);
	meet(fd);
	if (!sends)
		nap_ms(HEAD_START_MS);
	ops_run(ops, EARLY);
	for (unsigned i = 0; i < EARLY; i++) {
		if (!sends)
			filled(b[i].data, b[i].size, i);
		buf_free(e->net, &b[i]);
	}
}

static void kinds(struct abi *t, int fd, bool is_old)
{
	struct end e = end_up(t, fd, is_old);

	for (int turn = 0; turn < 2; turn++) {
		if (turn == is_old)
			group_send(&e);
		else
			group_recv(&e);
		early(&e, fd, turn == is_old);
	}
	end_down(&e, fd);
}

static void old_dials_kinds(struct abi *t)
{
	between(t, true, kinds);
}

static void new_dials_kinds(struct abi *t)
{
	between(t, false, kinds);
}

/* -- one end closes ----------------------------------------------------------------------- */

/* The closing end has no operation posted; the other end has one of 4 MiB, which fails. */
static void closes(struct end *e, int fd, bool closer, bool the_send)
{
	void **comm = closer == the_send ? &e->send : &e->recv;
	struct buf b;
	struct op op;

	if (closer) {
		meet(fd);
		OK(the_send ? net_close_send(e->net, *comm) : net_close_recv(e->net, *comm));
		*comm = NULL;
		return;
	}
	b = buf_new(e->net, *comm, sizes[7], 0);
	op = the_send ? op_recv(e->net, *comm, &b, b.size, 0) : op_send(e->net, *comm, &b, b.size, 0);
	if (!op_post(&op))
		ops_post(&op, 1);
	meet(fd);
	ops_settle(&op, 1);
	RES(ncclRemoteError, op.res);
	buf_free(e->net, &b);
}

/* The old end closes its send comm, and then the new end its own. */
static void senders_close(struct abi *t, int fd, bool is_old)
{
	struct end e = end_up(t, fd, is_old);

	warns_expected();
	closes(&e, fd, is_old, true);
	closes(&e, fd, !is_old, true);
	end_down(&e, fd);
}

static void receivers_close(struct abi *t, int fd, bool is_old)
{
	struct end e = end_up(t, fd, is_old);

	warns_expected();
	closes(&e, fd, is_old, false);
	closes(&e, fd, !is_old, false);
	end_down(&e, fd);
}

static void close_senders(struct abi *t)
{
	between(t, true, senders_close);
}

static void close_receivers(struct abi *t)
{
	between(t, false, receivers_close);
}

static const struct abi_case cases[] = {
	CASE("the old build dials: one lane is reset by either end, and nothing is lost", old_dials_one, ONCE),
	CASE("the new build dials: one lane is reset by either end, and nothing is lost", new_dials_one, ONCE),
	CASE("the old build dials: four lanes are reset by either end, and nothing is lost",
	     old_dials_four, ONCE),
	CASE("the new build dials: four lanes are reset by either end, and nothing is lost",
	     new_dials_four, ONCE),
	CASE("each build dials a link of its own, both are reset, and nothing is lost", two_links, ONCE),
	CASE("the old build dials: groups, and messages before their receives", old_dials_kinds, ONCE),
	CASE("the new build dials: groups, and messages before their receives", new_dials_kinds, ONCE),
	CASE("a sender that closes is a remote error at either end", close_senders, ONCE),
	CASE("a receiver that closes is a remote error at either end", close_receivers, ONCE),
};

int main(void)
{
	const char *path = getenv("BRAID_TEST_OLD");

	if (!path || !*path) {
		printf("skip: BRAID_TEST_OLD names no older plugin: make check-old-new builds one\n");
		return 77;
	}
	old_plugin = realpath(path, NULL);
	if (!old_plugin) {
		perror(path);
		return 99;
	}
	unsetenv("BRAID_TEST_OLD");
	setenv("BRAID_TRANSPORTS", "tcp", 1);
	return abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
}
