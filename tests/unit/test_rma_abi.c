/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_abi.c - what a caller of an RMA table says arrives at plugin/rma.h as it was said, by each
 * version of the ABI.  The tables are this program's own, and tools/rma.c calls them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "plugin/rma.h"
#include "tools/rma.h"

#define P(n) ((void *)(uintptr_t)(0x1000 + (n)))

/* What arrived with the last call. */
static struct {
	const char *call;
	void *obj, *data, *mh;
	void *const *handles;
	uint64_t id, flags, offset, local_off;
	size_t size;
	int n, dev, rank, type, fd, context, class, stride;
	ncclDebugLogger_t log;
	struct braid_rma_put put;
} got;

static void said(const char *call, void *obj)
{
	memset(&got, 0, sizeof(got));
	got.call = call;
	got.obj = obj;
}

ncclResult_t braid_rma_init(void **ret_ctx, uint64_t comm_id, ncclDebugLogger_t log)
{
	said("init", NULL);
	got.id = comm_id;
	got.log = log;
	*ret_ctx = P(1);
	return ncclSuccess;
}

ncclResult_t braid_rma_finalize(void *ctx)
{
	said("finalize", ctx);
	return ncclSystemError;
}

ncclResult_t braid_rma_devices(int *ret_ndev)
{
	*ret_ndev = 3;
	return ncclSuccess;
}

ncclResult_t braid_rma_props(int dev, struct braid_net_props *ret)
{
	static char name[] = "eth0", path[] = "/sys/x";

	if (dev != 2)
		return ncclInvalidArgument;
	*ret = (struct braid_net_props){
		.name = name, .pci_path = path, .guid = 11, .ptr_support = NCCL_PTR_HOST,
		.reg_is_global = 12, .force_flush = 13, .speed_mbps = 14, .port = 15,
		.latency_us = 16, .max_comms = 17, .max_recvs = 18, .ndevs = 1, .devs = { 2 },
		.max_p2p_bytes = 19, .max_coll_bytes = 20, .max_multi_request = 21, .rail = 22,
		.plane = 23,
	};
	return ncclSuccess;
}

ncclResult_t braid_rma_listen(void *ctx, int dev, void *handle, void **ret_listen)
{
	said("listen", ctx);
	got.dev = dev;
	got.data = handle;
	*ret_listen = P(2);
	return ncclSuccess;
}

ncclResult_t braid_rma_connect(void *const *handles, int nranks, int rank, void *listen,
			       void **ret_coll)
{
	said("connect", listen);
	got.handles = handles;
	got.n = nranks;
	got.rank = rank;
	*ret_coll = P(3);
	return ncclSuccess;
}

ncclResult_t braid_rma_context(void *coll, int n, int traffic_class, int rank_stride,
			       void **ret_ctx)
{
	said("context", coll);
	got.n = n;
	got.class = traffic_class;
	got.stride = rank_stride;
	*ret_ctx = P(4);
	return ncclSuccess;
}

ncclResult_t braid_rma_reg(void *coll, void *data, size_t size, int type, uint64_t flags,
			   void **ret_mh)
{
	said("reg", coll);
	got.data = data;
	got.size = size;
	got.type = type;
	got.flags = flags;
	*ret_mh = P(5);
	return ncclSuccess;
}

ncclResult_t braid_rma_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset,
				  int fd, uint64_t flags, void **ret_mh)
{
	braid_rma_reg(coll, data, size, type, flags, ret_mh);
	got.call = "reg_dmabuf";
	got.offset = offset;
	got.fd = fd;
	return ncclSuccess;
}

ncclResult_t braid_rma_dereg(void *coll, void *mh)
{
	said("dereg", coll);
	got.mh = mh;
	return ncclSuccess;
}

ncclResult_t braid_rma_context_end(void *ctx)
{
	said("context_end", ctx);
	return ncclSuccess;
}

ncclResult_t braid_rma_close_coll(void *coll)
{
	said("close_coll", coll);
	return ncclSuccess;
}

