/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_cm.c - queue pairs over iWARP: verbs/cm.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "verbs/cm.h"

static void a_port_listens_at_its_devices_address(void **state)
{
	struct braid_ibport *p = port_named("iw0:1");

	(void)state;
	assert_non_null(p->listen);
	assert_true(p->cm_port != 0);
	assert_non_null(strstr(ports_why, "iw1:1 has no interface among those that are used"));
}

static void the_accepter_knows_the_dialler_by_its_nonce(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("iw0:1"), dev_named("iw0:1")), 0);
	assert_true(qp_at(&e.dialler)->nonce == qp_at(&e.accepter)->nonce);
	assert_true(atomic_load(&qp_at(&e.dialler)->connected));
	assert_int_equal(braid_cm_state(qp_at(&e.accepter)), 0);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

/* Both ends make the nonce from the handshake: the blob, which crosses in clear, has none. */
static void a_ticket_replaces_the_nonce(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet_by(&e, dev_named("iw0:1"), dev_named("iw0:1"), "ticket 8"), 0);
	assert_memory_equal(&qp_at(&e.dialler)->nonce, "ticket 8", 8);
	assert_memory_equal(&qp_at(&e.accepter)->nonce, "ticket 8", 8);
	assert_true(qp_at(&e.accepter)->mine.nonce == 0);
	assert_true(atomic_load(&qp_at(&e.dialler)->connected));
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

static struct ends reversed_ends(struct braid_dev *dev, uint8_t *asked)
{
	struct ends e = {
		.dialler = { .dev = dev, .to = &dev->net.addr.sa, .dialler = true, .reversed = true,
			     .has_ticket = true },
		.accepter = { .dev = dev, .to = &dev->net.addr.sa, .has_ticket = true },
	};

	UNTIL(braid_qp_setup(&e.dialler, NULL, asked) != -EAGAIN);
	return e;
}

static void assert_meet(struct ends *e, bool by_accepter)
{
	struct braid_dev *dev = e->dialler.dev;

	UNTIL((braid_cm_events(braid_ibport_of(dev), dev),
	       !braid_qp_ready(&e->dialler) && !braid_qp_ready(&e->accepter)));
	assert_int_equal(qp_at(&e->accepter)->connects, by_accepter);
	assert_int_equal(qp_at(&e->dialler)->connects, !by_accepter);
	assert_int_equal(qp_at(&e->dialler)->reads_out, qp_at(&e->accepter)->reads_in);
	ends_part(e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

/* The request may come before the accepter's blob: it is answered after that. */
static void the_accepter_connects_where_only_it_can(void **state)
{
	struct braid_dev *dev = dev_named("iw0:1");
	uint8_t asked[BRAID_BLOB_SIZE], answer[BRAID_BLOB_SIZE];

	(void)state;
	for (unsigned late = 0; late < 2; late++) {
		struct ends e = reversed_ends(dev, asked);

		UNTIL(braid_qp_setup(&e.accepter, asked, answer) != -EAGAIN);
		if (late)
			UNTIL((braid_cm_events(braid_ibport_of(dev), dev), jobs_done(dev),
			       qp_at(&e.dialler)->id));
		assert_int_equal(braid_qp_peer(&e.dialler, answer), 0);
		assert_meet(&e, true);
	}
}

/* An accepter of before knows no reversed set-up: it waits, so the dialler connects after all. */
static void the_dialler_connects_if_the_accepter_is_older(void **state)
{
	uint8_t asked[BRAID_BLOB_SIZE], answer[BRAID_BLOB_SIZE];
	struct ends e = reversed_ends(dev_named("iw0:1"), asked);
	struct braid_qp_blob b;

	(void)state;
	assert_int_equal(braid_qp_blob_unpack(asked, &b), 0);
	assert_true(b.reversed);
	b.reversed = false;
	braid_qp_blob_pack(&b, asked);
	UNTIL(braid_qp_setup(&e.accepter, asked, answer) != -EAGAIN);
	assert_int_equal(braid_qp_peer(&e.dialler, answer), 0);
	assert_meet(&e, false);
}

static void a_request_that_no_handshake_expects_is_rejected(void **state)
{
	struct braid_dev *dev = dev_named("iw0:1");
	uint8_t mine[BRAID_BLOB_SIZE], theirs[BRAID_BLOB_SIZE];
	struct braid_setup s = { .dev = dev, .to = &dev->net.addr.sa, .dialler = true };
	struct braid_qp_blob b = {
		.fabric = BRAID_FABRIC_IWARP, .mtu = IBV_MTU_4096, .slots = 56, .nonce = 1,
		.cm_port = braid_ibport_of(dev)->cm_port,
	};
	int err;

	(void)state;
	braid_qp_blob_pack(&b, theirs);
	UNTIL(braid_qp_setup(&s, NULL, mine) != -EAGAIN);
	assert_int_equal(braid_qp_peer(&s, theirs), 0);
	UNTIL((braid_cm_events(braid_ibport_of(dev), dev), err = braid_qp_ready(&s)) != -EAGAIN);
	assert_int_equal(err, -ECONNREFUSED);
	braid_qp_drop(&s);
	jobs_done(dev);
	assert_int_equal(ports_ctl("live qp"), 0);
}

/* Destroying such a queue pair would block until the answer comes. */
static void a_queue_pair_that_waits_for_an_answer_is_freed_when_it_comes(void **state)
{
	struct braid_dev *dev = dev_named("iw0:1");
	struct braid_ibport *p = braid_ibport_of(dev);
	uint8_t mine[BRAID_BLOB_SIZE], theirs[BRAID_BLOB_SIZE];
	struct braid_setup s = { .dev = dev, .to = &dev->net.addr.sa, .dialler = true };
	struct braid_qp_blob b = {
		.fabric = BRAID_FABRIC_IWARP, .mtu = IBV_MTU_4096, .slots = 56, .nonce = 2,
		.cm_port = p->cm_port,
	};

	(void)state;
	ports_ctl("requests iw0 300");
	braid_qp_blob_pack(&b, theirs);
	UNTIL(braid_qp_setup(&s, NULL, mine) != -EAGAIN);
	assert_int_equal(braid_qp_peer(&s, theirs), 0);
	/* No job runs while `asked` is read. */
	UNTIL((braid_cm_events(p, dev), jobs_done(dev),
	       braid_qp_ready(&s) != -EAGAIN || (jobs_done(dev), qp_at(&s)->asked)));
	braid_qp_drop(&s);
	jobs_done(dev);
	assert_int_equal(atomic_load(&p->nleft), 1);
	UNTIL((braid_cm_events(p, dev), !atomic_load(&p->nleft)));
	jobs_done(dev);
	assert_int_equal(ports_ctl("live qp"), 0);
	ports_ctl("requests iw0 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_listens_at_its_devices_address),
		cmocka_unit_test(the_accepter_knows_the_dialler_by_its_nonce),
		cmocka_unit_test(a_ticket_replaces_the_nonce),
		cmocka_unit_test(the_accepter_connects_where_only_it_can),
		cmocka_unit_test(the_dialler_connects_if_the_accepter_is_older),
		cmocka_unit_test(a_request_that_no_handshake_expects_is_rejected),
		cmocka_unit_test(a_queue_pair_that_waits_for_an_answer_is_freed_when_it_comes),
	};

	ports_of("iw0:iwarp,netdev=lo,mpa=300;iw1:iwarp");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
