/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c - message after message over a comm, until the sender says that it ends (far.h). */
#include <stdio.h>

#include "tools/validate/far.h"

static uint64_t seed_of(const struct stream *s, uint64_t k)
{
	return mix(s->seed + k) | 1;
}

void stream_begin(struct validate *v, struct stream *s, void *comm, bool is_recv, uint64_t seed)
{
	*s = (struct stream){ .net = v->net, .comm = comm, .is_recv = is_recv, .seed = seed };
	for (unsigned i = 0; i < STREAM_SLOTS; i++)
		s->buf[i] = buf_new(v->net, comm, STREAM_SIZE, 0);
}

void stream_end(struct stream *s)
{
	for (unsigned i = 0; i < STREAM_SLOTS; i++)
		buf_free(s->net, &s->buf[i]);
}

/* One-byte messages announce the end: STREAM_SLOTS of them, one for each receive in flight. */
static void post(struct stream *s)
{
	unsigned i = s->posted % STREAM_SLOTS;
	size_t size = STREAM_SIZE;

	if (s->ready == s->posted) {
		if (!s->is_recv && s->ends) {
			s->last++;
			size = 1;
		}
		if (s->is_recv)
			blank(s->buf[i].data, STREAM_SIZE);
		else
			fill(s->buf[i].data, size, seed_of(s, s->posted));
		s->op[i] = s->is_recv ? op_recv(s->net, s->comm, &s->buf[i], STREAM_SIZE, 0) :
					op_send(s->net, s->comm, &s->buf[i], size, 0);
		s->ready++;
	}
	s->posted += op_post(&s->op[i]);
}

static bool may_post(const struct stream *s)
{
	if (s->ready > s->posted)
		return true;
	return s->posted - s->done < STREAM_SLOTS &&
	       (s->is_recv ? !s->ends || s->posted < s->end : s->last < STREAM_SLOTS);
}

static void check(struct stream *s, const struct op *op, const void *data)
{
	size_t got = op->is_recv ? (size_t)op->got[0] : op->size[0];
	size_t at = op->is_recv ? fill_differs(data, got, seed_of(s, s->done)) : got;

	if (op->res != ncclSuccess)
		snprintf(s->bad, sizeof(s->bad), "%s%s%.150s", net_result_name(op->res),
			 *net_last_warn() ? ": " : "", net_last_warn());
	else if (at < got || (got != STREAM_SIZE && got != 1))
		snprintf(s->bad, sizeof(s->bad), "message %llu, of %zu bytes, is not what was sent "
			 "from byte %zu on", (unsigned long long)s->done, got, at);
	if (op->is_recv && got == 1 && !s->ends) {
		s->ends = true;
		s->end = s->done + STREAM_SLOTS;
	}
	s->bytes += got;
	s->done++;
}

bool stream_step(struct stream *s)
{
	struct op *op = &s->op[s->done % STREAM_SLOTS];

	if (may_post(s))
		post(s);
	if (s->done < s->posted && (op->done || op_test(op)))
		check(s, op, s->buf[s->done % STREAM_SLOTS].data);
	return *s->bad || (s->ends && s->done == s->posted && !may_post(s));
}
