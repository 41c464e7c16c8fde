/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_addr.c - IP addresses: as the wire has them, as sockets have them, and as text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "core/setup/addr.h"

enum { PORT = 4711, SCOPE = 7 };

static struct sockaddr_storage socket_of(const char *ip)
{
	struct sockaddr_storage sa = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&sa;

	if (inet_pton(AF_INET, ip, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(PORT);
	} else {
		assert_int_equal(inet_pton(AF_INET6, ip, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(PORT);
	}
	return sa;
}

static struct braid_addr addr_of(const char *ip)
{
	struct sockaddr_storage sa = socket_of(ip);

	return braid_addr_of((struct sockaddr *)&sa);
}

/* From a socket's address to the wire's and back. */
static void assert_kept(const char *ip, size_t len)
{
	struct sockaddr_storage want = socket_of(ip), got;
	struct braid_addr a = addr_of(ip);

	memset(&got, 0xff, sizeof(got));
	assert_int_equal(braid_addr_to_sockaddr(&a, 0, &got), len);
	assert_memory_equal(&got, &want, sizeof(got));
}

static void an_address_and_its_port_come_back_as_they_were(void **state)
{
	(void)state;
	assert_kept("10.1.2.3", sizeof(struct sockaddr_in));
	assert_kept("0.0.0.0", sizeof(struct sockaddr_in));
	assert_kept("255.255.255.255", sizeof(struct sockaddr_in));
	assert_kept("2001:db8::1:2", sizeof(struct sockaddr_in6));
	assert_kept("::1", sizeof(struct sockaddr_in6));
	assert_kept("fe80::1", sizeof(struct sockaddr_in6));
}

static void ipv4_is_a_mapped_ipv6_address_on_the_wire(void **state)
{
	static const uint8_t want[16] = { [10] = 0xff, [11] = 0xff, [12] = 10, 1, 2, 3 };
	struct braid_addr a = addr_of("10.1.2.3"), mapped = addr_of("::ffff:10.1.2.3");
	struct sockaddr_storage sa;

	(void)state;
	assert_memory_equal(a.ip, want, sizeof(want));
	assert_int_equal(a.port, PORT);
	/* A socket for both versions has the peer's IPv4 address in this form: it is the same one. */
	assert_memory_equal(mapped.ip, a.ip, sizeof(a.ip));
	braid_addr_to_sockaddr(&mapped, 0, &sa);
	assert_int_equal(sa.ss_family, AF_INET);
}

static unsigned scope_of(const char *ip)
{
	struct braid_addr a = addr_of(ip);
	struct sockaddr_storage sa;

	braid_addr_to_sockaddr(&a, SCOPE, &sa);
	return ((struct sockaddr_in6 *)&sa)->sin6_scope_id;
}

static void only_a_link_local_address_names_its_interface(void **state)
{
	(void)state;
	assert_int_equal(scope_of("fe80::1"), SCOPE);
	assert_int_equal(scope_of("febf::1"), SCOPE);
	assert_int_equal(scope_of("2001:db8::1"), 0);
	assert_int_equal(scope_of("fd00::1"), 0);
	assert_int_equal(scope_of("::1"), 0);
}

static void assert_text(const char *ip, const char *want)
{
	struct sockaddr_storage sa = socket_of(ip);
	char text[64];

	braid_addr_text(&sa, text, sizeof(text));
	assert_string_equal(text, want);
}

static void text_is_what_a_user_would_type(void **state)
{
	(void)state;
	assert_text("10.1.2.3", "10.1.2.3:4711");
	assert_text("2001:db8::1", "[2001:db8::1]:4711");
	assert_text("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		    "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:4711");
}

static void text_is_cut_to_its_room(void **state)
{
	struct sockaddr_storage sa = socket_of("10.1.2.3");
	char text[10];

	(void)state;
	memset(text, 'x', sizeof(text));
	braid_addr_text(&sa, text, 8);
	assert_string_equal(text, "10.1.2.");
	assert_int_equal(text[8], 'x');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_and_its_port_come_back_as_they_were),
		cmocka_unit_test(ipv4_is_a_mapped_ipv6_address_on_the_wire),
		cmocka_unit_test(only_a_link_local_address_names_its_interface),
		cmocka_unit_test(text_is_what_a_user_would_type),
		cmocka_unit_test(text_is_cut_to_its_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
