/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_path.c - the paths to a peer: how two ends' members are paired, which path a lane takes, and
 * how long a path that failed is left alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

#include "core/link/link.h"
#include "core/setup/addr.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "tests/lib/warns.h"

#define SEC 1000000000ull

static struct braid_dev member[3], dev;
static struct braid_link link_;

static struct braid_addr addr(const char *ip, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, ip, &in.sin_addr), 1);
	return braid_addr_of((struct sockaddr *)&in);
}

/* A device of ours with those addresses, each in a subnet of 24 bits. */
static void ours(unsigned n, const char *const *ips)
{
	memset(&dev, 0, sizeof(dev));
	memset(member, 0, sizeof(member));
	memset(&link_, 0, sizeof(link_));
	dev.nmembers = n;
	for (unsigned i = 0; i < n; i++) {
		member[i].net.addr.in.sin_family = AF_INET;
		member[i].net.prefix = 24;
		inet_pton(AF_INET, ips[i], &member[i].net.addr.in.sin_addr);
		dev.member[i] = &member[i];
	}
	link_.key.dev = &dev;
}

static void theirs(unsigned n, const char *const *ips)
{
	struct braid_hello h = { 0 };
	struct braid_addr at = addr(ips[0], 1000);

	for (unsigned i = 1; i < n; i++)
		h.more[i - 1] = addr(ips[i], (uint16_t)(1000 + i));
	braid_paths_all(&link_, &at, &h);
}

static void assert_path(unsigned i, const struct braid_dev *from, const char *ip, uint16_t port)
{
	struct braid_addr to = addr(ip, port);

	assert_ptr_equal(link_.setup.path[i].dev, from);
	assert_memory_equal(link_.setup.path[i].to.ip, to.ip, sizeof(to.ip));
	assert_int_equal(link_.setup.path[i].to.port, port);
}

static void members_are_paired_by_subnet(void **state)
{
	static const char *const a[] = { "10.1.0.1", "10.2.0.1" };
	static const char *const b[] = { "10.2.0.2", "10.1.0.2" };

	(void)state;
	ours(2, a);
	theirs(2, b);
	assert_int_equal(link_.npaths, 2);
	assert_path(0, &member[0], "10.1.0.2", 1001);
	assert_path(1, &member[1], "10.2.0.2", 1000);
}

static void unequal_numbers_use_all_of_the_longer_row(void **state)
{
	static const char *const a[] = { "10.1.0.1", "10.2.0.1", "10.3.0.1" };
	static const char *const b[] = { "10.2.0.2" };

	(void)state;
	ours(3, a);
	theirs(1, b);
	assert_int_equal(link_.npaths, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_path(i, &member[i], "10.2.0.2", 1000);
	ours(1, b);
	theirs(3, a);
	assert_int_equal(link_.npaths, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_path(i, &member[0], a[i], (uint16_t)(1000 + i));
}

static void other_subnets_are_paired_in_order(void **state)
{
	static const char *const a[] = { "10.1.0.1", "10.2.0.1" };
	static const char *const b[] = { "10.8.0.2", "10.9.0.2" };

	(void)state;
	ours(2, a);
	theirs(2, b);
	assert_path(0, &member[0], "10.8.0.2", 1000);
	assert_path(1, &member[1], "10.9.0.2", 1001);
}

static void two_paths(void)
{
	static const char *const a[] = { "10.1.0.1", "10.2.0.1" };
	static const char *const b[] = { "10.1.0.2", "10.2.0.2" };

	ours(2, a);
	theirs(2, b);
}

static void lanes_alternate_and_leave_a_path_that_is_bad(void **state)
{
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	for (unsigned lane = 0; lane < 4; lane++)
		assert_int_equal(braid_path_for(&link_, lane, now), lane % 2);
	braid_path_bad(&link_, 1, now);
	for (unsigned lane = 0; lane < 4; lane++)
		assert_int_equal(braid_path_for(&link_, lane, now), 0);
	/* Both paths have failed: the one that failed first is tried first. */
	braid_path_bad(&link_, 0, now + SEC);
	assert_int_equal(braid_path_for(&link_, 0, now + SEC), 1);
	/* After a while the other path is tried again. */
	assert_int_equal(braid_path_for(&link_, 1, now + 3 * SEC), 1);
	assert_int_equal(braid_path_for(&link_, 0, now + 4 * SEC), 0);
}

/* Seconds for which a path is left alone that fails now. */
static uint64_t hold(uint64_t now)
{
	uint64_t s = 0;

	braid_path_bad(&link_, 1, now);
	while (braid_path_for(&link_, 1, now + s * SEC) != 1)
		s++;
	return s;
}

static void a_path_that_stays_bad_is_reported_once(void **state)
{
	struct braid_lane lanes[2] = { { .recover.path = 0 }, { .recover.path = 1 } };
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	strcpy(member[1].net.name, "none");
	link_.nlanes = 2;
	for (unsigned i = 0; i < 2; i++) {
		link_.lane[i] = &lanes[i];
		atomic_store(&lanes[i].up, true);
	}
	warns_keep();
	braid_path_bad(&link_, 1, now);
	braid_paths_report(&link_, now + 4 * SEC);		/* a lane works there after all */
	assert_int_equal(warn_count, 0);
	atomic_store(&lanes[1].up, false);
	braid_paths_report(&link_, now + 2 * SEC);
	assert_int_equal(warn_count, 0);
	braid_path_bad(&link_, 1, now + 2 * SEC);
	braid_paths_report(&link_, now + 3 * SEC);
	braid_paths_report(&link_, now + 30 * SEC);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "over none to 10.2.0.2:1001 for 3 s"));
	assert_non_null(strstr(warn_text, "[path-down]"));
	braid_path_good(&link_, 1, now + 40 * SEC);
	braid_path_bad(&link_, 1, now + 50 * SEC);
	atomic_store(&lanes[0].up, false);	/* then the peer is silent, which has a line */
	braid_paths_report(&link_, now + 60 * SEC);
	atomic_store(&lanes[0].up, true);	/* and the path has not been tried since */
	braid_paths_report(&link_, now + 62 * SEC);
	assert_int_equal(warn_count, 1);
	braid_paths_report(&link_, now + 63 * SEC);
	assert_int_equal(warn_count, 2);
}

