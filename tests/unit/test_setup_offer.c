/* SPDX-License-Identifier: BSD-3-Clause */
/* test_setup_offer.c - the lanes and transports that a hello offers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/base/param.h"
#include "core/dev.h"
#include "core/proto/hello.h"
#include "core/setup/offer.h"
#include "core/transport.h"

static const struct braid_transport tcp = { .id = BRAID_TRANSPORT_TCP };
static const struct braid_transport ucx = { .id = BRAID_TRANSPORT_UCX, .blob = true };
static const struct braid_transport smc = { .id = BRAID_TRANSPORT_SMC };
static struct braid_dev dev;
static struct braid_hello hello;

/* A device that all three can use, in the order of their use. */
static int setup(void **state)
{
	static const struct braid_transport *const list[] = { &ucx, &smc, &tcp, NULL };

	(void)state;
	braid_transports_use(list);
	dev = (struct braid_dev){ 0 };
	for (unsigned i = 0; list[i]; i++)
		dev.port[list[i]->id] = &dev;
	hello = (struct braid_hello){ 0 };
	braid_param.lanes = 0;
	braid_param.lanes_max = 8;
	return 0;
}

static void offers(unsigned n, const uint8_t *ids)
{
	uint8_t want[BRAID_TRANSPORTS_MAX] = { 0 };

	memcpy(want, ids, n);
	assert_memory_equal(hello.transports, want, sizeof(want));
}

#define OFFERS(...) offers(sizeof((uint8_t[]){ __VA_ARGS__ }), (uint8_t[]){ __VA_ARGS__ })

static void all_transports_that_can_use_the_device_are_offered_best_first(void **state)
{
	(void)state;
	braid_offer_fill(&hello, &dev, false);
	OFFERS(BRAID_TRANSPORT_UCX, BRAID_TRANSPORT_SMC, BRAID_TRANSPORT_TCP);
}

static void a_transport_that_cannot_use_the_device_is_not_offered(void **state)
{
	(void)state;
	dev.port[BRAID_TRANSPORT_SMC] = NULL;
	braid_offer_fill(&hello, &dev, false);
	OFFERS(BRAID_TRANSPORT_UCX, BRAID_TRANSPORT_TCP);
}

static void a_plain_offer_is_without_those_that_need_a_set_up(void **state)
{
	(void)state;
	braid_offer_fill(&hello, &dev, true);
	OFFERS(BRAID_TRANSPORT_SMC, BRAID_TRANSPORT_TCP);
}

/* Else nothing would be left. */
static void a_device_without_sockets_offers_the_same_plain(void **state)
{
	static const struct braid_transport *const none[] = { &ucx, NULL };

	(void)state;
	dev.port[BRAID_TRANSPORT_TCP] = dev.port[BRAID_TRANSPORT_SMC] = NULL;
	braid_offer_fill(&hello, &dev, true);
	OFFERS(BRAID_TRANSPORT_UCX);
	hello = (struct braid_hello){ 0 };
	dev.port[BRAID_TRANSPORT_TCP] = &dev;
	braid_transports_use(none);		/* sockets are switched off */
	braid_offer_fill(&hello, &dev, true);
	OFFERS(BRAID_TRANSPORT_UCX);
}

static void lanes_are_limited_by_their_number_or_by_the_most_they_may_be(void **state)
{
	(void)state;
	braid_offer_fill(&hello, &dev, false);
	assert_int_equal(hello.lanes_max, 8);
	braid_param.lanes = 3;
	braid_offer_fill(&hello, &dev, false);
	assert_int_equal(hello.lanes_max, 3);
}

static void checksums_are_offered_if_they_are_switched_on(void **state)
{
	unsigned always = BRAID_OPTION_ONE_COMM | BRAID_OPTION_PATHS | BRAID_OPTION_REVERSE;

	(void)state;
	braid_offer_fill(&hello, &dev, false);
	assert_int_equal(hello.options, always);
	strcpy(braid_param.checksum, "on");
	braid_offer_fill(&hello, &dev, false);
	assert_int_equal(hello.options, BRAID_OPTION_CHECKSUM | always);
	strcpy(braid_param.checksum, "off");
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(all_transports_that_can_use_the_device_are_offered_best_first),
		CASE(a_transport_that_cannot_use_the_device_is_not_offered),
		CASE(a_plain_offer_is_without_those_that_need_a_set_up),
		CASE(a_device_without_sockets_offers_the_same_plain),
		CASE(lanes_are_limited_by_their_number_or_by_the_most_they_may_be),
		CASE(checksums_are_offered_if_they_are_switched_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
