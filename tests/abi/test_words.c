/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_words.c - what init logs about the user's variables: filters whose elements have no meaning or
 * no match, and variables of NCCL's that have no effect here.
 *
 * Each row is a process with that environment and the fake NICs nic0 (two ports) and nic1, over
 * loopback.  It gives a line that must be logged, one that must not, and whether init succeeds.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* clearenv */
#endif
#include "tests/abi/abi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct row {
	const char *env[3];
	const char *warns;		/* text of a WARN; NULL: no WARN is logged */
	const char *tells;		/* text of an INFO; NULL: not checked */
	const char *never;		/* text that no line has */
	bool refused;			/* init fails */
};

static char warned[8192], told[65536];

static void keep(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
static void keep(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char *to = level == NCCL_LOG_WARN ? warned : told;
	size_t at = strlen(to), size = to == warned ? sizeof(warned) : sizeof(told);
	va_list ap;

	(void)flags, (void)file, (void)line;
	va_start(ap, fmt);
	vsnprintf(to + at, size - at, fmt, ap);
	va_end(ap);
	strncat(to, "\n", size - strlen(to) - 1);
}

static void fakes_load(void)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/tests/fake/.libs/libibverbs.so.1", build ? build : ".");
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
}

_Noreturn static void play(const struct abi *t, const struct row *r)
{
	struct net *net;
	ncclResult_t res;
	char err[512];

	setenv("BRAID_TEST_FAKE_DEVICES", "nic0:rocev2,netdev=lo,ports=2;nic1:ib", 1);
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	for (unsigned i = 0; i < 3 && r->env[i]; i++) {
		if (strncmp(r->env[i], "NCCL_SOCKET_IFNAME", 18) == 0)
			unsetenv("BRAID_SOCKET_IFNAME");
		putenv((char *)(uintptr_t)r->env[i]);
	}
	net = net_load(t->plugin, t->abi, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	res = net_init(net, 1, -1, keep, NULL);
	if ((res != ncclSuccess) != r->refused || (r->warns ? !strstr(warned, r->warns) : *warned) ||
	    (r->tells && !strstr(told, r->tells)) ||
	    (r->never && (strstr(warned, r->never) || strstr(told, r->never))))
		FAIL("%s: init gives %d.\nWARN: %s\nINFO: %s", r->env[0], res, warned, told);
	_exit(0);
}

static void play_all(const struct abi *t, const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int status = -1;
		pid_t pid = fork();

		TRUE(pid >= 0);
		if (!pid)
			play(t, &rows[i]);
		TRUE(waitpid(pid, &status, 0) == pid);
		if (status)
			FAIL("row %zu, %s", i, rows[i].env[0]);
	}
}

#define PLAY(t, rows) play_all(t, rows, sizeof(rows) / sizeof((rows)[0]))

static void ports(struct abi *t)
{
	static const struct row rows[] = {
		{ .env = { "NCCL_IB_HCA=nic0" }, .tells = "nic1:1 is left out by NCCL_IB_HCA" },
		{ .env = { "BRAID_IB_HCA=nic0" }, .tells = "nic1:1 is left out by BRAID_IB_HCA" },
		/* Signs that NCCL takes for parts of names, but that can have one meaning only. */
		{ .env = { "NCCL_IB_HCA=^=nic0,^=nic1" }, .warns = "NCCL_IB_HCA=^=nic0,^=nic1 leaves no "
		  "active RDMA port", .tells = "is read as ^=nic0,nic1", .never = ", verbs" },
		{ .env = { "NCCL_IB_HCA==nic0,=nic1" }, .tells = "is read as =nic0,nic1",
		  .never = "is left out" },
		{ .env = { "NCCL_IB_HCA=\"nic0\"" }, .tells = "is read as nic0" },
		{ .env = { "NCCL_IB_HCA= nic0 , nic1 " }, .tells = "is read as nic0,nic1",
		  .never = "is left out" },
		{ .env = { "NCCL_IB_HCA=^nic0,^nic1:1" }, .warns = "[filter-leaves-none]" },
		/* Elements that match nothing. */
		{ .env = { "NCCL_IB_HCA=nci0" }, .warns = "NCCL_IB_HCA=nci0: 'nci0' matches no RDMA port; "
		  "there are nic0:1, nic0:2, nic1:1. No port is left, so RDMA is not used "
		  "[filter-unmatched]" },
		{ .env = { "BRAID_IB_HCA=nic0,mlx5_7" }, .warns = "BRAID_IB_HCA=nic0,mlx5_7: 'mlx5_7' "
		  "matches no RDMA port", .never = "No port is left" },
		{ .env = { "NCCL_IB_HCA=nic0:0" }, .warns = "'nic0:0' matches no RDMA port" },
		{ .env = { "NCCL_IB_HCA=nic0:one" }, .warns = "'nic0:0' matches no RDMA port" },
		{ .env = { "NCCL_IB_HCA=nic1:2,nic0" }, .warns = "'nic1:2' matches no RDMA port" },
		{ .env = { "NCCL_IB_HCA=nic0 nic1" }, .warns = "'nic0 nic1' matches no RDMA port" },
		{ .env = { "NCCL_IB_HCA=nic0;nic1" }, .warns = "'nic0;nic1' matches no RDMA port" },
		/* A port to exclude need not exist. */
		{ .env = { "NCCL_IB_HCA=^mlx4" }, .tells = "'mlx4' excludes no RDMA port" },
		{ .env = { "NCCL_IB_HCA=^nic" }, .warns = "NCCL_IB_HCA=^nic leaves no active RDMA port, so "
		  "RDMA is not used; it leaves out nic0:1" },
		/* Elements with two meanings. */
		{ .env = { "NCCL_IB_HCA=nic0,^nic1" }, .refused = true, .warns = "NCCL_IB_HCA=nic0,^nic1 "
		  "can't be read" },
		{ .env = { "BRAID_IB_HCA==nic0,^nic1" }, .refused = true, .warns = "[bad-filter]" },
		/* RDMA is off, so the filter is not used. */
		{ .env = { "NCCL_IB_HCA=nci0", "NCCL_IB_DISABLE=2" },
		  .tells = "NCCL_IB_DISABLE is set", .never = "matches no" },
		{ .env = { "NCCL_IB_HCA=nci0", "BRAID_TRANSPORTS=tcp" }, .never = "matches no" },
	};

	PLAY(t, rows);
}

