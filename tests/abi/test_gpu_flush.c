/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_flush.c - iflush(): by the NIC, by the driver and through GDRCopy. */
#include "tests/abi/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSHES = 300, STUCK_MS = 500, THREADS = 4, CUTS = 20, FEW = 100, GONE_MS = 40000 };

static void flushes(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct braid_net_props props;
	struct buf b;
	long reads;

	pair_open(net, &p);
	OK(net_props(net, 0, &props));
	EQ(0, props.force_flush);
	b = gpu_new(net, p.recv, MEG);
	reads = nic_do("count sends");
	OK(flush(net, p.recv, &b, MEG));
	TRUE(nic_do("count sends") > reads);
	OK(flush(net, p.recv, &b, 0));		/* no bytes: nothing to wait for */
	gpu_end(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

static void late(struct abi *t)
{
	gpu_late_on(t, ALL_WAYS ",late=1");
}

/* The plugin with BRAID_GPU_FLUSH_BY=by, which must say that it chose `want`. */
static struct net *up_by(struct abi *t, const char *by, const char *want)
{
	struct net *net;

	setenv("BRAID_GPU_FLUSH_BY", by, 1);
	net = gpu_up_heard(t, ALL_WAYS);
	if (strncmp(flush_said, want, strlen(want)) != 0)
		FAIL("what is said is: %s", flush_said);
	return net;
}

/* n flushes, one by one; returns how many the CPU did, not the NIC. */
static long by_cpu(struct net *net, struct pair *p, struct buf *b, unsigned n)
{
	long seen = gpu_do("seen"), reads = nic_do("count sends"), by;

	for (unsigned i = 0; i < n; i++)
		OK(flush(net, p->recv, b, MEG));
	by = gpu_do("seen") - seen;
	if (by != n)
		TRUE(nic_do("count sends") >= reads + (long)n - by);
	return by;
}

/* The flush is complete when iflush() returns. */
static void gdrcopy(struct abi *t)
{
	struct net *net;
	struct pair p = { 0 };
	struct buf b;

	fakecuda_load();
	fake_load("fakecuda", "libgdrapi.so.2");
	net = up_by(t, "gdrcopy", "flush by GDRCopy, ");
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	TRUE(!flush_begin(net, p.recv, &b, MEG));
	EQ(FEW, by_cpu(net, &p, &b, FEW));
	gpu_end(net, &b);
	pair_close(net, &p);
	end_well();
}

static void gdrcopy_late(struct abi *t)
{
	long reads;

	setenv("BRAID_GPU_FLUSH_BY", "gdrcopy", 1);
	fakecuda_load();
	fake_load("fakecuda", "libgdrapi.so.2");
	reads = gpu_do("seen");
	gpu_late_on(t, ALL_WAYS ",late=1");
	TRUE(gpu_do("seen") > reads);
}

/* The driver takes the window away; another GPU never had one: the NIC flushes. */
static void gdrcopy_gone(struct abi *t)
{
	struct net *net;
	struct pair p = { 0 };
	struct buf b, other;

	fakecuda_load();
	fake_load("fakecuda", "libgdrapi.so.2");
	net = up_by(t, "gdrcopy", "flush by GDRCopy, ");
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	gpu_do("number 1");
	other = gpu_new(net, p.recv, MEG);
	EQ(0, by_cpu(net, &p, &other, 3));
	EQ(3, by_cpu(net, &p, &b, 3));
	gpu_do("take");
	EQ(0, by_cpu(net, &p, &b, 3));
	gpu_end(net, &b);
	gpu_end(net, &other);
	pair_close(net, &p);
	end_well();
}

static void gdrcopy_none(struct abi *t)
{
	struct net *net = up_by(t, "gdrcopy", "flush by the NIC, ");
	struct pair p = { 0 };
	struct buf b;

	/* A real library may be installed: its driver is missing or does not know a fake GPU. */
	if (!strstr(flush_said, "libgdrapi.so.2") && !strstr(flush_said, "gdr_pin_buffer"))
		FAIL("what is said is: %s", flush_said);
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	EQ(0, by_cpu(net, &p, &b, 3));
	end_well();
}

/* GDRCopy is not used where nothing shows that it is valid. */
static void gdrcopy_unasked(struct abi *t)
{
	fakecuda_load();
	fake_load("fakecuda", "libgdrapi.so.2");
	abi_down(up_by(t, "auto", "flush by the NIC, "));
	if (!strstr(flush_said, "not seen to be below one PCIe switch"))
		FAIL("what is said is: %s", flush_said);
	EQ(0, gpu_do("live"));
}

static void driver_flushes(struct abi *t)
{
	struct net *net;
	struct pair p = { 0 };
	struct buf b;

	fakecuda_load();
	gpu_do("flush 1");
	net = up_by(t, "driver", "flush by the driver");
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	EQ(3, by_cpu(net, &p, &b, 3));
	gpu_do("context 0");		/* of this thread */
	EQ(0, by_cpu(net, &p, &b, 3));
	end_well();
}

static void driver_does_not(struct abi *t)
{
	abi_down(up_by(t, "driver", "flush by the NIC, "));
	if (!strstr(flush_said, "the driver: Operation not supported"))
		FAIL("what is said is: %s", flush_said);
}

static void flush_fails(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;

	warns_expected();
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	nap_ms(50);				/* earlier traffic ends */
	nic_do("fail 1 post EIO on");
	TRUE(flush(net, p.recv, &b, MEG) != ncclSuccess);
	nic_do("fail 0");
	OK(flush(net, p.recv, &b, MEG));	/* over a new queue pair */
	end_well();
}

/* More flushes of two comms than the NIC takes at once; together they last longer than one may. */
static void flush_slow(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p[2] = { 0 };
	struct buf b[2];
	void *req[FLUSHES];
	uint64_t start;

	for (unsigned i = 0; i < 2; i++) {
		pair_open(net, &p[i]);
		b[i] = gpu_new(net, p[i].recv, MEG);
	}
	nic_do("delay nic0 2000");
	start = now_us();
	for (unsigned i = 0; i < FLUSHES; i++) {
		req[i] = flush_begin(net, p[i % 2].recv, &b[i % 2], MEG);
		TRUE(req[i]);
	}
	for (unsigned i = 0; i < FLUSHES; i++)
		OK(flush_end(net, req[FLUSHES - 1 - i]));
	TRUE(now_us() - start > STUCK_MS * 1000);	/* that no flush timed out */
	laps_say(t, "with a slow NIC");
	nic_do("delay nic0 0");
	for (unsigned i = 0; i < 2; i++) {
		gpu_end(net, &b[i]);
		pair_close(net, &p[i]);
	}
	abi_down(net);
}

static void flush_lost(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;
	void *req;
	int done;

	warns_expected();
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	nap_ms(50);
	nic_do("drop nic0 1");
	req = flush_begin(net, p.recv, &b, MEG);
	RES(ncclSystemError, flush_end(net, req));
	if (!strstr(net_last_warn(), "could not read memory of the GPU"))
		FAIL("the reason is missing: %s", net_last_warn());
	RES(ncclSystemError, net_test(net, req, &done, NULL));	/* the error stays */
	nic_do("drop nic0 0");
	OK(flush(net, p.recv, &b, MEG));
	laps_say(t, "with a NIC that never answers");
	end_well();
}

static void flush_gone(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf b;

	warns_expected();
	pair_open(net, &p);
	b = gpu_new(net, p.recv, MEG);
	nic_do("fatal nic0");
	TRUE(flush(net, p.recv, &b, MEG) != ncclSuccess);
	laps_say(t, "with a NIC whose device is gone");
	end_well();
}

struct flusher {
	pthread_t thread;
	struct net *net;
	struct pair p;
	struct buf b;
	unsigned all, failed;
};

static atomic_bool enough;

static void *flush_many(void *arg)
{
	struct flusher *f = arg;
	void *data = f->b.data, *mr = f->b.mr;
	int size = MEG;

	for (; !atomic_load(&enough); f->all++) {
		uint64_t end = deadline_ms(GONE_MS);
		ncclResult_t res;
		int done = 0;
		void *req;

		OK(net_iflush(f->net, f->p.recv, 1, &data, &size, &mr, &req));
		for (res = ncclSuccess; req && !done && res == ncclSuccess;) {
			res = net_test(f->net, req, &done, NULL);
			wait_tick(end, __FILE__, __LINE__, "a flush");
		}
		f->failed += res != ncclSuccess;
	}
	return NULL;
}

/* The queue pair fails now and then; a flush fails only if that happens to it twice. */
static void flush_threads(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	static struct flusher f[THREADS];
	unsigned all = 0, failed = 0;

	warns_expected();
	for (unsigned i = 0; i < THREADS; i++) {
		f[i].net = net;
		pair_open(net, &f[i].p);
		f[i].b = gpu_new(net, f[i].p.recv, MEG);
	}
	for (unsigned i = 0; i < THREADS; i++)
		TRUE(!pthread_create(&f[i].thread, NULL, flush_many, &f[i]));
	for (unsigned i = 0; i < CUTS; i++) {
		/* Other memory of the same comms is registered and deregistered meanwhile. */
		for (uint64_t until = now_us() + 10000; now_us() < until;) {
			struct buf other = gpu_new(net, f[i % THREADS].p.recv, MEG);

			gpu_end(net, &other);
		}
		for (unsigned q = QPNS; q--;) {	/* downwards: new ones have higher numbers */
			char text[32];

			snprintf(text, sizeof(text), "qp %u error", q);
			nic_ctl(text);
		}
	}
	atomic_store(&enough, true);
	for (unsigned i = 0; i < THREADS; i++) {
		TRUE(!pthread_join(f[i].thread, NULL));
		all += f[i].all;
		failed += f[i].failed;
		OK(flush(net, f[i].p.recv, &f[i].b, MEG));
		gpu_end(net, &f[i].b);
		pair_close(net, &f[i].p);
	}
	printf("%u of %u flushes of %u threads failed when queue pairs ended\n", failed, all, THREADS);
	fflush(stdout);
	TRUE(all > FEW && failed < CUTS);	/* without a second try: two a cut */
	abi_down(net);
}

/* Memory is deregistered and a comm closed under flushes: flushes of other comms still succeed. */
static void flush_dropped(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p[3] = { 0 };
	struct buf b[3];
	void *req[3];

	for (unsigned i = 0; i < 3; i++) {
		pair_open(net, &p[i]);
		b[i] = gpu_new(net, p[i].recv, MEG);
	}
	nic_do("delay nic0 100000");
	for (unsigned i = 0; i < 3; i++)
		req[i] = flush_begin(net, p[i].recv, &b[i], MEG);
	gpu_end(net, &b[0]);
	RES(ncclInternalError, flush_end(net, req[0]));
	OK(net_close_recv(net, p[1].recv));
	p[1].recv = NULL;
	OK(flush_end(net, req[2]));
	nic_do("delay nic0 0");
	OK(flush(net, p[2].recv, &b[2], MEG));
	gpu_end(net, &b[2]);
	EQ(0, gpu_free((uint64_t)(uintptr_t)b[1].data));
	for (unsigned i = 0; i < 3; i++)
		pair_close(net, &p[i]);
	abi_down(net);
}

static void late_sender(struct abi *t, int fd)
{
	struct net *net;
	void *send = begin_by_tcp(t, fd, &net);

	send_one(net, send, 8, 1);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

/* The NIC is busy with a slow copy: a flush must not wait for it. */
static void flush_behind(struct abi *t)
{
	struct peer peer = peer_start(t, late_sender);
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct buf in;
	struct op op;
	long before;
	void *recv;

	warns_expected();		/* TCP carries the link */
	recv = recv_from(net, peer.fd);
	in = gpu_new(net, recv, 8);
	op = op_recv(net, recv, &in, 8, 0);
	ops_post(&op, 1);
	nic_do("delay nic0 100000");
	before = nic_do("count sends");
	meet(peer.fd);
	WAIT_FOR(nic_do("count sends") > before);	/* by the service thread */
	OK(flush(net, recv, &in, 8));
	laps_say(t, "while a copy is under way");
	ops_run(&op, 1);
	filled(bytes_of(&in), 8, 1);
	nic_do("delay nic0 0");
	meet(peer.fd);
	gpu_end(net, &in);
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void always(struct abi *t)
{
	struct braid_net_props props;
	struct net *net;

	setenv("BRAID_GPU_FLUSH", "2", 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	OK(net_props(net, 0, &props));
	EQ(1, props.force_flush);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("a flush is a read of the NIC's", flushes, ONCE),
	CASE("data that the NIC wrote and the GPU can't see yet is visible after a flush",
	     late, ONCE),
	CASE("a flush through GDRCopy is over in the call, and no NIC reads", gdrcopy, ONCE),
	CASE("data that the NIC wrote is visible to the GPU after a flush through GDRCopy",
	     gdrcopy_late, ONCE),
	CASE("the NIC flushes another GPU, and a GPU whose GDRCopy window is gone",
	     gdrcopy_gone, ONCE),
	CASE("without GDRCopy the NIC flushes, and the log says so", gdrcopy_none, ONCE),
	CASE("by default GDRCopy is used below one PCIe switch alone", gdrcopy_unasked, ONCE),
	CASE("a flush by the driver, where a context is current", driver_flushes, ONCE),
	CASE("a driver that has no flush: the NIC flushes, and the log says so",
	     driver_does_not, ONCE),
	CASE("a flush that fails is an error, and the next one works",
	     flush_fails, ONCE, .warns = "flush-failed"),
	CASE("flushes that a slow NIC answers late wait in no call", flush_slow, ONCE),
	CASE("flushes that are never answered wait in no call, and are errors", flush_lost, ONCE),
	CASE("flushes of a NIC whose device is gone wait in no call", flush_gone, ONCE),
	CASE("flushes of a NIC that copies for another comm wait in no call", flush_behind, ONCE),
	CASE("threads that flush at one time, and queue pairs that end meanwhile", flush_threads, ONCE),
	CASE("memory and comms end with flushes in flight, and flushes of others finish",
	     flush_dropped, ONCE),
	CASE("BRAID_GPU_FLUSH=2: NCCL is asked to flush always", always, ONCE),
};

GPU_MAIN(cases)
