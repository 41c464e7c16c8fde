/* SPDX-License-Identifier: BSD-3-Clause */
/* meet.c - see meet.h. */
#include "tests/net/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/drive.h"

static const char *who, *where;

static void failed(const char *file, int line, const char *text)
{
	fprintf(stderr, "%s: %s:%d: %s\n", who, file, line, text);
}

struct net *meet_at(const char *me, const char *dir)
{
	const char *slow = getenv("BRAID_TEST_SLOW");
	struct net *net;
	char err[512];

	who = me;
	where = dir;
	drive_set(failed, slow ? (unsigned)atoi(slow) : 1);
	net_log_verbose(true);
	net = net_load(getenv("BRAID_TEST_PLUGIN"), NET_ABI_NEWEST, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	OK(net_init(net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
	return net;
}

void meet_end(struct net *net)
{
	OK(net_finalize(net));
	net_unload(net);
}

static void path_of(char ret[256], const char *name, const char *ext)
{
	snprintf(ret, 256, "%s/%s%s", where, name, ext);
}

void leave(const char *name, const void *data, size_t len)
{
	char part[256], whole[256];
	FILE *f;

	path_of(part, name, ".part");
	path_of(whole, name, "");
	f = fopen(part, "w");
	TRUE(f && fwrite(data, 1, len, f) == len);
	TRUE(!fclose(f) && !rename(part, whole));
}

void wait_for(const char *name, unsigned ms)
{
	char path[256];

	path_of(path, name, "");
	WAIT_FOR_MS(ms, !access(path, R_OK));
}

void read_handle(const char *name, void *handle)
{
	char path[256];
	FILE *f;

	path_of(path, name, "");
	f = fopen(path, "r");
	TRUE(f && fread(handle, 1, NCCL_NET_HANDLE_MAXSIZE, f) == NCCL_NET_HANDLE_MAXSIZE);
	fclose(f);
}
