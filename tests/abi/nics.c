/* SPDX-License-Identifier: BSD-3-Clause */
/* nics.c - see nics.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include "tests/abi/nics.h"

#include <dlfcn.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/lib/queued.h"

enum { STOP = 3, NAP_US = 200, PACE_US = 500 };

/* -- the NICs ----------------------------------------------------------------------------- */

static char dir[64];			/* of the fabrics */
long (*fake_ctl)(const char *cmd);
const char *(*fake_failed)(void);

static void load(const char *libs, const char *name)
{
	char path[PATH_MAX];
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", libs, name);
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	if (!fake_ctl) {
		*(void **)&fake_ctl = dlsym(lib, "braid_fake_ctl");
		*(void **)&fake_failed = dlsym(lib, "braid_fake_failed");
	}
}

/* /dev/shm is small in containers, and a mapped file on a full filesystem causes SIGBUS. */
static bool has_room(const char *where)
{
	struct statvfs s;

	return !statvfs(where, &s) && (uint64_t)s.f_bavail * s.f_frsize >= UINT64_C(1) << 30;
}

/* dlopen() by name finds a library that is loaded already, so load the fakes before the plugin. */
void fakes_load(void)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");
	char libs[PATH_MAX];

	snprintf(libs, sizeof(libs), "%s/tests/fake/.libs", build ? build : ".");
	load(libs, "libibverbs.so.1");
	load(libs, "librdmacm.so.1");
	snprintf(dir, sizeof(dir), "%s/braid-test-XXXXXX", has_room("/dev/shm") ? "/dev/shm" : "/tmp");
	if (!mkdtemp(dir))
		exit(99);
}

static int forget(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

/* Removes the fabrics of other processes: many of them fill a disk that has large blocks. */
static int forget_others(const char *path, const struct stat *st, int type, struct FTW *at)
{
	char own[sizeof(dir) + 16];
	int len = snprintf(own, sizeof(own), "%s/%d", dir, (int)getpid());
	bool is_own = !strncmp(path, own, (size_t)len) && strchr("./", path[len]);

	return at->level && !is_own ? forget(path, st, type, at) : 0;
}

void fakes_forget(void)
{
	nftw(dir, forget, 8, FTW_DEPTH | FTW_PHYS);
}

/* Sets this case's NICs; `text` is as in BRAID_TEST_FAKE_DEVICES. */
void fake_nics(const char *text)
{
	char file[sizeof(dir) + 16];

	nftw(dir, forget_others, 8, FTW_DEPTH | FTW_PHYS);
	snprintf(file, sizeof(file), "%s/%d", dir, (int)getpid());
	setenv("BRAID_TEST_FAKE_FABRIC", file, 1);
	setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
}

void nic(const char *kind, const char *more)
{
	char text[256];

	snprintf(text, sizeof(text), "nic0:%s,netdev=lo%s", kind, more);
	fake_nics(text);
}

long ctl(const char *cmd)
{
	long n = fake_ctl(cmd);

	if (n < 0)
		FAIL("%s: %s", cmd, strerror((int)-n));
	return n;
}

struct net *fused_up(struct abi *t)
{
	static const int members[] = { 0, 1 };
	struct net *net = abi_up(t);
	int dev;

	OK(net_fuse(net, 2, members, &dev));
	on_device(dev);
	return net;
}

/* -- what the plugin says ----------------------------------------------------------------- */

static struct lines said;

__attribute__((format(printf, 5, 6)))
static void hear(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	net_log(level, flags, file, line, "%s", text);
	if (level == NCCL_LOG_WARN || level == NCCL_LOG_INFO)
		lines_add(&said, text);
}

const char *was_said(const char *words)
{
	return strstr(said.text, words);
}

void must_say(const char *words)
{
	if (!was_said(words))
		FAIL("nobody said '%s'", words);
}

void must_not_say(const char *words)
{
	if (was_said(words))
		FAIL("somebody said '%s'", words);
}

struct net *heard_up(struct abi *t)
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

/* -- traffic ------------------------------------------------------------------------------ */

const size_t sizes[8] = { 8, 0, 5000, 65536, 8193, 300001, 64, MOST };

static size_t size_of(const struct talk *k, uint64_t i)
{
	size_t size = sizes[i * 2654435761u % 4294967296u >> 13 & 7];

	return k->most && size > k->most ? k->most : size;
}

static void again(struct net *net, struct talk *k, uint64_t n)
{
	unsigned i = n % DEPTH;
	size_t size = k->stop ? STOP : size_of(k, n);

	if (k->is_recv) {
		k->op[i] = op_recv(net, k->comm, &k->buf[i], MOST, 0);
		return;
	}
	fill(k->buf[i].data, size, n);
	k->op[i] = op_send(net, k->comm, &k->buf[i], size, 0);
	k->stops += k->stop;
}

static void talk_new(struct net *net, struct talk *k, void *comm, bool is_recv, size_t most)
{
	*k = (struct talk){ .comm = comm, .is_recv = is_recv, .most = most };
	for (unsigned i = 0; i < DEPTH; i++) {
		k->buf[i] = buf_new(net, comm, MOST, i);
		again(net, k, i);
	}
}

static bool talk_over(const struct talk *k)
{
	return k->stops == DEPTH && (k->is_recv || k->op[k->oldest % DEPTH].done);
}

static void check(struct talk *k, const struct op *op)
{
	size_t size = op->got[0] == STOP ? STOP : size_of(k, k->oldest);

	OK(op->res);
	if (!k->is_recv)
		return;
	EQ(size, op->got[0]);
	filled(op->data[0], size, k->oldest);
	k->stops += size == STOP;
}

static void note_pause(uint64_t *moved_us, uint64_t *longest_us)
{
	uint64_t now = now_us();

	if (now - *moved_us > *longest_us)
		*longest_us = now - *moved_us;
	*moved_us = now;
}

static _Thread_local uint64_t slowest_us;

/* Notes how long a call took, less the time for which the thread waited for a CPU. */
static bool timed(bool (*call)(struct op *op), struct op *op)
{
	uint64_t queued = queued_ns(), from = now_us(), took;
	bool res = call(op);

	took = now_us() - from;
	queued = (queued_ns() - queued) / 1000;
	took -= queued < took ? queued : took;
	if (took > slowest_us)
		slowest_us = took;
	return res;
}

/* Posts and tests messages in order, once each.  True if the oldest is done. */
static bool talk_step(struct net *net, struct talk *k)
{
	struct op *op = &k->op[k->oldest % DEPTH];

	for (unsigned n = 0; n < DEPTH; n++) {
		struct op *o = &k->op[(k->oldest + n) % DEPTH];

		if (!o->posted && !timed(op_post, o))
			break;
	}
	if (!op->posted || op->done || !timed(op_test, op))
		return false;
	check(k, op);
	k->oldest++;
	note_pause(&k->moved_us, &k->longest_us);
	if (!k->stops || (!k->is_recv && k->stops < DEPTH))
		again(net, k, k->oldest + DEPTH - 1);
	return true;
}

bool job_step(struct job *j)
{
	bool moved;

	slowest_us = j->slowest_us;
	moved = talk_step(j->net, &j->out);
	moved = talk_step(j->net, &j->in) || moved;
	j->slowest_us = slowest_us;
	if (moved)
		note_pause(&j->moved_us, &j->longest_us);
	/* A recovery takes seconds: leave the CPU to other tests meanwhile. */
	usleep(moved ? PACE_US : NAP_US);
	return moved;
}

void job_play(struct job *j, unsigned ms)
{
	for (uint64_t until = now_us() + ms * 1000; now_us() < until;)
		job_step(j);
}

/* Goes on until n more messages have come in; fails after `ms`. */
void job_need(struct job *j, unsigned n, unsigned ms)
{
	uint64_t want = j->in.oldest + n, end = deadline_ms(ms);

	while (j->in.oldest < want) {
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "messages");
	}
}

