/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_mesh_score.c - what braid mesh makes of made-up meshes: it names what is bad, only that, and
 * nothing where there is only noise.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/mesh/mesh.h"

static struct mesh_report r;
static uint64_t seed;

static double chance(void)		/* above 0, at most 1 (splitmix64) */
{
	uint64_t x = seed += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0 + 1e-17;
}

static double normal(void)
{
	double u = chance();

	return sqrt(-2 * log(u)) * cos(2 * M_PI * chance());
}

/* n hosts, 10 Gbit/s and 20 us, each figure off by `noise`. */
static void mesh(int n, double noise, uint64_t with)
{
	struct mesh_cell *c;
	int a, b;

	mesh_report_fini(&r);
	r = (struct mesh_report){ .n = 0 };
	seed = with;
	assert_int_equal(mesh_report_init(&r, n), 0);
	for (a = 0; a < n; a++)
		for (b = 0; b < n; b++) {
			c = mesh_cell(&r, a, b);
			if (a == b)
				continue;
			c->state = MESH_DONE;
			c->cpu = 1;
			c->bytes_s = 1.25e9 * exp(noise * normal());
			c->least_s = a < b ? 20e-6 * exp(noise * normal()) : mesh_cell(&r, b, a)->least_s;
			c->latency_s = 1.2 * c->least_s;
		}
}

static void slow(int from, int to, double times)
{
	mesh_cell(&r, from, to)->bytes_s /= times;
}

static void host_slow(int i, double sends, double receives)
{
	for (int j = 0; j < r.n; j++) {
		slow(i, j, sends);
		slow(j, i, receives);
	}
}

static void cut(int a, int b)
{
	mesh_cell(&r, a, b)->state = mesh_cell(&r, b, a)->state = MESH_FAILED;
}

static void says(int at, enum mesh_kind kind, enum mesh_way way, int a, int b)
{
	const struct mesh_finding *f = &r.found[at];

	if (at >= r.nfound)
		fail_msg("%d findings, none %s of host %d", r.nfound, mesh_kind_names[kind], a);
	if (f->kind != kind || f->way != way || f->a != a || f->b != b)
		fail_msg("%s, way %d, hosts %d and %d, and not %s, way %d, hosts %d and %d",
			 mesh_kind_names[f->kind], f->way, f->a, f->b, mesh_kind_names[kind], way, a, b);
}

static void says_only(enum mesh_kind kind, enum mesh_way way, int a, int b)
{
	mesh_score(&r);
	says(0, kind, way, a, b);
	if (r.nfound != 1)
		fail_msg("%d findings, the second %s of hosts %d and %d", r.nfound,
			 mesh_kind_names[r.found[1].kind], r.found[1].a, r.found[1].b);
}

/* -- nothing ------------------------------------------------------------------------------ */

static void a_healthy_mesh_with_noise_has_no_finding(void **state)
{
	static const int sizes[] = { 2, 3, 4, 5, 6, 8, 16, 21 };
	unsigned i;
	int k, raised;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (k = raised = 0; k < 1000; k++) {
			mesh(sizes[i], 0.1, (uint64_t)k + 1);
			mesh_score(&r);
			raised += r.nfound > 0;
		}
		if (raised > 10)
			fail_msg("%d of 1000 healthy meshes of %d hosts raise something", raised, sizes[i]);
	}
}

static void much_noise_is_no_finding(void **state)
{
	int k, raised = 0;

	(void)state;
	for (k = 0; k < 1000; k++) {
		mesh(16, 0.35, (uint64_t)k + 1);
		mesh_score(&r);
		raised += r.nfound > 0;
	}
	if (raised > 10)
		fail_msg("%d of 1000 noisy meshes raise something", raised);
}

