/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crossed.c - one of two processes that connect to each other at the same moment.
 *
 *	crossed ME PEER DIR SECONDS [LATER]
 *
 * It listens, leaves its handle in DIR/ME, and waits for DIR/PEER and DIR/go. Then it connects, LATER
 * milliseconds after the other, and accepts side by side until it has done both. It sends and
 * receives a message. NCCL does the same
 * in every ring. tests/net/crossed.sh decides who may reach whom before it makes DIR/go.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/drive.h"

static const char *me;

static void failed(const char *file, int line, const char *text)
{
	fprintf(stderr, "%s: %s:%d: %s\n", me, file, line, text);
}

static void path_of(char ret[256], const char *dir, const char *name, const char *ext)
{
	snprintf(ret, 256, "%s/%s%s", dir, name, ext);
}

static void leave(const char *dir, const char *ext, const void *data, size_t len)
{
	char part[256], whole[256];
	FILE *f;

	path_of(part, dir, me, ".part");
	path_of(whole, dir, me, ext);
	f = fopen(part, "w");
	TRUE(f && fwrite(data, 1, len, f) == len);
	TRUE(!fclose(f) && !rename(part, whole));
}

static void wait_for(const char *dir, const char *name, const char *ext)
{
	char path[256];

	path_of(path, dir, name, ext);
	WAIT_FOR_MS(30000, !access(path, R_OK));
}

static void read_handle(const char *dir, const char *name, void *handle)
{
	char path[256];
	FILE *f;

	path_of(path, dir, name, "");
	f = fopen(path, "r");
	TRUE(f && fread(handle, 1, NCCL_NET_HANDLE_MAXSIZE, f) == NCCL_NET_HANDLE_MAXSIZE);
	fclose(f);
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

/* Each call steps connect and accept, so neither waits for the other. */
static bool both_step(struct net *net, void *handle, void **send, void *listen, void **recv)
{
	bool connected = connect_step(net, handle, send);

	return accept_step(net, listen, recv) && connected;
}

static void message_each_way(struct net *net, void *send, void *recv)
{
	struct buf out = buf_new(net, send, 100000, 0), in = buf_new(net, recv, 100000, 0);
	struct op ops[2] = { op_recv(net, recv, &in, in.size, 0),
			     op_send(net, send, &out, out.size, 0) };

	fill(out.data, out.size, 5);
	ops_run(ops, 2);
	filled(in.data, in.size, 5);
	buf_free(net, &out);
	buf_free(net, &in);
}

int main(int argc, char **argv)
{
	_Alignas(16) uint8_t mine[NCCL_NET_HANDLE_MAXSIZE], theirs[NCCL_NET_HANDLE_MAXSIZE];
	void *listen = NULL, *send = NULL, *recv = NULL;
	const char *slow = getenv("BRAID_TEST_SLOW");
	struct net *net;

	if (argc != 5 && argc != 6)
		return 2;
	me = argv[1];
	drive_set(failed, slow ? (unsigned)atoi(slow) : 1);
	net = up();
	OK(net_listen(net, 0, mine, &listen));
	leave(argv[3], "", mine, sizeof(mine));
	wait_for(argv[3], argv[2], "");
	read_handle(argv[3], argv[2], theirs);
	wait_for(argv[3], "go", "");
	if (argc == 6)
		usleep((unsigned)atoi(argv[5]) * 1000);
	WAIT_FOR_MS((unsigned)atoi(argv[4]) * 1000, both_step(net, theirs, &send, listen, &recv));
	message_each_way(net, send, recv);
	leave(argv[3], ".done", "", 0);
	wait_for(argv[3], argv[2], ".done");
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	OK(net_close_listen(net, listen));
	OK(net_finalize(net));
	net_unload(net);
	return 0;
}
