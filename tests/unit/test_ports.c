/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ports.c - the walk over BRAID_PORT_RANGE, with real sockets on this host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/ports.h"

static void use(const char *range)
{
	snprintf(braid_param.port_range, sizeof(braid_param.port_range), "%s", range);
}

static int teardown(void **state)
{
	(void)state;
	use("");
	return 0;
}

static void without_a_range_the_kernel_chooses_once(void **state)
{
	struct braid_ports p;
	uint16_t port = 1;

	(void)state;
	braid_ports_begin(&p);
	assert_true(braid_ports_next(&p, &port));
	assert_int_equal(port, 0);
	assert_false(braid_ports_next(&p, &port));
}

static void each_port_is_visited_once(void **state)
{
	static const struct {
		const char *range;
		unsigned low, n;
	} rows[] = {
		{ "7000-7000", 7000, 1 }, { "7000-7001", 7000, 2 }, { "65524-65535", 65524, 12 },
		{ "1-65535", 1, 65535 }, { "20000-20255", 20000, 256 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		static unsigned char seen[65536];
		struct braid_ports p;
		uint16_t port;
		unsigned n = 0;

		memset(seen, 0, sizeof(seen));
		use(rows[i].range);
		for (braid_ports_begin(&p); braid_ports_next(&p, &port); n++) {
			assert_in_range(port, rows[i].low, rows[i].low + rows[i].n - 1);
			assert_false(seen[port]++);
		}
		assert_int_equal(n, rows[i].n);
	}
}

/* As processes of one host do: the average that one finds taken before its own port is small. */
static void many_processes_that_start_together_seldom_try_the_same_port(void **state)
{
	enum { PROCESSES = 64, TURNS = 50, PORTS = 256 };
	unsigned collisions = 0;

	(void)state;
	use("20000-20255");
	for (unsigned turn = 0; turn < TURNS; turn++) {
		unsigned char taken[PORTS] = { 0 };

		for (unsigned i = 0; i < PROCESSES; i++) {
			struct braid_ports p;
			uint16_t port;

			braid_ports_begin(&p);
			while (braid_ports_next(&p, &port) && taken[port - 20000]++)
				collisions++;
		}
	}
	/* Expected: 0.15 a process.  All of them from the same port on: 31.5. */
	assert_true(collisions < PROCESSES * TURNS);
}

/* Hashes that keep some of the last bits: each path gets as many lanes as any other. */
static void lanes_of_a_link_spread_evenly_over_paths(void **state)
{
	(void)state;
	for (unsigned base = 1; base < 65536; base += 257) {
		for (unsigned paths = 2; paths <= 16; paths *= 2) {
			for (unsigned shift = 0; (paths << shift) <= 16; shift++) {
				unsigned n[16] = { 0 };

				for (unsigned lane = 0; lane < paths; lane++)
					n[braid_ports_wish((uint16_t)base, lane) >> shift &
					  (paths - 1)]++;
				for (unsigned i = 0; i < paths; i++)
					assert_int_equal(n[i], 1);
			}
		}
	}
}

static void a_wished_port_is_of_the_range(void **state)
{
	(void)state;
	for (unsigned base = 0; base < 65536; base += 7)
		assert_in_range(braid_ports_wish((uint16_t)base, base % 16), 32768, 60999);
	use("20000-20099");
	for (unsigned base = 0; base < 65536; base += 7)
		assert_in_range(braid_ports_wish((uint16_t)base, base % 16), 20000, 20099);
}

static int bound(uint16_t port, bool listens)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), err;

	assert_true(fd >= 0);
	err = braid_ports_bind(fd, (struct sockaddr *)&at, sizeof(at), port);
	if (!err && listens && listen(fd, 8))
		err = -errno;
	if (!err)
		return fd;
	close(fd);
	return err;
}

static void a_port_that_listens_is_in_use_and_the_line_says_so(void **state)
{
	char why[400];
	int fd = -EADDRINUSE;
	struct braid_ports p;
	uint16_t port = 0;

	(void)state;
	use("30000-39999");
	braid_ports_begin(&p);
	while (fd == -EADDRINUSE && braid_ports_next(&p, &port))
		fd = bound(port, true);
	assert_true(fd >= 0);
	assert_int_equal(bound(port, false), -EADDRINUSE);
	snprintf(why, sizeof(why), "%u-%u", port, port);
	use(why);
	braid_ports_why(why, sizeof(why));
	assert_non_null(strstr(why, "BRAID_PORT_RANGE="));
	assert_non_null(strstr(why, " 1 listen"));
	assert_non_null(strstr(why, "[port-range]"));
	close(fd);
}

/* Connections alone, as of a job that ended just now, keep nobody from listening. */
static void a_port_of_which_only_connections_are_left_is_free_to_listen(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int l = -EADDRINUSE, out, in;
	struct braid_ports p;
	uint16_t port = 0;

	(void)state;
	use("30000-39999");
	braid_ports_begin(&p);
	while (l == -EADDRINUSE && braid_ports_next(&p, &port))
		l = bound(port, true);
	assert_true(l >= 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&at, &len), 0);
	out = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(out, (struct sockaddr *)&at, len), 0);
	in = accept(l, NULL, NULL);
	close(l);
	l = bound(port, true);
	assert_true(l >= 0);
	close(in);				/* the first to close waits in TIME-WAIT */
	close(out);
	close(l);
	l = bound(port, true);
	assert_true(l >= 0);
	close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(without_a_range_the_kernel_chooses_once, teardown),
		cmocka_unit_test_teardown(each_port_is_visited_once, teardown),
		cmocka_unit_test_teardown(
			many_processes_that_start_together_seldom_try_the_same_port, teardown),
		cmocka_unit_test_teardown(lanes_of_a_link_spread_evenly_over_paths, teardown),
		cmocka_unit_test_teardown(a_wished_port_is_of_the_range, teardown),
		cmocka_unit_test_teardown(a_port_that_listens_is_in_use_and_the_line_says_so,
					  teardown),
		cmocka_unit_test_teardown(
			a_port_of_which_only_connections_are_left_is_free_to_listen, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