static void a_path_that_flaps_is_left_alone_for_longer(void **state)
{
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	assert_int_equal(hold(now), 2);
	/* A path that never answered does not flap: it is tried as often as before. */
	assert_int_equal(hold(now += 3 * SEC), 2);
	/* The path comes back and is lost again at once, several times: it is left alone ever longer. */
	for (uint64_t want = 4; want <= 64; want *= 2) {
		braid_path_good(&link_, 1, now += 10 * SEC);
		assert_int_equal(hold(now += SEC), want);
	}
	braid_path_good(&link_, 1, now += 100 * SEC);
	assert_int_equal(hold(now += SEC), 64);
	/* The path has worked for long: its flaps are forgotten. */
	braid_path_good(&link_, 1, now += 100 * SEC);
	assert_int_equal(hold(now += 20 * SEC), 2);
}

/* Seconds without RDMA on a path where it fails now. */
static uint64_t plain(uint64_t now, bool worse)
{
	braid_path_plain(&link_, 1, worse, 0, now);
	return (link_.setup.path[1].plain_until_ns - now) / SEC;
}

static void rdma_that_flaps_is_left_alone_for_longer(void **state)
{
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	assert_int_equal(plain(now, true), 2);
	/* Other lanes report the same fault: it counts once. */
	assert_int_equal(plain(now, true), 2);
	assert_int_equal(plain(now + SEC, true), 1);
	for (uint64_t want = 4; want <= 64; want *= 2)
		assert_int_equal(plain(now = link_.setup.path[1].plain_until_ns + SEC, true), want);
	assert_int_equal(plain(now = link_.setup.path[1].plain_until_ns + SEC, true), 64);
	/* RDMA has worked for long: its flaps are forgotten. */
	assert_int_equal(plain(now = link_.setup.path[1].plain_until_ns + 20 * SEC, true), 2);
	/* A port that is down is no flap. */
	assert_int_equal(plain(now = link_.setup.path[1].plain_until_ns, false), 2);
	assert_int_equal(plain(link_.setup.path[1].plain_until_ns, false), 2);
}

/* Seconds for which a path is left whose data was changed now; 0: it is not. */
static unsigned corrupt(uint64_t now)
{
	return braid_path_corrupt(&link_, 1, false, now);
}

