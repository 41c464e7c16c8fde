/* SPDX-License-Identifier: BSD-3-Clause */
/* comms.c - see comms.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "core/base/param.h"
#include "core/base/pool.h"
#include "tests/lib/comms.h"
#include "tests/lib/req.h"

struct null_pair pair;
struct braid_comm *cs, *cr;
static struct braid_params saved;

void start(const struct null_config *config)
{
	null_pair_init(&pair, config);
	null_comms(&pair, A, &cs, &cr);
}

static void start_lanes(unsigned lanes, uint64_t window)
{
	start(&(struct null_config){ .lanes = lanes, .window = window, .held = true });
}

int setup(void **state)
{
	(void)state;
	saved = braid_param;
	start_lanes(1, 512 * K);
	return 0;
}

int setup_lanes(void **state)
{
	(void)state;
	saved = braid_param;
	start_lanes(3, 512 * K);
	return 0;
}

int setup_floor(void **state)
{
	(void)state;
	saved = braid_param;
	start_lanes(1, 0);
	return 0;
}

int teardown(void **state)
{
	(void)state;
	null_pair_fini(&pair);
	braid_param = saved;
	braid_pool_trim();
	return 0;
}

char *message(size_t size, char seed)
{
	char *m = malloc(size ? size : 1);

	for (size_t i = 0; i < size; i++)
		m[i] = (char)(seed + (char)(i * 7) + (char)(i >> 8));
	return m;
}

struct braid_req *isend(struct braid_comm *c, const void *data, size_t size, int tag)
{
	struct braid_req *req;

	assert_int_equal(braid_comm_isend(c, data, size, tag, NULL, &req), 0);
	return req;
}

struct braid_req *irecv(struct braid_comm *c, void *data, size_t size, int tag)
{
	struct braid_req *req;

	assert_int_equal(braid_comm_irecv(c, 1, &data, &size, &tag, NULL, &req), 0);
	return req;
}

bool done(struct braid_req *req)
{
	bool ret;

	assert_int_equal(req_test(req, &ret, NULL), 0);
	return ret;
}

bool settled(struct braid_req *req)
{
	for (int i = 0; i < 4 && !atomic_load(&req->done); i++)
		done(req);
	return done(req);
}

int error_of(struct braid_req *req)
{
	bool ret;

	return req_test(req, &ret, NULL);
}

int size_of(struct braid_req *req)
{
	int size[BRAID_RECVS_MAX];
	bool ret;

	assert_int_equal(req_test(req, &ret, size), 0);
	assert_true(ret);
	return size[0];
}

struct braid_hdr next_frame(unsigned from, enum braid_frame type)
{
	struct braid_hdr h = { 0 };

	if (!null_peek(&pair, from, 0, &h))
		fail_msg("no frame from end %u where a %s was due", from, braid_frame_name(type));
	if (h.type != type)
		fail_msg("a %s frame from end %u where a %s was due", braid_frame_name(h.type),
			 from, braid_frame_name(type));
	return h;
}

struct braid_hdr pass_frame(unsigned from, enum braid_frame type)
{
	struct braid_hdr h = next_frame(from, type);

	assert_int_equal(null_deliver(&pair, from, 0), 1);
	return h;
}

void assert_no_frame(unsigned from)
{
	struct braid_hdr h;

	if (null_peek(&pair, from, 0, &h))
		fail_msg("a %s frame from end %u", braid_frame_name(h.type), from);
}

void run(struct braid_req *a, struct braid_req *b)
{
	bool more = true;

	for (int i = 0; i < 20 || (more && i < 2000); i++) {
		bool ret;

		more = (a && !atomic_load(&a->done)) || (b && !atomic_load(&b->done));
		if (a && !atomic_load(&a->done))
			req_test(a, &ret, NULL);
		if (b && !atomic_load(&b->done))
			req_test(b, &ret, NULL);
		braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
		braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
		null_deliver_all(&pair);
	}
}

void one_message(size_t size, int tag)
{
	char *from = message(size, (char)tag), *to = calloc(1, size + 1);
	struct braid_req *r = irecv(cr, to, size, tag), *s = isend(cs, from, size, tag);

	run(s, r);
	assert_int_equal(size_of(r), size);
	assert_true(done(s));
	assert_memory_equal(from, to, size);
	free(from);
	free(to);
}

void close_both(void)
{
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));
}

void make_large(void)
{
	one_message(BIG, 1);
	null_settle(&pair);
	assert_no_frame(A);
	assert_no_frame(B);
}

struct braid_req *credited(char *to, size_t room)
{
	struct braid_req *r;

	make_large();
	r = irecv(cr, to, room, 1);
	assert_false(done(r));
	return r;
}
