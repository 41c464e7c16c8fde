/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_fail.c - each call into the driver, GDRCopy and the NIC fails once, in a process of its own. */
#include "tests/abi/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *life_nic = ALL_WAYS;

/* A short life of a process: what was offered must work, except where the failing call comes later. */
static void life(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", life_nic);
	struct pair p = { 0 };
	struct buf to;
	uint64_t at;

	pair_open(net, &p);
	to = buf_new(net, p.recv, MEG, 0);
	if (gpu_offered(net) & CUDA) {
		struct buf from = { .size = MEG };

		if (gpu_alloc(&at, MEG))
			_exit(0);
		from.data = (uint8_t *)(uintptr_t)at;
		if (net_reg(net, p.send, from.data, MEG, NCCL_PTR_CUDA, &from.mr) == ncclSuccess) {
			struct op ops[] = { op_send(net, p.send, &from, MEG, 0),
					    op_recv(net, p.recv, &to, MEG, 0) };

			fill(bytes_of(&from), MEG, 3);
			ops_run(ops, 2);
			filled(to.data, MEG, 3);
			OK(net_dereg(net, p.send, from.mr));
		}
		from.comm = p.recv;
		if (net_reg(net, p.recv, from.data, MEG, NCCL_PTR_CUDA, &from.mr) == ncclSuccess) {
			OK(flush(net, p.recv, &from, MEG));
			OK(net_dereg(net, p.recv, from.mr));
		}
		gpu_free(at);
	}
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* `one` in a process of its own, where the call named by `cmd` fails; false: there was no k-th such call. */
static bool life_in_fork(struct abi *t, void (*one)(struct abi *t), long (*ctl)(const char *cmd),
			 const char *cmd, unsigned k)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		TRUE(ctl(cmd) >= 0);
		one(t);
		_exit(ctl("calls") >= (long)k ? 0 : 42);
	}
	TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 42))
		FAIL("status 0x%x after: %s", (unsigned)status, cmd);
	return !WEXITSTATUS(status);
}

/* The k-th call of `which` fails ("": the k-th of all). */
static bool life_with(struct abi *t, long (*ctl)(const char *cmd), const char *which, unsigned k)
{
	char text[64];

	snprintf(text, sizeof(text), "fail %u %s", k, which);
	return life_in_fork(t, life, ctl, text, k);
}

/* With copies by the driver: data must be there when test() says done. */
static void staged_life(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf from, to, host;

	pair_open(net, &p);
	host = buf_new(net, p.send, MEG, 0);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	if (pass(net, &p, &host, &to, 8192, 1)) {
		nic_do("fatal nic0");
		pass(net, &p, &from, &to, MEG, 2);
	}
	EQ(0, gpu_do("blocked"));
	EQ(0, gpu_do("stray"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	buf_free(net, &host);
	pair_close(net, &p);
	abi_down(net);
}

static void stage_fails(struct abi *t)
{
	static const char *const calls[] = {
		"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
		"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemHostAlloc", "cuMemFreeHost",
		"cuStreamCreate", "cuStreamDestroy_v2", "cuEventCreate", "cuEventDestroy_v2",
		"cuEventRecord", "cuEventQuery", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
		"cuMemcpy2DAsync_v2", "cuThreadExchangeStreamCaptureMode",
	};
	static const char *const how[] = { "1", "2", "3", "1 on", "5 on" };
	unsigned lives = 0, failed = 0;

	fakecuda_load();
	warns_expected();
	setenv("BRAID_GPU_STAGE", "2", 1);
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (unsigned k = 0; k < sizeof(how) / sizeof(how[0]); k++, lives++) {
			char text[80];

			snprintf(text, sizeof(text), "fail %c %s%s", how[k][0], calls[i], how[k] + 1);
			failed += life_in_fork(t, staged_life, gpu_ctl, text, (unsigned)(how[k][0] - '0'));
		}
	}
	printf("%u lives, in %u of them a call of the driver's failed\n", lives, failed);
	fflush(stdout);
	TRUE(failed > lives / 2);
}

static void gdrcopy_fails(struct abi *t)
{
	static const char *const calls[] = { "gdr_open", "gdr_pin_buffer", "gdr_map", "gdr_get_callback_flag" };

	setenv("BRAID_GPU_FLUSH_BY", "gdrcopy", 1);
	fakecuda_load();
	fake_load("fakecuda", "libgdrapi.so.2");
	warns_expected();
	for (unsigned i = 0; i < 4; i++) {
		unsigned k = 1;

		while (life_with(t, gpu_ctl, calls[i], k))
			k++;
		TRUE(k > 1);
	}
}

static void driver_flush_fails(struct abi *t)
{
	unsigned k = 1;

	setenv("BRAID_GPU_FLUSH_BY", "driver", 1);
	fakecuda_load();
	gpu_do("flush 1");
	warns_expected();
	while (life_with(t, gpu_ctl, "cuFlushGPUDirectRDMAWrites", k))
		k++;
	TRUE(k > 1);
}

static void driver_fails(struct abi *t)
{
	unsigned k = 1;

	fakecuda_load();
	warns_expected();
	while (life_with(t, gpu_ctl, "", k))
		k++;
	printf("%u calls into the driver failed, one in each life\n", k - 1);
	fflush(stdout);
	TRUE(k > 10);
}

static void nic_fails(struct abi *t)
{
	static const char *const calls[] = { "ibv_reg_dmabuf_mr", "ibv_reg_mr_iova2" };

	fakecuda_load();
	warns_expected();
	for (unsigned i = 0; i < 2; i++) {
		unsigned k = 1;

		while (life_with(t, nic_ctl, calls[i], k))
			k++;
		TRUE(k > 1);
	}
}

static void direct_fails(struct abi *t)
{
	static const char *const calls[] = { "mlx5dv_get_data_direct_sysfs_path", "mlx5dv_reg_dmabuf_mr",
					     "ibv_reg_dmabuf_mr" };

	fakecuda_load();
	fake_load("fake", "libmlx5.so.1");
	life_nic = DIRECT ALL_WAYS;
	warns_expected();
	for (unsigned i = 0; i < 3; i++) {
		unsigned k = 1;

		while (life_with(t, nic_ctl, calls[i], k))
			k++;
		TRUE(k > 1);
	}
}

static const struct abi_case cases[] = {
	CASE("Data Direct: each call fails once", direct_fails, ONCE, .seconds = 240),
	CASE("each call into the driver fails once", driver_fails, ONCE, .seconds = 240),
	CASE("each call of GDRCopy's fails once", gdrcopy_fails, ONCE, .seconds = 240),
	CASE("the driver's flush fails once", driver_flush_fails, ONCE, .seconds = 240),
	CASE("calls for the driver's copies fail", stage_fails, ONCE, .seconds = 240),
	CASE("each registration fails once", nic_fails, ONCE, .seconds = 240),
};

GPU_MAIN(cases)