static void a_path_that_changes_data_three_times_a_minute_is_left(void **state)
{
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	assert_int_equal(corrupt(now), 0);
	assert_int_equal(corrupt(now + 50 * SEC), 0);
	assert_int_equal(corrupt(now + 61 * SEC), 0);	/* the first one of another minute */
	assert_int_equal(corrupt(now + 80 * SEC), 0);
	assert_int_equal(braid_path_for(&link_, 1, now += 121 * SEC), 1);
	assert_int_equal(corrupt(now), 10);
	assert_int_equal(braid_path_for(&link_, 1, now), 0);
	/* A dial that works, and another lane of the path, change nothing about that. */
	braid_path_good(&link_, 1, now);
	assert_int_equal(corrupt(now + SEC), 0);
	assert_int_equal(braid_path_for(&link_, 1, now + 10 * SEC - 1), 0);
	assert_int_equal(braid_path_for(&link_, 1, now + 10 * SEC), 1);
}

static void the_pause_of_a_path_that_still_changes_data_doubles(void **state)
{
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	assert_int_equal(corrupt(now) + corrupt(now), 0);
	for (unsigned want = 10; want <= 320; want *= 2) {
		assert_int_equal(corrupt(now), want);
		now += (want + 60) * SEC;
	}
	assert_int_equal(corrupt(now), 320);
	/* A minute without a fault: it is as good as new. */
	now += (320 + 61) * SEC;
	assert_int_equal(corrupt(now) + corrupt(now), 0);
	assert_int_equal(corrupt(now), 10);
}

static void sockets_use_a_path_on_which_rdma_changes_data(void **state)
{
	uint64_t now = 100 * SEC;

	(void)state;
	two_paths();
	assert_int_equal(plain(now, true), 2);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(braid_path_corrupt(&link_, 1, true, now), i == 2 ? 10 : 0);
	assert_int_equal(link_.setup.path[1].plain_until_ns, now + 10 * SEC);
	assert_int_equal(braid_path_for(&link_, 1, now), 1);
	assert_int_equal(corrupt(now), 0);
}

static void the_only_path_is_never_left_alone(void **state)
{
	static const char *const a[] = { "10.1.0.1" }, *const b[] = { "10.1.0.2" };

	(void)state;
	ours(1, a);
	theirs(1, b);
	braid_path_bad(&link_, 0, SEC);
	assert_int_equal(link_.setup.path[0].bad_until_ns, 0);
	assert_int_equal(braid_path_for(&link_, 3, SEC), 0);
}

static void an_address_of_the_other_version_is_no_way(void **state)
{
	static const char *const a[] = { "10.1.0.1" };
	struct braid_handle to = { .has6 = 1, .addr6 = { 0xfd }, .port = 5 };
	struct sockaddr_storage sa;

	(void)state;
	ours(1, a);
	braid_path_first(&link_, &to);
	assert_int_equal(braid_path_sockaddr(&link_.setup.path[0], &sa), 0);
	to = (struct braid_handle){ .has4 = 1, .addr4 = { 10, 1, 0, 2 }, .port = 5 };
	braid_path_first(&link_, &to);
	assert_int_equal(braid_path_sockaddr(&link_.setup.path[0], &sa), sizeof(struct sockaddr_in));
	assert_int_equal(((struct sockaddr_in *)&sa)->sin_port, htons(5));
}

static int lock(void **state)
{
	(void)state;
	braid_svc_lock();
	return 0;
}

static int unlock(void **state)
{
	(void)state;
	braid_svc_unlock();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_paired_by_subnet),
		cmocka_unit_test(unequal_numbers_use_all_of_the_longer_row),
		cmocka_unit_test(other_subnets_are_paired_in_order),
		cmocka_unit_test(lanes_alternate_and_leave_a_path_that_is_bad),
		cmocka_unit_test(a_path_that_stays_bad_is_reported_once),
		cmocka_unit_test(a_path_that_flaps_is_left_alone_for_longer),
		cmocka_unit_test(rdma_that_flaps_is_left_alone_for_longer),
		cmocka_unit_test(a_path_that_changes_data_three_times_a_minute_is_left),
		cmocka_unit_test(the_pause_of_a_path_that_still_changes_data_doubles),
		cmocka_unit_test(sockets_use_a_path_on_which_rdma_changes_data),
		cmocka_unit_test(the_only_path_is_never_left_alone),
		cmocka_unit_test(an_address_of_the_other_version_is_no_way),
	};

	return cmocka_run_group_tests(tests, lock, unlock);
}
