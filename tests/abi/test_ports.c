/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_ports.c - RDMA ports that are not like most: how many, what they can't do, how they are
 * addressed, and what changes while they are used.
 *
 * Each case describes a fake NIC (tests/fake/ctl.h), looks at what the plugin says of it, and sends
 * messages to itself or to another process, with every byte checked.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include "tests/abi/abi.h"

#include <dlfcn.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MOST = 1 << 20, MESSAGES = 40, BACK_MS = 20000 };

/* -- the NICs ----------------------------------------------------------------------------- */

static char dir[64];			/* of the fabrics */
static long (*fake_ctl)(const char *cmd);

static void load(const char *name)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");
	char path[PATH_MAX];
	void *lib;

	snprintf(path, sizeof(path), "%s/tests/fake/.libs/%s", build ? build : ".", name);
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	if (!fake_ctl)
		*(void **)&fake_ctl = dlsym(lib, "braid_fake_ctl");
}

/* In containers it is small, and a file that has no room is a SIGBUS. */
static bool has_room(const char *where)
{
	struct statvfs s;

	return !statvfs(where, &s) && (uint64_t)s.f_bavail * s.f_frsize >= UINT64_C(1) << 30;
}

static int forget(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void nics(const char *text)
{
	char file[96];

	snprintf(file, sizeof(file), "%s/%d", dir, (int)getpid());
	setenv("BRAID_TEST_FAKE_FABRIC", file, 1);
	setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
	setenv("BRAID_LANES", "1", 1);
}

static long ctl(const char *cmd)
{
	long n = fake_ctl(cmd);

	if (n < 0)
		FAIL("%s: %s", cmd, strerror((int)-n));
	return n;
}

/* -- what the plugin says ----------------------------------------------------------------- */

static char said[32768];
static atomic_uint said_len;

__attribute__((format(printf, 5, 6)))
static void hear(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[2048];
	unsigned at, len;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	net_log(level, flags, file, line, "%s", text);
	if (level != NCCL_LOG_WARN && level != NCCL_LOG_INFO)
		return;
	len = (unsigned)strlen(text);
	at = atomic_fetch_add(&said_len, len + 1);
	if (at + len + 2 > sizeof(said))
		return;
	memcpy(said + at, text, len);
	said[at + len] = '\n';
}

static bool was_said(const char *words)
{
	return strstr(said, words);
}

static void must_say(const char *words)
{
	if (!was_said(words))
		FAIL("nobody said '%s'", words);
}

static void must_not_say(const char *words)
{
	if (was_said(words))
		FAIL("somebody said '%s'", words);
}

/* -- messages ----------------------------------------------------------------------------- */

static struct net *up(struct abi *t)
{
	char err[512];
	struct net *net = net_load(t->plugin, t->abi, err, sizeof(err));
	int ndev = 0;

	if (!net)
		FAIL("%s", err);
	OK(net_init(net, rnd(t), NCCL_NET_TRAFFIC_CLASS_UNDEF, hear, NULL));
	OK(net_devices(net, &ndev));
	TRUE(ndev >= 1);
	return net;
}

static size_t size_of(unsigned i)
{
	static const size_t sizes[] = { 8, 0, 5000, 65536, 8193, 300001, 64, MOST };

	return sizes[i % 8];
}

/* Do messages to ourselves arrive whole, and by the NIC?  The plugin stays up. */
static bool by_rdma(struct net *net)
{
	long before = ctl("count sends");
	struct pair p;

	pair_open(net, &p);
	for (unsigned i = 0; i < MESSAGES; i++)
		exchange(net, p.send, p.recv, size_of(i), i);
	pair_close(net, &p);
	return ctl("count sends") - before > MESSAGES / 2;
}

static void over(struct abi *t, const char *text, bool rdma)
{
	struct net *net;

	nics(text);
	net = up(t);
	EQ(rdma, by_rdma(net));
	abi_down(net);
}

/* -- how many ----------------------------------------------------------------------------- */

/* NICs in switchdev mode have a port for each virtual function; one of them has addresses. */
static void many_ports(struct abi *t)
{
	uint64_t from = now_us();
	struct net *net;
	int ndev = 0;

	nics("nic0:rocev2,netdev=lo,ports=255,addressed=1");
	net = up(t);
	printf("init took %llu ms\n", (unsigned long long)(now_us() - from) / 1000);
	OK(net_devices(net, &ndev));
	EQ(1, ndev);
	must_say("device 0: nic0:1 ");
	must_say("nic0:2-255 has no GID");
	TRUE(by_rdma(net));
	abi_down(net);
}

/* -- what they can't do ------------------------------------------------------------------- */

static void no_rc(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "efa0:efa;nic0:rocev2,netdev=lo", true);
	must_say("efa0 has no RC queue pairs");
	must_not_say("subnet manager");
}