static void pairs_that_were_not_measured_are_no_finding(void **state)
{
	(void)state;
	mesh(8, 0.1, 1);
	for (int j = 0; j < 8; j++)
		mesh_cell(&r, 3, j)->state = mesh_cell(&r, j, 3)->state = MESH_OPEN;
	mesh_score(&r);
	assert_int_equal(r.nfound, 0);
	for (int i = 0; i < 64; i++)
		r.cells[i].state = MESH_OPEN;
	mesh_score(&r);
	assert_int_equal(r.nfound, 0);
	assert_true(r.bytes_s == 0);
}

/* -- hosts -------------------------------------------------------------------------------- */

static void a_slow_host_is_named(void **state)
{
	(void)state;
	for (uint64_t k = 1; k <= 200; k++) {
		mesh(16, 0.1, k);
		host_slow(7, 2, 2);
		says_only(MESH_HOST_SLOW, MESH_BOTH, 7, -1);
		assert_in_range((int)(r.found[0].others / 1e7), 110, 140);
		assert_in_range((int)(r.found[0].value / 1e7), 50, 75);
	}
}

static void a_slow_host_of_three_is_named(void **state)
{
	(void)state;
	for (uint64_t k = 1; k <= 200; k++) {
		mesh(3, 0.05, k);
		host_slow(1, 4, 4);
		says_only(MESH_HOST_SLOW, MESH_BOTH, 1, -1);
	}
}

static void a_slow_sender_is_named_as_one(void **state)
{
	(void)state;
	for (uint64_t k = 1; k <= 200; k++) {
		mesh(16, 0.1, k);
		host_slow(2, 3, 1);
		says_only(MESH_HOST_SLOW, MESH_SENDS, 2, -1);
		mesh(16, 0.1, k);
		host_slow(15, 1, 3);
		says_only(MESH_HOST_SLOW, MESH_RECEIVES, 15, -1);
	}
}

static void three_slow_hosts_are_all_named(void **state)
{
	(void)state;
	mesh(12, 0.1, 5);
	host_slow(1, 10, 10);
	host_slow(4, 5, 5);
	host_slow(9, 2, 2);
	mesh_score(&r);
	assert_int_equal(r.nfound, 3);
	says(0, MESH_HOST_SLOW, MESH_BOTH, 1, -1);
	says(1, MESH_HOST_SLOW, MESH_BOTH, 4, -1);
	says(2, MESH_HOST_SLOW, MESH_BOTH, 9, -1);
}

static void a_lossy_host_is_named(void **state)
{
	(void)state;
	mesh(16, 0.1, 9);
	for (int j = 0; j < 16; j++)
		mesh_cell(&r, j, 5)->resent = 0.02;
	says_only(MESH_HOST_LOSSY, MESH_RECEIVES, 5, -1);
	host_slow(5, 1, 30);
	says_only(MESH_HOST_LOSSY, MESH_RECEIVES, 5, -1);
	host_slow(5, 2, 1);
	says_only(MESH_HOST_LOSSY, MESH_RECEIVES, 5, -1);
	for (int j = 0; j < 16; j++)
		mesh_cell(&r, 5, j)->resent = 0.02;
	says_only(MESH_HOST_LOSSY, MESH_BOTH, 5, -1);
}

static void loss_on_one_of_a_few_pairs_names_no_host(void **state)
{
	(void)state;
	mesh(8, 0.1, 9);
	for (int i = 0; i < 64; i++)
		r.cells[i].state = i == 1 || i == 2 || i == 12 || i == 22 ? MESH_DONE : MESH_OPEN;
	mesh_cell(&r, 0, 1)->resent = 0.05;
	mesh_score(&r);
	assert_int_equal(r.nfound, 0);
	mesh_cell(&r, 0, 2)->state = MESH_OPEN;
	mesh_score(&r);
	assert_int_equal(r.nfound, 0);
}

static void loss_everywhere_names_no_host(void **state)
{
	(void)state;
	mesh(8, 0.1, 9);
	for (int i = 0; i < 64; i++)
		r.cells[i].resent = 0.02;
	mesh_score(&r);
	assert_int_equal(r.nfound, 0);
}

