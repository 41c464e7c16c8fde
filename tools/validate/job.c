/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job.c - messages with their buffers, at either end.
 *
 * Received data is compared at the moment test() reports it, and a send's buffer is overwritten
 * then: so either end finds a plugin that reports completion too early.
 */
#include <limits.h>
#include <stdio.h>

#include "tools/validate/far.h"

void job_begin(struct validate *v, struct job *j, void *comm, bool is_recv, const struct msg *m,
	       int n)
{
	*j = (struct job){ .op = op_group(v->net, comm) };
	j->op.is_recv = is_recv;
	for (int i = 0; i < n; i++) {
		size_t room = is_recv && m[i].room ? m[i].room : m[i].size;

		j->msg[i] = m[i];
		j->buf[i] = buf_new(v->net, comm, room, m[i].skew);
		if (is_recv)
			blank(j->buf[i].data, room);
		else
			fill(j->buf[i].data, room, m[i].seed);
		op_add(&j->op, &j->buf[i], room, m[i].tag);
	}
}

static void check_sizes(struct job *j)
{
	const struct op *op = &j->op;

	for (int i = 0; i < op->n && !*j->bad; i++) {
		size_t size = j->msg[i].size, at;

		/* An int can't hold sizes beyond 2 GiB. */
		if (!op->no_sizes && size <= INT_MAX && op->got[i] != (int)size) {
			snprintf(j->bad, sizeof(j->bad), "a message of %zu bytes, tag %d: test() "
				 "says %d bytes", size, op->tag[i], op->got[i]);
			return;
		}
		at = fill_differs(j->buf[i].data, size, j->msg[i].seed);
		if (at < size)
			snprintf(j->bad, sizeof(j->bad), "a message of %zu bytes, tag %d, is not "
				 "what was sent from byte %zu on", size, op->tag[i], at);
		for (at = size; at < j->buf[i].size && !*j->bad; at++)
			if (j->buf[i].data[at] != 0xee)
				snprintf(j->bad, sizeof(j->bad), "a message of %zu bytes, tag %d: "
					 "byte %zu behind it was written", size, op->tag[i],
					 at - size);
	}
}

/* True: there is nothing to flush, or the flush is done. */
static bool flushed(struct job *j)
{
	int sizes[RECVS_MAX], done = 1;

	if (j->flush == 1) {
		for (int i = 0; i < j->op.n; i++)
			sizes[i] = (int)j->op.size[i];
		OK(net_iflush(j->op.net, j->op.comm, j->op.n, j->op.data, sizes, j->op.mr,
			      &j->flush_req));
		j->flush = j->flush_req ? 2 : 3;
	}
	if (j->flush == 2) {
		OK(net_test(j->op.net, j->flush_req, &done, NULL));
		j->flush = done ? 3 : 2;
	}
	return j->flush != 2;
}

static void finish(struct job *j)
{
	if (j->op.res != ncclSuccess) {
		j->over = true;
		snprintf(j->bad, sizeof(j->bad), "a %s of %zu bytes, tag %d: %s%s%.100s",
			 j->op.is_recv ? "receive" : "send", j->msg[0].size, j->op.tag[0],
			 net_result_name(j->op.res), *net_last_warn() ? ": " : "",
			 net_last_warn());
		return;
	}
	if (j->op.is_recv && !flushed(j))
		return;
	j->over = true;
	if (j->op.is_recv)
		check_sizes(j);
	else
		blank(j->buf[0].data, j->buf[0].size);
}

/* Requests of a comm are posted in the order of the array. */
static bool next(const struct job *j, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!j[k].op.posted && j[k].op.comm == j[i].op.comm)
			return false;
	return true;
}

/* NCCL tests the oldest request of a comm alone. */
static bool due(const struct job *j, size_t i)
{
	for (size_t k = 0; k < i && drive_in_order(); k++)
		if (j[k].op.posted && !j[k].op.done && j[k].op.comm == j[i].op.comm)
			return false;
	return j[i].op.posted && !j[i].op.done;
}

bool jobs_step(struct job *j, size_t n)
{
	bool all = true;

	for (size_t i = 0; i < n; i++) {
		if (!j[i].op.posted && next(j, i))
			op_post(&j[i].op);
		else if (due(j, i))
			op_test(&j[i].op);
		if (j[i].op.done && !j[i].over)
			finish(&j[i]);
		all = all && j[i].over;
	}
	return all;
}

void job_end(struct validate *v, struct job *j)
{
	for (int i = 0; i < j->op.n; i++)
		buf_free(v->net, &j->buf[i]);
}
