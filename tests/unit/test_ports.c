/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ports.c - a range of ports: how it is written, and in which order ports are tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "core/base/ports.h"

static const struct {
	const char *text, *range;	/* NULL: it is none */
} texts[] = {
	{ "40000-40999", "40000-40999" }, { "1-1", "1-1" }, { "1-65535", "1-65535" },
	{ "65535-65535", "65535-65535" }, { "00001-00002", "1-2" },
	{ "0-1", NULL }, { "2-1", NULL }, { "1-65536", NULL }, { "40000", NULL }, { "1-", NULL },
	{ "-1", NULL }, { "1--2", NULL }, { "1-2-3", NULL }, { " 1-2", NULL }, { "1-2 ", NULL },
	{ "1,2", NULL }, { "+1-2", NULL }, { "99999999999-2", NULL }, { "-", NULL },
};

static void a_range_is_two_ports(void **state)
{
	char text[32];

	(void)state;
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const char *range;

		assert_int_equal(braid_ports_choose("5-6"), 0);
		assert_int_equal(braid_ports_choose(texts[i].text), texts[i].range ? 0 : -EINVAL);
		range = braid_ports_range(text, sizeof(text));
		if (!range != !texts[i].range || (range && strcmp(range, texts[i].range)))
			fail_msg("\"%s\": %s", texts[i].text, range ? range : "none");
	}
	assert_int_equal(braid_ports_choose(""), 0);
	assert_null(braid_ports_range(text, sizeof(text)));
}

static void without_a_range_the_kernel_chooses(void **state)
{
	struct braid_ports p;
	uint16_t port = 1;

	(void)state;
	braid_ports_choose("");
	braid_ports_begin(&p, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(braid_ports_next(&p, &port));
		assert_int_equal(port, 0);
	}
	assert_false(braid_ports_next(&p, &port));
}

static void each_port_of_a_range_is_tried_once(void **state)
{
	enum { FIRST = 65500, N = 36 };
	unsigned begun[N] = { 0 }, begins = 0;

	(void)state;
	braid_ports_choose("65500-65535");
	for (unsigned round = 0; round < 200; round++) {
		bool seen[N] = { false };
		struct braid_ports p;
		uint16_t port;

		braid_ports_begin(&p, 1);
		for (unsigned i = 0; i < N; i++) {
			assert_true(braid_ports_next(&p, &port));
			assert_in_range(port, FIRST, FIRST + N - 1);
			assert_false(seen[port - FIRST]);
			seen[port - FIRST] = true;
			begun[port - FIRST] += !i;
		}
		assert_false(braid_ports_next(&p, &port));
	}
	for (unsigned i = 0; i < N; i++)
		begins += begun[i] != 0;
	assert_true(begins > N / 2);		/* they begin anywhere */
}

static int tcp(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void a_port_that_is_taken_is_passed_over(void **state)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(9),
	};
	socklen_t len = sizeof(at);
	int fd[3];

	(void)state;
	braid_ports_choose("9871-9872");
	for (unsigned i = 0; i < 3; i++) {
		fd[i] = tcp();
		assert_int_equal(braid_ports_bind(fd[i], (struct sockaddr *)&at, len),
				 i < 2 ? 0 : -EADDRINUSE);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(getsockname(fd[i], (struct sockaddr *)&at, &len), 0);
		assert_in_range(ntohs(at.sin_port), 9871, 9872);
	}
	for (unsigned i = 0; i < 3; i++)
		close(fd[i]);
	braid_ports_choose("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_range_is_two_ports),
		cmocka_unit_test(without_a_range_the_kernel_chooses),
		cmocka_unit_test(each_port_of_a_range_is_tried_once),
		cmocka_unit_test(a_port_that_is_taken_is_passed_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
