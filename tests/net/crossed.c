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
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/net/meet.h"
#include "tools/drive.h"

enum { FILE_MS = 30000 };

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
	char done[64];
	struct net *net;

	if (argc != 5 && argc != 6)
		return 2;
	net = meet_at(argv[1], argv[3]);
	OK(net_listen(net, 0, mine, &listen));
	leave(argv[1], mine, sizeof(mine));
	wait_for(argv[2], FILE_MS);
	read_handle(argv[2], theirs);
	wait_for("go", FILE_MS);
	if (argc == 6)
		usleep((unsigned)atoi(argv[5]) * 1000);
	WAIT_FOR_MS((unsigned)atoi(argv[4]) * 1000, both_step(net, theirs, &send, listen, &recv));
	message_each_way(net, send, recv);
	snprintf(done, sizeof(done), "%s.done", argv[1]);
	leave(done, "", 0);
	snprintf(done, sizeof(done), "%s.done", argv[2]);
	wait_for(done, FILE_MS);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	OK(net_close_listen(net, listen));
	meet_end(net);
	return 0;
}
