/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_mem.c - the registered memory of a queue pair: verbs/qp_mem.c. */
#include "tests/unit/ports.h"

#include <stdlib.h>

#include "core/base/param.h"
#include "verbs/mr.h"

enum { KEPT = 8 };			/* by a port: SPARE_MAX */

static void memory_is_kept_for_the_next_queue_pair(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *m = braid_qp_memory(p, false, false);
	uint32_t key;

	(void)state;
	assert_non_null(m);
	assert_ptr_equal(m->bounces, &p->bounces);
	assert_non_null(m->ack_mr);
	atomic_store(&m->ack[0], 5);
	atomic_store(&m->ack[1], 6);
	key = m->ack_mr->rkey;
	braid_qp_memory_put(p, m);
	assert_ptr_equal(braid_qp_memory(p, false, false), m);
	assert_int_not_equal(m->ack_mr->rkey, key);	/* the peer before knows that one */
	assert_int_equal(atomic_load(&m->ack[0]), 0);
	assert_int_equal(atomic_load(&m->ack[1]), 0);
	braid_qp_memory_put(p, m);
}

static void a_port_keeps_the_memory_of_some_queue_pairs_only(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *m[KEPT + 2];

	(void)state;
	for (unsigned i = 0; i < KEPT + 2; i++)
		m[i] = braid_qp_memory(p, false, false);
	for (unsigned i = 0; i < KEPT + 2; i++)
		braid_qp_memory_put(p, m[i]);
	assert_int_equal(p->nspare, KEPT);
}

static void slots_come_only_where_receives_are_not_shared(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *m = braid_qp_memory(p, true, false);

	(void)state;
	assert_non_null(m->slots);
	braid_qp_memory_put(p, m);	/* the next lane shares receives, so they go */
	m = braid_qp_memory(p, false, false);
	assert_null(m->slots);
	braid_qp_memory_put(p, m);
}

/* A peer writes 4 bytes there over its own queue pair, with a key that it has learned. */
static enum ibv_wc_status write_by(struct braid_qp *w, const void *to, uint32_t key)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)&w->m->ack[BRAID_ACK_OUT], .length = 4,
		.lkey = w->m->ack_mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = BRAID_WR_IS_SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uint64_t)(uintptr_t)to, .rkey = key },
	};
	struct ibv_wc wc;

	atomic_store(&w->m->ack[BRAID_ACK_OUT], 7);
	assert_int_equal(ibv_post_send(w->qp, &wr, &bad), 0);
	UNTIL(ibv_poll_cq(w->cq, 1, &wc) == 1);
	return wc.status;
}

/* The outcome of writes to the counts of another peer's lane, and to memory that the port has. */
static void attack(enum ibv_wc_status *counts, enum ibv_wc_status *memory)
{
	static uint32_t user[1024];
	struct braid_mem mem = { .data = user, .size = sizeof(user), .fd = -1 };
	struct braid_dev *from = dev_named("ib0:1"), *to = dev_named("ib1:1");
	struct ends victim, evil[2];
	struct braid_key key;
	struct braid_qp *w;

	user[0] = 0;
	assert_int_equal(braid_ibport_reg(to, &mem, &key), 0);
	assert_int_equal(ends_meet(&victim, from, to), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(ends_meet(&evil[i], from, to), 0);
	w = qp_at(&victim.accepter);
	*counts = write_by(qp_at(&evil[0].dialler), (void *)w->m->ack, w->m->ack_mr->rkey);
	*memory = write_by(qp_at(&evil[1].dialler), user, key.remote);
	assert_int_equal(atomic_load(&w->m->ack[0]), *counts == IBV_WC_SUCCESS ? 7 : 0);
	assert_int_equal(user[0], *memory == IBV_WC_SUCCESS ? 7 : 0);
	w = qp_at(&victim.dialler);	/* the peer that the key was made for writes all the same */
	assert_int_equal(write_by(w, (const void *)(uintptr_t)w->peer_ack, w->peer_ack_key),
			 IBV_WC_SUCCESS);
	ends_part(&victim);
	for (unsigned i = 0; i < 2; i++)
		ends_part(&evil[i]);
	braid_ibport_dereg(to, &key);
}

static void a_strict_lane_is_opened_by_no_key_of_another(void **state)
{
	enum ibv_wc_status counts, memory;
	long pds = ports_ctl("live pd");

	(void)state;
	attack(&counts, &memory);
	assert_int_equal(counts, IBV_WC_SUCCESS);	/* SECURITY.md says so */
	assert_int_equal(memory, IBV_WC_SUCCESS);
	braid_param.rdma_strict = 1;
	attack(&counts, &memory);
	braid_param.rdma_strict = 0;
	assert_int_equal(counts, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(memory, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ports_ctl("live pd"), pds);
}

static void memory_that_can_not_be_registered_is_none(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *spare = p->spare;

	(void)state;
	p->spare = NULL;
	ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
	assert_null(braid_qp_memory(p, false, false));
	ports_ctl("fail 0");
	p->spare = spare;
}

static void a_job_registers_a_ring_at_its_first_use(void **state)
{
	static char ring[4096];
	struct ends e;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib0:1")), 0);
	w = qp_at(&e.dialler);
	assert_int_equal(braid_qp_ring(w, ring, sizeof(ring)), 0);
	assert_ptr_equal(w->ring, ring);
	jobs_done(e.dialler.dev);
	assert_null(atomic_load(&w->rings->mr));
	braid_qp_ring_use(w);
	braid_qp_ring_use(w);		/* once is enough */
	jobs_done(e.dialler.dev);
	assert_non_null(atomic_load(&w->rings->mr));
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_kept_for_the_next_queue_pair),
		cmocka_unit_test(a_port_keeps_the_memory_of_some_queue_pairs_only),
		cmocka_unit_test(slots_come_only_where_receives_are_not_shared),
		cmocka_unit_test(a_strict_lane_is_opened_by_no_key_of_another),
		cmocka_unit_test(memory_that_can_not_be_registered_is_none),
		cmocka_unit_test(a_job_registers_a_ring_at_its_first_use),
	};

	ports_of("ib0:ib;ib1:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
