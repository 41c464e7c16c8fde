/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_ways.c - the addresses that a handle carries, and the pairs of two ends' addresses: in what order
 * they are tried, and how the outcome of a try changes that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/self.h"
#include "core/dev.h"
#include "core/setup/ways.h"
#include "core/transport.h"

static const struct braid_transport rdma = { .ports = true };
static struct braid_netdev m0;		/* an interface for handshakes, for good */
static struct braid_dev dev;

static union braid_netdev_addr at(const char *ip)
{
	union braid_netdev_addr a = { 0 };

	a.sa.sa_family = strchr(ip, ':') ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(a.sa.sa_family, ip, a.sa.sa_family == AF_INET ?
				   (void *)&a.in.sin_addr : (void *)&a.in6.sin6_addr), 1);
	return a;
}

/* An interface whose routes nobody knows: "10.1.0.1 fd00::1", all /24 or /64. */
static void interface(struct braid_netdev *ret, const char *name, const char *ips)
{
	char copy[256], *rest = copy, *word;
	unsigned n = 0;

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	snprintf(copy, sizeof(copy), "%s", ips);
	while ((word = strtok_r(rest, " ", &rest))) {
		struct braid_netdev_ip ip = { at(word), strchr(word, ':') ? 64 : 24 };

		if (!n++) {
			ret->addr = ip.addr;
			ret->prefix = ip.prefix;
		} else {
			ret->more[ret->nmore++] = ip;
		}
	}
}

static void device(const char *ips, const struct braid_transport *best)
{
	memset(&dev, 0, sizeof(dev));
	interface(&dev.net, "eth0", ips);
	dev.nmembers = 1;
	dev.member[0] = &dev;
	dev.best = best;
}

static const char *text_of(const union braid_netdev_addr *a)
{
	static char text[INET6_ADDRSTRLEN];

	return inet_ntop(a->sa.sa_family, a->sa.sa_family == AF_INET ?
			 (const void *)&a->in.sin_addr : (const void *)&a->in6.sin6_addr, text,
			 sizeof(text));
}

/* The addresses where a device listens, as in "10.1.0.1 eth0, 172.16.0.1 m0". */
static const char *listens(void)
{
	struct braid_at all[BRAID_HANDLE_ADDRS];
	unsigned n = braid_dev_addrs(&dev, all);
	static char text[512];
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s",
					 i ? ", " : "", text_of(&all[i].ip.addr), all[i].net->name);
	return text;
}

static void a_device_listens_at_addresses_that_fit_its_handle(void **state)
{
	(void)state;
	device("10.1.0.1", NULL);
	assert_string_equal(listens(), "10.1.0.1 eth0");
	/* Three of IPv4 and one of IPv6. */
	device("10.1.0.1 10.2.0.1 10.3.0.1 10.4.0.1 fd00::1 fd01::1", NULL);
	assert_string_equal(listens(), "10.1.0.1 eth0, 10.2.0.1 eth0, 10.3.0.1 eth0, fd00::1 eth0");
	/* Without IPv6 more of IPv4. */
	device("10.1.0.1 10.2.0.1 10.3.0.1 10.4.0.1 10.5.0.1 10.6.0.1 10.7.0.1 10.8.0.1", NULL);
	assert_string_equal(listens(), "10.1.0.1 eth0, 10.2.0.1 eth0, 10.3.0.1 eth0, "
			    "10.4.0.1 eth0, 10.5.0.1 eth0, 10.6.0.1 eth0, 10.7.0.1 eth0");
}

