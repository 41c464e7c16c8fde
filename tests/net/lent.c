/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lent.c - a rank takes memory back while the kernel still has to send from it.
 *
 *	lent send|close|recv DIR
 *
 * Once both are connected, a script shuts the way and makes DIR/shut.  The sender posts a message,
 * waits until it has left for the kernel, takes its memory back (send: deregMr; close: closeSend and
 * finalize), writes over it, and makes DIR/gone.  Then the way is opened.  The receiver must not get a
 * byte of what was written later: its receive fails, or has the message.  Which it leaves in DIR/got.
 * DIR/pid is the receiver.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/net/meet.h"
#include "tools/drive.h"

enum { SIZE = 64 << 10, IN_KERNEL_MS = 20, TRIES_MS = 60000, SEED = 77, LATER = 78 };

/* Take memory back.  `end`: with all that the process has. */
static void take_back(struct net *net, void *comm, struct buf *b, bool end)
{
	uint64_t t = now_us();

	if (end) {
		OK(net_close_send(net, comm));
		meet_end(net);
	} else {
		OK(net_dereg(net, comm, b->mr));
	}
	b->mr = NULL;
	printf("the kernel let go after %u ms\n", (unsigned)((now_us() - t) / 1000));
}

static void sender(struct net *net, bool end)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *comm = NULL;
	struct buf b;
	struct op op;

	wait_for("handle", TRIES_MS);
	read_handle("handle", handle);
	WAIT_FOR(connect_step(net, handle, &comm));
	send_one(net, comm, 1000, 1);
	b = buf_new(net, comm, SIZE, 0);
	fill(b.data, SIZE, SEED);
	leave("up", "", 0);
	wait_for("shut", TRIES_MS);
	op = op_send(net, comm, &b, SIZE, 0);
	ops_post(&op, 1);
	for (unsigned ms = 0; ms < IN_KERNEL_MS; ms += 10) {
		TRUE(!op_test(&op));
		nap_ms(10);
	}
	take_back(net, comm, &b, end);
	fill(b.data, SIZE, LATER);
	leave("gone", "", 0);
	wait_for("got", TRIES_MS);
	if (end)
		return;
	OK(net_close_send(net, comm));
	meet_end(net);
}

static void receiver(struct net *net)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *listen = NULL, *comm = NULL;
	struct buf b;
	struct op op;
	const char *got;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	leave("pid", pid, strlen(pid));
	OK(net_listen(net, 0, handle, &listen));
	leave("handle", handle, sizeof(handle));
	WAIT_FOR(accept_step(net, listen, &comm));
	recv_one(net, comm, 1000, 1);
	b = buf_new(net, comm, SIZE, 0);
	op = op_recv(net, comm, &b, SIZE, 0);
	ops_post(&op, 1);
	WAIT_FOR_MS(TRIES_MS, op_test(&op));
	if (op.res == ncclSuccess)
		filled(b.data, SIZE, SEED);
	got = op.res == ncclSuccess ? "the message" : "an error";
	leave("got", got, strlen(got));
	OK(net_close_recv(net, comm));
	OK(net_close_listen(net, listen));
	meet_end(net);
}

int main(int argc, char **argv)
{
	struct net *net;

	if (argc != 3)
		return 2;
	net = meet_at(argv[1], argv[2]);
	if (!strcmp(argv[1], "recv"))
		receiver(net);
	else
		sender(net, !strcmp(argv[1], "close"));
	return 0;
}
