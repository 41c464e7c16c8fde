/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_gpu.c - GPU memory sent and received by UCX.
 *
 * tests/ucx/gpu.sh runs it with the fake CUDA driver (tests/fakecuda) and the shim of libucp
 * (tests/ucx/shim.c).
 */
#include "tests/abi/gpu.h"

#include <stdlib.h>

enum { FEW = 100 };

static void ucx_offers(struct abi *t)
{
	gpu_offer_is(t, "", "", HOST | CUDA);
	EQ(0, gpu_do("mode"));
}

static void ucx_silent(struct abi *t)
{
	unsetenv("BRAID_TEST_UCP_CUDA");
	gpu_offer_is(t, "", "", HOST);
}

static void ucx_none(struct abi *t)
{
	setenv("BRAID_GPU", "none", 1);
	gpu_offer_is(t, "", "", HOST);
}

static void ucx_broken(struct abi *t)
{
	setenv("BRAID_TEST_UCP_CUDA", "broken", 1);
	gpu_offer_is(t, "", "", HOST);
}

static void ucx_lies(struct abi *t)
{
	setenv("BRAID_TEST_UCP_CUDA", "lies", 1);
	gpu_offer_is(t, "", "", HOST);
}

static void ucx_messages(struct abi *t)
{
	gpu_messages(t, "", "");
}

/* Endpoints fail: messages go on over TCP, copied by the driver, and return to UCX. */
static void ucx_breaks(struct abi *t)
{
	struct pair p = { 0 };
	struct buf from, to;
	struct net *net;

	setenv("BRAID_TRANSPORTS", "ucx,tcp", 1);
	setenv("BRAID_TEST_UCP_BREAK", "3000", 1);
	net = gpu_up(t, "", "");
	warns_expected();
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	for (unsigned i = 0; !gpu_do("copies"); i++) {
		TRUE(i < 20000);
		TRUE(pass(net, &p, &from, &to, i % 3 ? MEG - i : 8192, i));
	}
	for (unsigned i = 0; i < FEW; i++)
		TRUE(pass(net, &p, &from, &to, MEG - i, i));
	EQ(0, gpu_do("blocked"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	pair_close(net, &p);
	EQ(0, gpu_do("stray"));
	abi_down(net);
}

static void ucx_sender(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	meet(fd);
	send_one(net, send, BIG, 1);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

/* The service thread moves the message: it has no context of its own. */
static void ucx_nobody_calls(struct abi *t)
{
	gpu_comes_alone(t, ucx_sender);
	EQ(0, gpu_do("copies"));
}

static const struct abi_case ucx_cases[] = {
	CASE("GPU memory is offered where UCX has moved some", ucx_offers, .since = 6),
	CASE("GPU memory is not offered where UCX does not report support", ucx_silent, ONCE),
	CASE("BRAID_GPU=none: GPU memory is not offered", ucx_none, ONCE),
	CASE("UCX reports support and fails: GPU memory is not offered", ucx_broken, ONCE),
	CASE("UCX brings other bytes: GPU memory is not offered", ucx_lies, ONCE),
	CASE("messages between GPU and host, all sizes, early and late", ucx_messages, ONCE),
	CASE("endpoints break under messages of a GPU: they go on over TCP", ucx_breaks, ONCE),
	CASE("a message reaches a GPU although the application makes no call",
	     ucx_nobody_calls, ONCE),
	CASE("memory of a GPU is taken back with messages under way", gpu_taken_back, ONCE),
};

GPU_MAIN(ucx_cases)
