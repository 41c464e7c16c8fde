/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lent.c - a rank takes memory back while the kernel still has to send from it.
 *
 *	lent send|recv DIR
 *
 * Once both are connected, tests/net/zerocopy.sh shuts the way and makes DIR/shut.  The sender posts a
 * message, waits until it has left for the kernel, takes its memory back, writes over it, and makes
 * DIR/gone.  Then the way is opened.  The receiver must not get a byte of what was written later: its
 * receive fails, or has the message.  It ends once that is so, and leaves which in DIR/got.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/drive.h"

enum { SIZE = 64 << 10, IN_KERNEL_MS = 20, TRIES_MS = 60000, SEED = 77, LATER = 78 };

static const char *me, *dir;

static void failed(const char *file, int line, const char *text)
{
	fprintf(stderr, "%s: %s:%d: %s\n", me, file, line, text);
}

static void leave(const char *name, const void *data, size_t len)
{
	char part[256], whole[256];
	FILE *f;

	snprintf(part, sizeof(part), "%s/%s.part", dir, name);
	snprintf(whole, sizeof(whole), "%s/%s", dir, name);
	f = fopen(part, "w");
	TRUE(f && fwrite(data, 1, len, f) == len);
	TRUE(!fclose(f) && !rename(part, whole));
}

static void wait_for(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	WAIT_FOR_MS(TRIES_MS, !access(path, R_OK));
}

static struct net *up(void)
{
	struct net *net;
	char err[512];

	net_log_verbose(true);
	net = net_load(getenv("BRAID_TEST_PLUGIN"), NET_ABI_NEWEST, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	OK(net_init(net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
	return net;
}

static void sender(struct net *net)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *comm = NULL;
	struct buf b;
	struct op op;
	char path[256];
	FILE *f;

	wait_for("handle");
	snprintf(path, sizeof(path), "%s/handle", dir);
	f = fopen(path, "r");
	TRUE(f && fread(handle, 1, sizeof(handle), f) == sizeof(handle));
	fclose(f);
	WAIT_FOR(connect_step(net, handle, &comm));
	send_one(net, comm, 1000, 1);
	b = buf_new(net, comm, SIZE, 0);
	fill(b.data, SIZE, SEED);
	leave("up", "", 0);
	wait_for("shut");
	op = op_send(net, comm, &b, SIZE, 0);
	ops_post(&op, 1);
	for (unsigned ms = 0; ms < IN_KERNEL_MS; ms += 10) {
		TRUE(!op_test(&op));
		nap_ms(10);
	}
	OK(net_dereg(net, comm, b.mr));
	b.mr = NULL;
	fill(b.data, SIZE, LATER);
	leave("gone", "", 0);
	wait_for("got");
	OK(net_close_send(net, comm));
}

static void receiver(struct net *net)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *listen = NULL, *comm = NULL;
	struct buf b;
	struct op op;

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
	leave("got", op.res == ncclSuccess ? "it" : "an error", 2);
	OK(net_close_recv(net, comm));
	OK(net_close_listen(net, listen));
}

int main(int argc, char **argv)
{
	const char *slow = getenv("BRAID_TEST_SLOW");
	struct net *net;

	if (argc != 3)
		return 2;
	me = argv[1];
	dir = argv[2];
	drive_set(failed, slow ? (unsigned)atoi(slow) : 1);
	net = up();
	if (!strcmp(me, "send"))
		sender(net);
	else
		receiver(net);
	OK(net_finalize(net));
	net_unload(net);
	return 0;
}