ncclResult_t braid_rma_close_listen(void *listen)
{
	said("close_listen", listen);
	return ncclSuccess;
}

ncclResult_t braid_rma_put(void *ctx, int context, const struct braid_rma_put *put, void **ret_req)
{
	said("put", ctx);
	got.context = context;
	got.put = *put;
	*ret_req = P(6);
	return ncclSuccess;
}

ncclResult_t braid_rma_get(void *ctx, int context, uint64_t remote_off, void *remote, size_t size,
			   uint64_t local_off, void *local, uint32_t rank, uint32_t flags,
			   void **ret_req)
{
	said("get", ctx);
	got.context = context;
	got.offset = remote_off;
	got.data = remote;
	got.size = size;
	got.local_off = local_off;
	got.mh = local;
	got.rank = (int)rank;
	got.flags = flags;
	*ret_req = P(7);
	return ncclSuccess;
}

ncclResult_t braid_rma_flush(void *ctx, int context, void *mh, uint32_t rank, void **ret_req)
{
	said("flush", ctx);
	got.context = context;
	got.mh = mh;
	got.rank = (int)rank;
	*ret_req = NULL;
	return ncclSuccess;
}

ncclResult_t braid_rma_test(void *coll, void *req, int *done)
{
	said("test", coll);
	got.data = req;
	*done = 1;
	return ncclSuccess;
}

ncclResult_t braid_rma_progress(void *ctx)
{
	said("progress", ctx);
	return ncclRemoteError;
}

ncclResult_t braid_rma_last_error(void *ctx, bool *ret_failed)
{
	said("last_error", ctx);
	*ret_failed = true;
	return ncclSuccess;
}

/* -- the cases ---------------------------------------------------------------------------- */

static void log_nothing(int level, unsigned long flags, const char *where, int line,
			const char *fmt, ...)
{
	(void)level, (void)flags, (void)where, (void)line, (void)fmt;
}

/* The program's own tables, by version `abi`. */
static struct rma *load(int abi)
{
	char err[256] = "";
	struct rma *rma = rma_load(NULL, abi, err, sizeof(err));

	assert_string_equal(err, "");
	assert_non_null(rma);
	return rma;
}

#define EACH_VERSION(rma)							\
	for (int abi = RMA_ABI_OLDEST; abi <= RMA_ABI_NEWEST; abi++)		\
		for (struct rma *rma = load(abi); rma; rma_unload(rma), rma = NULL)

static void came(const char *call, void *obj)
{
	assert_string_equal(got.call, call);
	assert_ptr_equal(got.obj, obj);
}

static void the_newest_version_is_taken(void **state)
{
	struct rma *rma = load(0);
	char err[256];

	(void)state;
	assert_int_equal(rma->abi, 16);
	assert_string_equal(rma->name, "Braid");
	assert_true(rma->has_dmabuf && rma->has_get && rma->has_flush && rma->has_progress &&
		    rma->has_last_error);
	rma_unload(rma);
	assert_null(rma_load(NULL, 13, err, sizeof(err)));
	assert_string_equal(err, "no RMA ABI version 13: 14 to 16 are known");
	assert_null(rma_load("/nowhere/x.so", 0, err, sizeof(err)));
	assert_non_null(strstr(err, "/nowhere/x.so"));
}

static void a_device_says_that_a_cpu_drives_it(void **state)
{
	ncclNetProperties_v12_t p;
	int n;

	(void)state;
	EACH_VERSION(rma) {
		assert_int_equal(rma_devices(rma, &n), ncclSuccess);
		assert_int_equal(n, 3);
		assert_int_equal(rma_props(rma, 9, &p), ncclInvalidArgument);
		assert_int_equal(rma_props(rma, 2, &p), ncclSuccess);
		assert_int_equal(p.netDeviceType, NCCL_NET_DEVICE_GIN_PROXY);
		assert_int_equal(p.netDeviceVersion, 0);
		assert_string_equal(p.name, "eth0");
		assert_string_equal(p.pciPath, "/sys/x");
		assert_int_equal(p.guid, 11);
		assert_int_equal(p.ptrSupport, NCCL_PTR_HOST);
		assert_true(p.regIsGlobal == 12 && p.forceFlush == 13 && p.speed == 14);
		assert_true(p.port == 15 && p.latency > 15 && p.latency < 17);
		assert_true(p.maxComms == 17 && p.maxRecvs == 18);
		assert_true(p.vProps.ndevs == 1 && p.vProps.devs[0] == 2);
		assert_true(p.maxP2pBytes == 19 && p.maxCollBytes == 20);
		assert_true(p.maxMultiRequestSize == 21 && p.railId == 22 && p.planeId == 23);
	}
}