static void a_late_host_is_named(void **state)
{
	(void)state;
	mesh(16, 0.1, 3);
	for (int j = 0; j < 16; j++)
		mesh_cell(&r, 5, j)->least_s = mesh_cell(&r, j, 5)->least_s = 60e-6;
	says_only(MESH_HOST_LATE, MESH_BOTH, 5, -1);
}

static void an_absent_host_is_named_and_its_pairs_are_not(void **state)
{
	(void)state;
	mesh(6, 0.1, 3);
	snprintf(r.hosts[2].why, sizeof(r.hosts[2].why), "no route");
	for (int j = 0; j < 6; j++)
		if (j != 2)
			cut(2, j);
	says_only(MESH_ABSENT, MESH_BOTH, 2, -1);
}

static void a_host_that_fails_with_all_is_named(void **state)
{
	(void)state;
	mesh(6, 0.1, 3);
	for (int j = 0; j < 6; j++)
		if (j != 4)
			cut(4, j);
	says_only(MESH_HOST_CUT, MESH_BOTH, 4, -1);
	assert_int_equal(r.found[0].failed, 5);
	assert_int_equal(r.found[0].tried, 5);
}

/* -- pairs -------------------------------------------------------------------------------- */

static void a_dead_pair_is_named(void **state)
{
	(void)state;
	for (int n = 2; n <= 16; n++) {
		mesh(n, 0.1, 3);
		cut(0, n - 1);
		says_only(MESH_PAIR_CUT, MESH_BOTH, 0, n - 1);
	}
}

static void a_slow_pair_is_named(void **state)
{
	(void)state;
	for (int n = 3; n <= 16; n++) {
		mesh(n, 0.05, 3);
		slow(0, n - 1, 5);
		slow(n - 1, 0, 5);
		says_only(MESH_PAIR_SLOW, MESH_BOTH, 0, n - 1);
	}
	mesh(16, 0.1, 3);
	slow(9, 3, 5);
	says_only(MESH_PAIR_SLOW, MESH_RECEIVES, 3, 9);
	assert_true(r.found[0].value < 0.3e9);
}

static void a_pair_measured_without_a_cpu_of_its_own_is_not_named(void **state)
{
	(void)state;
	mesh(8, 0.1, 3);
	slow(2, 5, 10);
	mesh_cell(&r, 2, 5)->cpu = 0.5;
	mesh_cell(&r, 1, 6)->latency_s = mesh_cell(&r, 6, 1)->latency_s = 1e-3;
	mesh_cell(&r, 1, 6)->least_s = mesh_cell(&r, 6, 1)->least_s = 0;
	mesh_score(&r);
	assert_int_equal(r.nfound, 0);
	mesh_cell(&r, 2, 5)->cpu = 0.95;
	says_only(MESH_PAIR_SLOW, MESH_SENDS, 2, 5);
	mesh_cell(&r, 2, 5)->cpu = 0.5;
	mesh_cell(&r, 1, 6)->least_s = mesh_cell(&r, 6, 1)->least_s = 1e-3;
	says_only(MESH_PAIR_LATE, MESH_BOTH, 1, 6);
}

static void a_rate_limited_host_a_lossy_host_and_a_dead_pair_are_told_apart(void **state)
{
	(void)state;
	for (uint64_t k = 1; k <= 100; k++) {
		mesh(16, 0.1, k);
		host_slow(3, 10, 1);
		host_slow(8, 1, 50);
		for (int j = 0; j < 16; j++)
			mesh_cell(&r, j, 8)->resent = 0.05;
		cut(11, 12);
		mesh_score(&r);
		assert_int_equal(r.nfound, 3);
		says(0, MESH_HOST_LOSSY, MESH_RECEIVES, 8, -1);
		says(1, MESH_HOST_SLOW, MESH_SENDS, 3, -1);
		says(2, MESH_PAIR_CUT, MESH_BOTH, 11, 12);
	}
}