static void not_opened(struct abi *t)
{
	static const struct row rows[] = {
		{ .env = { "BRAID_TEST_FAKE_CTL=fail 2 ibv_open_device EPERM" }, .warns = "nic1 can't be used, "
		  "since this process may not open it: Operation not permitted. Give it /dev/infiniband/"
		  "uverbs1", .tells = ", verbs" },
		{ .env = { "BRAID_TEST_FAKE_CTL=fail 1 ibv_open_device EPERM",
		  "BRAID_TRANSPORTS=verbs,tcp" }, .warns = "[device-not-opened]" },
		{ .env = { "BRAID_TEST_FAKE_CTL=fail 2 ibv_open_device EPERM", "NCCL_IB_HCA=nic0" } },
		{ .env = { "BRAID_TEST_FAKE_CTL=fail 2 ibv_open_device ENODEV" }, .tells = "nic1 No such" },
	};

	PLAY(t, rows);
}

static void interfaces(struct abi *t)
{
	static const struct row rows[] = {
		{ .env = { "NCCL_SOCKET_IFNAME=lo,nosuch0" }, .warns = "NCCL_SOCKET_IFNAME=lo,nosuch0: "
		  "'nosuch0' matches no interface; there are " },
		{ .env = { "BRAID_SOCKET_IFNAME=nosuch0,lo" }, .warns = "BRAID_SOCKET_IFNAME=nosuch0,lo: "
		  "'nosuch0' matches no interface" },
		{ .env = { "NCCL_SOCKET_IFNAME==lo,=lo" }, .tells = "is read as =lo,lo" },
		{ .env = { "NCCL_SOCKET_IFNAME='lo'" }, .tells = "is read as lo" },
		{ .env = { "NCCL_SOCKET_IFNAME=^nosuch0" }, .tells = "'nosuch0' excludes no interface" },
		{ .env = { "NCCL_SOCKET_IFNAME=nosuch0" },
		  .warns = "Set NCCL_SOCKET_IFNAME to one that is up and has an address [no-interface]" },
		{ .env = { "BRAID_TRANSPORTS=verbs", "NCCL_IB_DISABLE=1" }, .warns = "none of "
		  "BRAID_TRANSPORTS=verbs can use anything of this machine; braid info says why "
		  "[no-transport]" },
		{ .env = { "BRAID_SOCKET_IFNAME=nosuch0" },
		  .warns = "Set BRAID_SOCKET_IFNAME to one" },
		{ .env = { "NCCL_SOCKET_IFNAME=lo,^nosuch0" }, .refused = true, .warns = "[bad-filter]" },
	};

	PLAY(t, rows);
}

static void unheeded(struct abi *t)
{
	static const struct row rows[] = {
		{ .env = { "NCCL_IB_SPLIT_DATA_ON_QPS=1" },
		  .tells = "not heeded: NCCL_IB_SPLIT_DATA_ON_QPS=1 (" },
		{ .env = { "NCCL_SOCKET_FAMILY=IPv6" }, .warns = "NCCL_SOCKET_FAMILY" },
		{ .env = { "NCCL_IB_ADDR_RANGE=10.0.0.0/33" }, .warns = "NCCL_IB_ADDR_RANGE" },
		{ .env = { "NCCL_IB_ADDR_RANGE=10.0.0.0/8" }, .never = "not heeded" },
		{ .env = { "NCCL_NET_GDR_LEVEL=PHB" }, .never = "not heeded" },
	};

	PLAY(t, rows);
}

static const struct abi_case cases[] = {
	CASE("elements of NCCL_IB_HCA that match or mean nothing are reported", ports, ONCE),
	CASE("a NIC that may not be opened is reported, with its file", not_opened, ONCE),
	CASE("elements of NCCL_SOCKET_IFNAME that match or mean nothing are reported",
	     interfaces, ONCE),
	CASE("NCCL's variables that have no effect are reported", unheeded, ONCE),
};

int main(void)
{
	fakes_load();
	return abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
}