static void each_version_makes_and_ends_what_it_was_asked_to(void **state)
{
	void *handles[2] = { P(20), P(21) }, *ret;
	bool all = true;

	(void)state;
	EACH_VERSION(rma) {
		assert_int_equal(rma_init(rma, &ret, 99, log_nothing), ncclSuccess);
		assert_true(ret == P(1) && got.id == 99 && got.log == log_nothing);
		assert_int_equal(rma_listen(rma, P(1), 2, handles[0], &ret), ncclSuccess);
		came("listen", P(1));
		assert_true(ret == P(2) && got.dev == 2 && got.data == P(20));
		assert_int_equal(rma_connect(rma, P(50), handles, 2, 1, P(2), &ret), ncclSuccess);
		came("connect", P(2));
		assert_true(ret == P(3) && got.handles == handles && got.n == 2 && got.rank == 1);
		assert_int_equal(rma_flushes_all(rma, P(3), &all), ncclSuccess);
		assert_false(all);
		assert_int_equal(rma_context(rma, P(3), 4, 5, 6, &ret), ncclSuccess);
		came("context", P(3));
		assert_true(ret == P(4) && got.n == 4 && got.class == 5 && got.stride == 6);
		assert_int_equal(rma_context_end(rma, P(4)), ncclSuccess);
		came("context_end", P(4));
		assert_int_equal(rma_close_coll(rma, P(3)), ncclSuccess);
		came("close_coll", P(3));
		assert_int_equal(rma_close_listen(rma, P(2)), ncclSuccess);
		came("close_listen", P(2));
		assert_int_equal(rma_finalize(rma, P(1)), ncclSystemError);
		came("finalize", P(1));
	}
}

static void each_version_registers_what_it_was_given(void **state)
{
	void *mh;

	(void)state;
	EACH_VERSION(rma) {
		assert_int_equal(rma_reg(rma, P(3), P(30), 1UL << 33, NCCL_PTR_CUDA,
					 NCCL_RMA_FORCE_SO, &mh), ncclSuccess);
		came("reg", P(3));
		assert_true(mh == P(5) && got.data == P(30) && got.size == 1UL << 33);
		assert_true(got.type == NCCL_PTR_CUDA && got.flags == NCCL_RMA_FORCE_SO);
		assert_int_equal(rma_reg_dmabuf(rma, P(3), P(30), 31, NCCL_PTR_CUDA, 32, 33,
						NCCL_RMA_NEVER_RESET, &mh), ncclSuccess);
		came("reg_dmabuf", P(3));
		assert_true(got.data == P(30) && got.size == 31 && got.offset == 32);
		assert_true(got.fd == 33 && got.flags == NCCL_RMA_NEVER_RESET);
		assert_int_equal(rma_dereg(rma, P(3), P(5)), ncclSuccess);
		came("dereg", P(3));
		assert_ptr_equal(got.mh, P(5));
	}
}