static void one_with_rdma_listens_for_handshakes_too(void **state)
{
	const struct braid_netdev *nets[1 + BRAID_SHAKES_MAX];

	(void)state;
	device("10.1.0.1 10.2.0.1 10.3.0.1", &rdma);
	assert_int_equal(braid_ways_nets(&dev, nets), 2);
	assert_ptr_equal(nets[0], &dev.net);
	assert_true(braid_shake_is(nets[1]));
	assert_false(braid_shake_is(nets[0]));
	assert_string_equal(listens(), "10.1.0.1 eth0, 10.2.0.1 eth0, 172.16.0.1 m0");
	device("10.1.0.1", NULL);
	assert_int_equal(braid_ways_nets(&dev, nets), 1);
}

static void a_handle_has_all_its_addresses(void **state)
{
	struct braid_handle h = { .port = 4000, .has4 = 1, .addr4 = { 10, 1, 0, 1 },
				  .more4 = { { 10, 2, 0, 1 }, { 10, 3, 0, 1 } } };
	union braid_netdev_addr a[BRAID_HANDLE_ADDRS];

	(void)state;
	assert_int_equal(braid_handle_addrs(&h, a), 3);
	assert_string_equal(text_of(&a[0]), "10.1.0.1");
	assert_string_equal(text_of(&a[2]), "10.3.0.1");
	assert_int_equal(ntohs(a[2].in.sin_port), 4000);
	h.has6 = 1;
	h.addr6[0] = 0xfd;
	h.addr6[15] = 1;
	assert_int_equal(braid_handle_addrs(&h, a), 4);
	assert_string_equal(text_of(&a[3]), "fd00::1");
	assert_int_equal(ntohs(a[3].in6.sin6_port), 4000);
	h.has4 = 0;			/* then the others are none */
	assert_int_equal(braid_handle_addrs(&h, a), 1);
	assert_string_equal(text_of(&a[0]), "fd00::1");
	h.has6 = 0;
	assert_int_equal(braid_handle_addrs(&h, a), 0);
	/* A peer's handle is hostile: no more than there is room for. */
	h.has4 = h.has6 = 1;
	memset(h.more4, 9, sizeof(h.more4));
	assert_int_equal(braid_handle_addrs(&h, a), BRAID_HANDLE_ADDRS);
}

static void a_handle_shows_whether_the_peer_is_on_this_host(void **state)
{
	struct braid_handle h = { .place = 7 };

	(void)state;
	braid_self.place = 7;
	assert_int_equal(braid_handle_peer(&h), BRAID_PEER_HERE);
	braid_self.place = 8;
	assert_int_equal(braid_handle_peer(&h), BRAID_PEER_ELSEWHERE);
	braid_self.place = 0;
	assert_int_equal(braid_handle_peer(&h), BRAID_PEER_UNKNOWN);
	braid_self.place = 8;
	h.place = 0;			/* an older peer sends no flags */
	assert_int_equal(braid_handle_peer(&h), BRAID_PEER_UNKNOWN);
}

/* "10.1.0.1 of eth0 to 10.1.0.2, in one subnet; ..." */
static const char *found(const char *const *to, unsigned n, bool shake_first, struct braid_ways *w)
{
	union braid_netdev_addr list[BRAID_PAIR_ADDRS];
	static char text[1024];

	for (unsigned i = 0; i < n; i++)
		list[i] = at(to[i]);
	braid_ways_find(w, &dev, list, n, BRAID_PEER_UNKNOWN, shake_first);
	braid_ways_text(w, text, sizeof(text));
	return text;
}

static void the_nearest_way_comes_first(void **state)
{
	static const char *const to[] = { "192.168.9.2", "10.2.0.2", "fd00::2" };
	struct braid_ways w;

	(void)state;
	device("10.1.0.1 10.2.0.1 fd00::1", NULL);
	assert_string_equal(found(to, 3, false, &w),
			    "10.2.0.1 of eth0 to 10.2.0.2, in one subnet; "
			    "fd00::1 of eth0 to fd00::2, in one subnet; "
			    "10.1.0.1 of eth0 to 192.168.9.2, by a route");
	device("10.1.0.1", NULL);	/* no IPv6 here: no way to that address */
	assert_string_equal(found(&to[2], 1, false, &w), "");
	assert_int_equal(w.n, 0);
}