static void no_handles(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,ah=0", true);
	must_not_say("immediate data");
}

/* What failed is said, and not what may follow from it. */
static void no_loop(struct abi *t)
{
	setenv("BRAID_TEST_FAKE_CTL", "fail 1 ibv_create_ah ETIMEDOUT", 1);
	over(t, "nic0:rocev2,netdev=lo", true);
	must_say("nic0:1 can't be connected to itself (ibv_create_ah: Connection timed out)");
	must_not_say("immediate data");
}

static void no_pkey(struct abi *t)
{
	warns_expected();
	setenv("BRAID_IB_PKEY", "3", 1);
	over(t, "nic0:rocev2,netdev=lo", false);
	must_say("partition key index 3 is not in the port's table");
	must_not_say("immediate data");
}

/* A NIC that has immediate data, but can't say how long a write was. */
static void no_length(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,imm=2", true);
	must_say("nic0:1 shows no immediate data");
}

/* -- whose addresses ---------------------------------------------------------------------- */

/* In another network namespace there is an interface with lo's index. */
static void foreign_index(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,addr=198.51.100.7,ifindex=1", false);
	must_say("nic0:1 has no GID of an interface that is used");
}

/* ... with its addresses as well, but another name. */
static void foreign_name(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,netdev=lo,path=0000:01:00.0,ndev=eth7", false);
	must_say("nic0:1 has no GID of an interface that is used");
}

static void own_name(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,netdev=lo,path=0000:01:00.0,ndev=lo", true);
}

/* The table has both: ours is taken, though the other would be liked as much. */
static void foreign_beside_own(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	setenv("BRAID_TEST_FAKE_CTL", "gid nic0 3 none;gid nic0 2 none;gid nic0 9 198.51.100.7", 1);
	over(t, "nic0:rocev2,netdev=lo", true);
	must_not_say("GID 9");
}

static const struct abi_case cases[] = {
	CASE("a device without RC queue pairs is named as such", no_rc, ONCE),
	CASE("RoCE: a driver without address handles is used", no_handles, ONCE),
	CASE("RoCE: a port that can't reach itself says why", no_loop, ONCE),
	CASE("RoCE: a partition key that is not there is named", no_pkey, ONCE),
	CASE("RoCE: immediate data without a length is none", no_length, ONCE),
	CASE("RoCE: an address of another network namespace is not ours", foreign_index, ONCE),
	CASE("RoCE: nor is an interface of another name", foreign_name, ONCE),
	CASE("RoCE: one of our name is", own_name, ONCE),
	CASE("RoCE: addresses of others are passed over", foreign_beside_own, ONCE),
	CASE("RoCE: of 255 ports the one with addresses is used", many_ports, ONCE, .seconds = 60),
};

int main(void)
{
	int failed;

	load("libibverbs.so.1");
	load("librdmacm.so.1");
	snprintf(dir, sizeof(dir), "%s/braid-test-XXXXXX", has_room("/dev/shm") ? "/dev/shm" : "/tmp");
	if (!mkdtemp(dir))
		return 99;
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	nftw(dir, forget, 8, FTW_DEPTH | FTW_PHYS);
	return failed;
}