static void a_put_arrives_with_its_signal_or_without(void **state)
{
	const struct braid_rma_put *put = &got.put;
	void *req = NULL;

	(void)state;
	EACH_VERSION(rma) {
		uint32_t flags = abi >= 15 ? NCCL_RMA_AGGREGATE : 0;

		assert_int_equal(rma_iput(rma, P(4), 1, 2, P(40), 3, 4, P(41), 5,
					  NCCL_RMA_AGGREGATE, &req), ncclSuccess);
		came("put", P(4));
		assert_true(req == P(6) && got.context == 1 && put->flags == flags);
		assert_true(put->src_off == 2 && put->src == P(40) && put->size == 3);
		assert_true(put->dst_off == 4 && put->dst == P(41) && put->rank == 5);
		assert_true(!put->has_signal && !put->strong && !put->signal && !put->op);

		for (int strong = 0; strong < 2; strong++) {
			assert_int_equal(rma_iput_signal(rma, P(4), 1, 2, P(40), 3, 4, P(41), 5, 6,
							 P(42), 7, NCCL_RMA_SIGNAL_ADD, strong,
							 NCCL_RMA_AGGREGATE, &req), ncclSuccess);
			came("put", P(4));
			assert_true(req == P(6) && got.context == 1 && put->flags == flags);
			assert_true(put->src_off == 2 && put->src == P(40) && put->size == 3);
			assert_true(put->dst_off == 4 && put->dst == P(41) && put->rank == 5);
			assert_true(put->has_signal && put->strong == strong);
			assert_true(put->signal_off == 6 && put->signal == P(42));
			assert_true(put->value == 7 && put->op == NCCL_RMA_SIGNAL_ADD);
		}
	}
}

static void a_get_and_what_follows_arrive(void **state)
{
	bool failed = false;
	void *req = NULL;
	int done = 0;

	(void)state;
	EACH_VERSION(rma) {
		uint32_t flags = abi >= 15 ? NCCL_RMA_AGGREGATE : 0;

		assert_int_equal(rma_iget(rma, P(4), 1, 2, P(40), 3, 4, P(41), 5,
					  NCCL_RMA_AGGREGATE, &req), ncclSuccess);
		came("get", P(4));
		assert_true(req == P(7) && got.context == 1 && got.flags == flags);
		assert_true(got.offset == 2 && got.data == P(40) && got.size == 3);
		assert_true(got.local_off == 4 && got.mh == P(41) && got.rank == 5);
		assert_int_equal(rma_iflush(rma, P(4), 1, P(5), 2, &req), ncclSuccess);
		came("flush", P(4));
		assert_true(!req && got.context == 1 && got.mh == P(5) && got.rank == 2);
		assert_int_equal(rma_test(rma, P(3), P(7), &done), ncclSuccess);
		came("test", P(3));
		assert_true(done == 1 && got.data == P(7));
		assert_int_equal(rma_progress(rma, P(4)), ncclRemoteError);
		came("progress", P(4));
		assert_int_equal(rma_last_error(rma, P(4), &failed), ncclSuccess);
		came("last_error", P(4));
		assert_true(failed);
	}
}

static void a_call_that_a_plugin_may_lack_is_not_made(void **state)
{
	static const ncclRma_v16_t empty;
	struct rma rma = { .abi = 16, .table = &empty };
	bool failed = true;
	void *ret;

	(void)state;
	assert_int_equal(rma_reg_dmabuf(&rma, P(3), P(30), 1, NCCL_PTR_CUDA, 0, 3, 0, &ret),
			 ncclInvalidUsage);
	assert_int_equal(rma_iget(&rma, P(4), 0, 0, P(40), 1, 0, P(41), 0, 0, &ret),
			 ncclInvalidUsage);
	assert_int_equal(rma_iflush(&rma, P(4), 0, P(5), 0, &ret), ncclInvalidUsage);
	assert_int_equal(rma_progress(&rma, P(4)), ncclSuccess);
	assert_int_equal(rma_last_error(&rma, P(4), &failed), ncclSuccess);
	assert_false(failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_newest_version_is_taken),
		cmocka_unit_test(a_device_says_that_a_cpu_drives_it),
		cmocka_unit_test(each_version_makes_and_ends_what_it_was_asked_to),
		cmocka_unit_test(each_version_registers_what_it_was_given),
		cmocka_unit_test(a_put_arrives_with_its_signal_or_without),
		cmocka_unit_test(a_get_and_what_follows_arrive),
		cmocka_unit_test(a_call_that_a_plugin_may_lack_is_not_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