static void interfaces_for_handshakes_come_first_where_they_did_before(void **state)
{
	static const char *const to[] = { "10.1.0.2", "172.16.0.2" };
	struct braid_ways w;

	(void)state;
	device("10.1.0.1", &rdma);
	found(to, 2, false, &w);
	assert_int_equal(w.n, 4);
	assert_string_equal(w.way[0].pair.net->name, "eth0");
	found(to, 2, true, &w);
	assert_int_equal(w.n, 4);
	assert_string_equal(w.way[0].pair.net->name, "m0");
	assert_string_equal(text_of(&w.way[0].pair.to), "172.16.0.2");
	assert_string_equal(w.way[2].pair.net->name, "eth0");
}

static void all_have_failed_when_each_has_since_one_worked(void **state)
{
	struct braid_ways w = { .n = 3 };

	(void)state;
	braid_way_failed(&w, 0, false, false, -ETIMEDOUT);
	assert_false(braid_ways_next(&w, 0));
	assert_int_equal(w.now, 1);
	braid_way_failed(&w, 1, false, false, -ETIMEDOUT);
	assert_false(braid_ways_next(&w, 1));
	braid_way_worked(&w, 2);
	assert_int_equal(w.now, 2);
	for (unsigned i = 0; i < 3; i++) {
		unsigned now = w.now;

		braid_way_failed(&w, now, false, false, -EHOSTUNREACH);
		assert_int_equal(braid_ways_next(&w, now), i == 2);
	}
	assert_int_equal(w.now, 2);
	/* Another lane's dial by a way that is not the next one any more. */
	braid_way_failed(&w, 0, false, false, -ETIMEDOUT);
	braid_ways_next(&w, 0);
	assert_int_equal(w.now, 2);
}

static void a_way_that_failed_bound_comes_again_loose(void **state)
{
	struct braid_ways w = { .n = 1 };

	(void)state;
	braid_way_failed(&w, 0, true, false, -ETIMEDOUT);
	assert_true(w.way[0].loose);
	assert_false(braid_ways_next(&w, 0));
	braid_way_failed(&w, 0, false, false, -ETIMEDOUT);
	assert_false(w.way[0].loose);		/* the next one is bound again */
	assert_true(braid_ways_next(&w, 0));
}

static void the_text_of_ways_is_cut_to_its_room(void **state)
{
	static const char *const to[] = { "10.1.0.2", "10.1.0.3" };
	char text[64];
	struct braid_ways w;

	(void)state;
	device("10.1.0.1", NULL);
	found(to, 2, false, &w);
	braid_way_failed(&w, 0, false, false, -ECONNREFUSED);
	for (size_t len = 1; len < sizeof(text); len++) {
		memset(text, 'x', sizeof(text));
		braid_ways_text(&w, text, len);
		assert_true(strlen(text) < len);
		assert_true(text[len] == 'x');
	}
	assert_non_null(strstr(text, "10.1.0.1 of eth0 to 10.1.0.2, in one subnet: Conn"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_listens_at_addresses_that_fit_its_handle),
		cmocka_unit_test(one_with_rdma_listens_for_handshakes_too),
		cmocka_unit_test(a_handle_has_all_its_addresses),
		cmocka_unit_test(a_handle_shows_whether_the_peer_is_on_this_host),
		cmocka_unit_test(the_nearest_way_comes_first),
		cmocka_unit_test(interfaces_for_handshakes_come_first_where_they_did_before),
		cmocka_unit_test(all_have_failed_when_each_has_since_one_worked),
		cmocka_unit_test(a_way_that_failed_bound_comes_again_loose),
		cmocka_unit_test(the_text_of_ways_is_cut_to_its_room),
	};

	interface(&m0, "m0", "172.16.0.1");
	braid_shake_add(&m0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