bool job_over(const struct job *j)
{
	return talk_over(&j->out) && talk_over(&j->in);
}

void job_finish(struct job *j)
{
	uint64_t end = deadline_ms(60000);

	while (!job_over(j)) {
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "the last messages");
	}
	for (unsigned i = 0; i < DEPTH; i++) {
		buf_free(j->net, &j->out.buf[i]);
		buf_free(j->net, &j->in.buf[i]);
	}
}

void job_rest(struct job *j)
{
	j->moved_us = j->in.moved_us = j->out.moved_us = now_us();
	j->longest_us = j->in.longest_us = j->out.longest_us = 0;
}

void job_new_small(struct job *j, struct net *net, void *send, void *recv, size_t most)
{
	j->net = net;
	talk_new(net, &j->out, send, false, most);
	talk_new(net, &j->in, recv, true, most);
	j->slowest_us = 0;
	job_rest(j);
}

void job_new(struct job *j, struct net *net, void *send, void *recv)
{
	job_new_small(j, net, send, recv, 0);
}

void job_close(struct job *j)
{
	OK(net_close_send(j->net, j->out.comm));
	OK(net_close_recv(j->net, j->in.comm));
	abi_down(j->net);
}

/* -- interfaces --------------------------------------------------------------------------- */

/* The name of an interface other than loopback; skips the case if there is none. */
const char *second_interface(void)
{
	static char name[IF_NAMESIZE];
	struct ifaddrs *all, *i;

	TRUE(!getifaddrs(&all));
	for (i = all; i && !name[0]; i = i->ifa_next) {
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP &&
		    i->ifa_flags & IFF_RUNNING && !(i->ifa_flags & IFF_LOOPBACK))
			snprintf(name, sizeof(name), "%s", i->ifa_name);
	}
	freeifaddrs(all);
	if (!name[0])
		skip_because("only one interface is up");
	return name;
}
