/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - see coll.h. */
#include "tests/unit/coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem/mrcache.h"
#include "core/msg/kind.h"
#include "core/proto/hello.h"
#include "core/setup/connect.h"

struct fake fake;
struct braid_coll *coll[2];

/* --- the neighbours ------------------------------------------------------------------------ */

int __wrap_braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret);
int __wrap_braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret)
{
	if (fake.listen_err)
		return fake.listen_err;
	*ret = calloc(1, sizeof(**ret));
	(*ret)->dev = dev;
	handle_of(dev->index, handle);
	fake.listens++;
	return 0;
}

void __wrap_braid_listen_close(struct braid_listen *l);
void __wrap_braid_listen_close(struct braid_listen *l)
{
	free(l);
	fake.listens--;
}

static void make_channel(struct braid_rma *of, struct braid_comm *c)
{
	braid_lock_wait(&c->link->lock);
	assert_int_equal(braid_rma_channel_new(of, c), 0);
	if (!c->sender)
		braid_comm_control_due(c);
	braid_unlock(&c->link->lock);
}

int __wrap_braid_connect(struct braid_dev *dev, int traffic_class, void *handle,
			 struct braid_rma *of, struct braid_comm **ret);
int __wrap_braid_connect(struct braid_dev *dev, int traffic_class, void *handle,
			 struct braid_rma *of, struct braid_comm **ret)
{
	struct braid_handle h;
	struct braid_comm *r;

	assert_int_equal(braid_handle_unpack(handle, &h), 0);
	for (unsigned i = 0; i < sizeof(h.token); i++)
		assert_int_equal(h.token[i], h.token[0]);
	fake.token = h.token[0];
	fake.traffic_class = traffic_class;
	assert_int_equal(h.state.slot, fake.connects ? fake.slot : 0);
	h.state.slot = ++fake.slot;
	braid_handle_put_state(handle, &h.state);
	fake.connects++;
	if (fake.connect_err || !fake.answers)
		return fake.connect_err;
	null_comms(&pair, dev->index, ret, &r);
	make_channel(of, *ret);
	make_channel(&coll[!dev->index]->rma, r);
	return 0;
}

void __wrap_braid_connect_give_up(void *handle);
void __wrap_braid_connect_give_up(void *handle)
{
	struct braid_handle h;

	assert_int_equal(braid_handle_unpack(handle, &h), 0);
	assert_int_equal(h.state.slot, fake.slot);
	fake.given_up++;
}

int __wrap_braid_mr_new(struct braid_dev *dev, const struct braid_mem *mem, struct braid_mr **ret);
int __wrap_braid_mr_new(struct braid_dev *dev, const struct braid_mem *mem, struct braid_mr **ret)
{
	if (fake.mr_err)
		return fake.mr_err;
	*ret = calloc(1, sizeof(**ret));
	(*ret)->dev = dev;
	(*ret)->data = mem->data;
	(*ret)->size = mem->size;
	(*ret)->gpu = fake.gpu;
	fake.mrs++;
	return 0;
}

void __wrap_braid_mr_free(struct braid_mr *mr);
void __wrap_braid_mr_free(struct braid_mr *mr)
{
	free(mr);
	fake.mrs--;
}

int __wrap_braid_stops_wait(struct braid_dev *dev);
int __wrap_braid_stops_wait(struct braid_dev *dev)
{
	(void)dev;
	return fake.stop_err;
}

/* --- two communicators --------------------------------------------------------------------- */

void handle_of(unsigned rank, void *ret)
{
	struct braid_handle h = {
		.least = BRAID_WIRE_LEAST, .most = BRAID_WIRE_MOST, .listen_id = rank + 1,
		.port = 4711, .has4 = 1,
	};

	memset(h.token, 'a' + (int)rank, sizeof(h.token));
	braid_handle_pack(&h, ret);
}

int connect_all(unsigned end)
{
	uint8_t bytes[RANKS][BRAID_HANDLE_SIZE];
	void *handles[RANKS];

	for (unsigned i = 0; i < RANKS; i++) {
		handle_of(i, bytes[i]);
		handles[i] = bytes[i];
	}
	return braid_coll_connect(coll[end], handles, RANKS, end);
}

int setup_no_colls(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(coll, 0, sizeof(coll));
	null_pair_init(&pair, &(struct null_config){ .lanes = 2, .window = 512 * K });
	return 0;
}

int setup_colls(void **state)
{
	uint8_t handle[BRAID_HANDLE_SIZE];

	setup_no_colls(state);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(braid_coll_listen(&pair.dev[i], handle, &coll[i]), 0);
		assert_int_equal(connect_all(i), 0);
	}
	fake.answers = true;
	return 0;
}

void close_coll(unsigned end)
{
	struct braid_coll *c = coll[end];

	coll[end] = NULL;
	braid_coll_close(c);
	braid_coll_close_listen(c);
}

int teardown_colls(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		if (coll[i])
			close_coll(i);
	}
	null_pair_fini(&pair);
	assert_int_equal(fake.listens, 0);
	assert_int_equal(fake.mrs, 0);
	return 0;
}

struct braid_rma_window *open_window(unsigned end, void *data, size_t size)
{
	const struct braid_mem mem = { .data = data, .size = size };
	struct braid_rma_window *w;

	assert_int_equal(braid_coll_open(coll[end], &mem, false, false, &w), 0);
	return w;
}

int settle(unsigned end, struct braid_rma_op *op)
{
	int ret = 0;

	for (int i = 0; i < 200 && !ret; i++) {
		ret = braid_coll_test(coll[end], op);
		for (unsigned k = 0; k < 2; k++) {
			if (coll[k])
				braid_coll_progress(coll[k]);
		}
		null_settle(&pair);
	}
	return ret;
}
