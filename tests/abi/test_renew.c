/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_renew.c - lanes that are replaced for new keys, under load.
 *
 * A direction whose key can't be changed in place gets a new one by a dial of its lane.  That is so
 * where the kernel seals or opens, and where an end's hello says that its kernel may.  In these
 * processes setsockopt() is ours, so the kernel takes over a direction on every host.  It seals
 * nothing, so the other end of such a direction must be the kernel's, too.
 */
#include "tests/abi/loss.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ULP = 31, SOL_OF_TLS = 282, RENEWALS = 4 };

static const size_t sizes[] = { 8, 0, 5000, 65536, 8193, 300001, 64, 1 << 20 };

/* What one end has set. */
struct end {
	const char *by, *records, *checksum;
	bool counts;			/* it knows that a lane was replaced for new keys */
};

static struct end dialler, accepter;
static bool kernel_has_tls;

/* --- the kernel --------------------------------------------------------------------------- */

static atomic_uint taken;		/* directions of sockets that the kernel took over */

static int fails(int err)
{
	errno = err;
	return -1;
}

__attribute__((visibility("default")))
int setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	struct sockaddr_storage sa;
	socklen_t size = sizeof(sa);

	if (level == SOL_OF_TLS) {
		atomic_fetch_add(&taken, 1);
		return 0;
	}
	if (level != IPPROTO_TCP || name != ULP)
		return (int)syscall(SYS_setsockopt, fd, level, name, val, len);
	if (!kernel_has_tls)
		return fails(ENOENT);
	return getpeername(fd, (struct sockaddr *)&sa, &size) ? fails(ENOTCONN) : 0;
}

/* --- two processes ------------------------------------------------------------------------ */

static struct net *up(struct abi *t, const struct end *e)
{
	setenv("BRAID_ENCRYPT", "require", 1);
	setenv("BRAID_ENCRYPT_BY", e->by, 1);
	setenv("BRAID_KEY_RECORDS", e->records, 1);
	setenv("BRAID_CHECKSUM", e->checksum, 1);
	warns_expected();
	abi_hear("has new keys");
	return abi_up(t);
}

/* Messages both ways, in parts, until both ends have seen enough renewals. */
static void talk(struct abi *t, struct net *net, void *send, void *recv, const struct end *e, int fd)
{
	struct loss part = { .sizes = sizes, .rounds = 100 };
	uint64_t end = deadline_ms(60000);
	bool mine, theirs;

	do {
		both_ways(t, net, send, recv, &part);
		mine = !e->counts || abi_heard_lines(false) >= RENEWALS;
		give(fd, &mine, sizeof(mine));
		take(fd, &theirs, sizeof(theirs));
		if (now_us() > end)
			FAIL("%u renewals", abi_heard_lines(false));
	} while (!mine || !theirs);
	printf("v%d: %s: %u lanes had new keys, the kernel took over %u directions\n", t->abi, e->by,
	       abi_heard_lines(false), atomic_load(&taken));
	EQ(kernel_has_tls, atomic_load(&taken) > 0);
}

static void accepts(struct abi *t, int fd)
{
	struct net *net = up(t, &accepter);
	void *recv = recv_from(net, fd), *send = send_to(net, fd);

	talk(t, net, send, recv, &accepter, fd);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/* The first connect() dials the link, and the other end's then uses it. */
static void renew(struct abi *t, struct end dials, struct end answers)
{
	struct peer peer;
	struct net *net;
	void *send, *recv;

	streams_are_ours();
	dialler = dials;
	accepter = answers;
	peer = peer_start(t, accepts);
	net = up(t, &dialler);
	send = send_to(net, peer.fd);
	recv = recv_from(net, peer.fd);
	talk(t, net, send, recv, &dialler, peer.fd);
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

/* --- who can't change keys ---------------------------------------------------------------- */

static void dialler_keeps(struct abi *t)
{
	renew(t, (struct end){ "kernel-receive", "2048", "off", true },
	      (struct end){ "user", "2048", "off", true });
}

static void accepter_keeps(struct abi *t)
{
	renew(t, (struct end){ "user", "2048", "off", true },
	      (struct end){ "kernel-receive", "2048", "off", false });
}

static void both_keep(struct abi *t)
{
	renew(t, (struct end){ "kernel-receive", "8388608", "off", true },
	      (struct end){ "kernel", "2048", "on", true });
}

static void many_lanes(struct abi *t)
{
	setenv("BRAID_LANES", "4", 1);
	renew(t, (struct end){ "kernel-receive", "2048", "on", true },
	      (struct end){ "kernel-receive", "3000", "on", false });
}

/* They seal 4096 records before the lane is dialled: it is lost, and taken up again. */
static void too_few_records(struct abi *t)
{
	renew(t, (struct end){ "kernel-receive", "2048", "off", true },
	      (struct end){ "kernel-receive", "2048", "off", true });
}

static void kernel_both(struct abi *t)
{
	kernel_has_tls = true;
	renew(t, (struct end){ "kernel", "3000", "off", true },
	      (struct end){ "kernel", "3000", "off", false });
}

static void kernel_seals_here(struct abi *t)
{
	kernel_has_tls = true;
	renew(t, (struct end){ "kernel-send", "3000", "off", true },
	      (struct end){ "kernel-receive", "3000", "off", false });
}

static void kernel_seals_there(struct abi *t)
{
	kernel_has_tls = true;
	renew(t, (struct end){ "kernel-receive", "3000", "off", true },
	      (struct end){ "kernel-send", "3000", "off", true });
}

static const struct abi_case cases[] = {
	CASE("lanes get new keys that the accepter asks for, and lose nothing", dialler_keeps, ONCE),
	CASE("lanes get new keys that the dialler needs, and lose nothing", accepter_keeps, ONCE),
	CASE("lanes get new keys where neither end can change them, and lose nothing", both_keep, ONCE),
	CASE("four lanes get new keys in turn, and lose nothing", many_lanes, ONCE),
	CASE("lanes whose keys run out before the dial are taken up again, and lose nothing",
	     too_few_records, ONCE),
	CASE("lanes get new keys where the kernel seals and opens, and lose nothing", kernel_both, ONCE),
	CASE("lanes get new keys where the dialler's kernel seals, and lose nothing",
	     kernel_seals_here, ONCE),
	CASE("lanes get new keys where the accepter's kernel seals, and lose nothing",
	     kernel_seals_there, ONCE),
};

ABI_MAIN(cases)