/* -- sides -------------------------------------------------------------------------------- */

static bool upper_half(int i)
{
	return i >= r.n / 2;
}

static void halves_slow(double there, double back)
{
	for (int i = 0; i < r.n; i++)
		for (int j = 0; j < r.n; j++)
			if (upper_half(i) != upper_half(j))
				slow(i, j, upper_half(i) ? back : there);
}

static void two_sides_are_found_without_their_names(void **state)
{
	(void)state;
	for (uint64_t k = 1; k <= 200; k++) {
		mesh(16, 0.1, k);
		halves_slow(3, 3);
		says_only(MESH_SIDE, MESH_BOTH, 0, 1);
		assert_int_equal(r.ngroups, 2);
		for (int i = 0; i < 16; i++)
			assert_int_equal(r.group[i], i >= 8);
	}
}

static void sides_that_cannot_talk_are_found(void **state)
{
	(void)state;
	mesh(8, 0.1, 3);
	for (int i = 0; i < 4; i++)
		for (int j = 4; j < 8; j++)
			cut(i, j);
	says_only(MESH_SIDE, MESH_BOTH, 0, 1);
	assert_true(r.found[0].value == 0);
}

static void named_sides_are_compared_each_way(void **state)
{
	(void)state;
	mesh(8, 0.1, 3);
	for (int i = 0; i < 8; i++)
		snprintf(r.hosts[i].side, sizeof(r.hosts[i].side), "%s", upper_half(i) ? "north" : "south");
	halves_slow(4, 1);
	says_only(MESH_SIDE, MESH_SENDS, 0, 1);
}

static void a_slow_host_beside_slow_sides_is_named_too(void **state)
{
	(void)state;
	mesh(16, 0.1, 3);
	halves_slow(3, 3);
	host_slow(5, 20, 20);
	mesh_score(&r);
	says(0, MESH_SIDE, MESH_BOTH, 0, 1);
	says(1, MESH_HOST_SLOW, MESH_BOTH, 5, -1);
	assert_int_equal(r.nfound, 2);
}

static int mesh_free(void **state)
{
	(void)state;
	mesh_report_fini(&r);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_healthy_mesh_with_noise_has_no_finding),
		cmocka_unit_test(much_noise_is_no_finding),
		cmocka_unit_test(pairs_that_were_not_measured_are_no_finding),
		cmocka_unit_test(a_slow_host_is_named),
		cmocka_unit_test(a_slow_host_of_three_is_named),
		cmocka_unit_test(a_slow_sender_is_named_as_one),
		cmocka_unit_test(three_slow_hosts_are_all_named),
		cmocka_unit_test(a_lossy_host_is_named),
		cmocka_unit_test(loss_on_one_of_a_few_pairs_names_no_host),
		cmocka_unit_test(loss_everywhere_names_no_host),
		cmocka_unit_test(a_late_host_is_named),
		cmocka_unit_test(an_absent_host_is_named_and_its_pairs_are_not),
		cmocka_unit_test(a_host_that_fails_with_all_is_named),
		cmocka_unit_test(a_dead_pair_is_named),
		cmocka_unit_test(a_slow_pair_is_named),
		cmocka_unit_test(a_pair_measured_without_a_cpu_of_its_own_is_not_named),
		cmocka_unit_test(a_rate_limited_host_a_lossy_host_and_a_dead_pair_are_told_apart),
		cmocka_unit_test(two_sides_are_found_without_their_names),
		cmocka_unit_test(sides_that_cannot_talk_are_found),
		cmocka_unit_test(named_sides_are_compared_each_way),
		cmocka_unit_test(a_slow_host_beside_slow_sides_is_named_too),
	};

	return cmocka_run_group_tests(tests, NULL, mesh_free);
}
