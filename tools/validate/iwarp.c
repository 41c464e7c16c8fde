/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * iwarp.c - what iWARP lacks: the accepting end may not send first, there is no immediate data, and
 * reads need another access right.
 *
 * The checks move messages that would fail if Braid relied on one of these, and see that TCP did
 * not carry them.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/validate/far.h"
#include "tools/validate/path.h"

static void needs_iwarp(struct validate *v)
{
	const char *kind = getenv("BRAID_TEST_FAKE_DEVICES");
	char line[64];

	if (rdma_line(v, "node_type", line, sizeof(line)) && strstr(line, "RNIC"))
		return;
	if (kind && strstr(kind, "iwarp") && carried_by(v, "verbs"))
		return;
	skip(v, "the device is no iWARP NIC");
}

static void carried(uint64_t before, uint64_t bytes)
{
	uint64_t over_tcp = tcp_bytes() - before;

	if (over_tcp > bytes / 2)
		FAIL("%llu bytes of %llu went over TCP", (unsigned long long)over_tcp,
		     (unsigned long long)bytes);
}

/* The accepting end sends the first message. */
static void initiator(struct validate *v)
{
	struct msg m = { .size = 100 };
	struct conn out, in;

	both_up(v);
	needs_iwarp(v);
	out = conn_open(v, true);
	in = conn_open(v, false);
	step(v, "the end that was called speaks first");
	move(v, &in, &m, 1, 1, NULL, 0);
	move(v, &out, &m, 1, 1, NULL, 0);
	conn_close(v, &in);
	conn_close(v, &out);
}

static void immediate(struct validate *v)
{
	struct msg m[8];
	struct conn conn;
	uint64_t before, bytes = 0;

	both_up(v);
	needs_iwarp(v);
	conn = conn_open(v, true);
	m[0] = (struct msg){ .size = 1 };
	move(v, &conn, m, 1, 1, NULL, 0);
	before = tcp_bytes();
	for (int i = 0; i < 8; i++)
		bytes += (m[i] = (struct msg){ .size = (size_t)300000 * (size_t)(i + 1) }).size;
	move(v, &conn, m, 8, 1, NULL, 0);
	carried(before, bytes);
	conn_close(v, &conn);
	saw(v, "%llu bytes", (unsigned long long)bytes);
}

/* The other end posts nothing for a while. */
static void credits(struct validate *v)
{
	struct msg m[REQS_MAX];
	struct conn conn;

	both_up(v);
	needs_iwarp(v);
	conn = conn_open(v, true);
	for (int i = 0; i < REQS_MAX; i++)
		m[i] = (struct msg){ .size = 30000 };
	for (int round = 0; round < 4; round++)
		move(v, &conn, m, REQS_MAX, 1, NULL, MOVE_SEND_FIRST);
	conn_close(v, &conn);
	saw(v, "%d messages, each before its receive", 4 * REQS_MAX);
}

static void reads(struct validate *v)
{
	struct msg m[4] = { { .size = 8 }, { .size = 4096 }, { .size = 70000 },
			    { .size = 1 << 20 } };
	struct conn conn;

	both_up(v);
	needs_iwarp(v);
	conn = conn_open(v, false);
	move(v, &conn, m, 4, 1, NULL, MOVE_FLUSH);
	conn_close(v, &conn);
}

static const char report[] =
	"Report it, with the NIC's driver and firmware; --transport tcp goes without it";

const struct vcheck validate_iwarp[] = {
	{ "iwarp-initiator", "Who was called may have the first message", report, initiator, V_SOAK,
	  0 },
	{ "iwarp-immediate", "Large messages without immediate data", report, immediate, V_SOAK,
	  0 },
	{ "iwarp-credits", "Nothing is lost while the other end posts nothing", report, credits,
	  V_SOAK, 0 },
	{ "iwarp-read", "Receives are flushed, which reads", report, reads, V_SOAK, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
