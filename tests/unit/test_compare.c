/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_compare.c - braid compare's statistics and texts: intervals are as likely right as promised, a
 * winner is named only if it is certain, a stored report reads back the same; and launchers' variables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/compare/compare.h"

enum { TCP1, TCP4, VERBS, RAW, WAYS };

static struct cmp_report rep;

static void report_new(int rounds)
{
	static const struct cmp_way ways[WAYS] = {
		[TCP1] = { .name = "tcp x1", .way = { "tcp", 1 }, .there = true },
		[TCP4] = { .name = "tcp x4", .way = { "tcp", 4 }, .there = true },
		[VERBS] = { .name = "verbs", .way = { "verbs", 0 }, .there = true },
		[RAW] = { .name = "raw TCP", .kind = FABRIC_RAW, .reference = true, .there = true },
	};

	cmp_report_fini(&rep);
	rep = (struct cmp_report){ .seed = 1, .rounds = rounds, .nways = WAYS, .base = TCP1 };
	memcpy(rep.ways, ways, sizeof(ways));
}

/* All rounds of one way at one size, each a little off: by up to `off`, in both directions. */
static void measured(enum perf_pattern pattern, int way, uint64_t size, double us, double off)
{
	struct cmp_row row = { .pattern = pattern, .way = way, .size = size };

	rep.procs[pattern] = 2;
	for (row.round = 0; row.round < rep.rounds; row.round++) {
		row.v[CMP_P50] = row.v[CMP_OP_US] = us * (1 + off * ((row.round * 2) % 5 - 2) / 2);
		row.v[CMP_MSG] = 1e6 / row.v[CMP_P50];
		assert_int_equal(cmp_row_add(&rep, &row), 0);
	}
}

static void near(double got, double want, double by)
{
	if (fabs(got - want) > by)
		fail_msg("%.9g is not %.9g", got, want);
}

static int report_end(void **state)
{
	(void)state;
	cmp_report_fini(&rep);
	return 0;
}

static void same_ratio_is_certain(void **state)
{
	static const double a[] = { 2, 4, 6, 8, 10 }, b[] = { 1, 2, 3, 4, 5 };
	struct cmp_ratio r;

	(void)state;
	cmp_bootstrap(a, b, 5, 1, &r);
	near(r.mid, 2, 1e-9);
	near(r.lo, 2, 1e-9);
	near(r.hi, 2, 1e-9);
	assert_int_equal(cmp_ratio_verdict(&r), 1);
	cmp_bootstrap(b, a, 5, 1, &r);
	assert_int_equal(cmp_ratio_verdict(&r), -1);
}

static void interval_depends_on_the_seed_alone(void **state)
{
	static const double a[] = { 1.0, 1.3, 0.9, 1.1, 1.7, 1.2, 0.8, 1.4, 1.5 };
	static const double b[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	struct cmp_ratio r, again, other;
	uint64_t seed;
	bool differs = false;

	(void)state;
	cmp_bootstrap(a, b, 9, 7, &r);
	cmp_bootstrap(a, b, 9, 7, &again);
	assert_memory_equal(&r, &again, sizeof(r));
	near(r.mid, 1.2, 1e-9);
	assert_true(r.lo >= 0.8 && r.lo < r.mid && r.mid < r.hi && r.hi <= 1.7);
	for (seed = 8; seed < 200; seed++) {
		cmp_bootstrap(a, b, 9, seed, &other);
		differs |= other.lo != r.lo || other.hi != r.hi;
	}
	assert_true(differs);
}

/* Of 1000 experiments whose true ratio is 1, the interval has 1 in it in most. */
static void interval_holds_the_truth(void **state)
{
	double a[5], b[5];
	struct cmp_ratio r;
	int i, k, held = 0, all = 1000;

	(void)state;
	srandom(4711);
	for (k = 0; k < all; k++) {
		for (i = 0; i < 5; i++) {
			a[i] = exp((double)(random() % 2001 - 1000) / 1000);
			b[i] = exp((double)(random() % 2001 - 1000) / 1000);
		}
		cmp_bootstrap(a, b, 5, (uint64_t)k, &r);
		held += r.lo <= 1 && r.hi >= 1;
	}
	print_message("%d of %d intervals hold the truth\n", held, all);
	assert_true(held > 900);
	assert_true(held < 990);	/* too wide intervals would be useless */
}

static void few_rounds_give_no_verdict(void **state)
{
	static const double a[] = { 9, 9, 9, 9 }, b[] = { 1, 1, 1, 1 };
	struct cmp_ratio r;

	(void)state;
	cmp_bootstrap(a, b, 4, 1, &r);
	assert_int_equal(cmp_ratio_verdict(&r), 0);
	cmp_bootstrap(a, b, 0, 1, &r);
	assert_int_equal(r.n, 0);
}

static void medians(void **state)
{
	double odd[] = { 5, 1, 3 }, even[] = { 4, 1, 3, 2 };

	(void)state;
	near(perf_median(odd, 3), 3, 0);
	near(perf_median(even, 4), 2.5, 0);
	near(perf_median(NULL, 0), 0, 0);
}

static void less_latency_is_a_ratio_above_1(void **state)
{
	struct cmp_ratio r;

	(void)state;
	report_new(5);
	measured(PERF_PINGPONG, TCP1, 8, 10, 0.01);
	measured(PERF_PINGPONG, VERBS, 8, 5, 0.01);
	assert_true(cmp_ratio_of(&rep, PERF_PINGPONG, VERBS, TCP1, 8, &r));
	near(r.mid, 2, 0.1);
	measured(PERF_ONEWAY, TCP1, 8, 10, 0.01);	/* there it is messages a second */
	measured(PERF_ONEWAY, VERBS, 8, 5, 0.01);
	assert_true(cmp_ratio_of(&rep, PERF_ONEWAY, VERBS, TCP1, 8, &r));
	near(r.mid, 2, 0.1);
	assert_false(cmp_ratio_of(&rep, PERF_ONEWAY, VERBS, TCP1, 16, &r));
}

static void greatest_of_maxima(void **state)
{
	struct cmp_row row = { .pattern = PERF_PINGPONG, .size = 8 };
	double x;

	(void)state;
	report_new(3);
	for (row.round = 0; row.round < 3; row.round++) {
		row.v[CMP_MAX] = row.v[CMP_P99] = 10 * (row.round + 1);
		cmp_row_add(&rep, &row);
	}
	assert_true(cmp_value_of(&rep, PERF_PINGPONG, 0, 8, CMP_MAX, &x));
	near(x, 30, 0);
	assert_true(cmp_value_of(&rep, PERF_PINGPONG, 0, 8, CMP_P99, &x));
	near(x, 20, 0);
	assert_false(cmp_value_of(&rep, PERF_PINGPONG, 1, 8, CMP_MAX, &x));
}

static void sizes_come_in_order(void **state)
{
	uint64_t sizes[PERF_SIZES_MAX];

	(void)state;
	report_new(1);
	measured(PERF_PINGPONG, TCP1, 64, 1, 0);
	measured(PERF_PINGPONG, TCP1, 8, 1, 0);
	measured(PERF_PINGPONG, VERBS, 64, 1, 0);
	measured(PERF_ONEWAY, VERBS, 1, 1, 0);
	assert_int_equal(cmp_sizes(&rep, PERF_PINGPONG, sizes), 2);
	assert_int_equal(sizes[0], 8);
	assert_int_equal(sizes[1], 64);
}

/* One size: what TCP with one lane, with four, verbs and raw TCP take. */
static void four(uint64_t size, double tcp1, double tcp4, double verbs, double raw, double off)
{
	measured(PERF_PINGPONG, TCP1, size, tcp1, off);
	measured(PERF_PINGPONG, TCP4, size, tcp4, off);
	measured(PERF_PINGPONG, VERBS, size, verbs, off / 2);
	measured(PERF_PINGPONG, RAW, size, raw, off);
}

static void words(const char *want)
{
	char got[CMP_SUMMARY];

	cmp_summary(&rep, PERF_PINGPONG, got);
	assert_string_equal(got, want);
}

static void the_winner_changes(void **state)
{
	(void)state;
	report_new(5);
	four(8, 10, 11, 5, 1, 0);
	four(1024, 12, 13, 4, 1, 0);
	four(65536, 30, 20, 20, 1, 0.2);
	four(1 << 20, 300, 150, 200, 1, 0);
	words("pingpong: verbs is ahead up to 1k, at most 3.00x [3.00..3.00] tcp x1 (at 1k); "
	      "nobody is surely ahead at 64k; tcp x4 is ahead at 1m, 1.33x [1.33..1.33] verbs. "
	      "The winner changes between 1k and 1m: verbs, then tcp.");
}

static void lanes_are_named_where_only_they_differ(void **state)
{
	(void)state;
	report_new(5);
	measured(PERF_PINGPONG, TCP1, 8, 10, 0);
	measured(PERF_PINGPONG, TCP4, 8, 12, 0);
	measured(PERF_PINGPONG, TCP1, 64, 20, 0);
	measured(PERF_PINGPONG, TCP4, 64, 10, 0);
	words("pingpong: tcp x1 is ahead at 8, 1.20x [1.20..1.20] tcp x4; "
	      "tcp x4 is ahead at 64, 2.00x [2.00..2.00] tcp x1.");
}

static void noise_makes_no_winner(void **state)
{
	(void)state;
	report_new(5);
	four(8, 10, 10.1, 9.9, 1, 0.3);
	four(64, 10, 10.1, 9.9, 1, 0.3);
	words("pingpong: nobody is surely ahead at any size.");
	report_new(4);
	four(8, 10, 11, 1, 1, 0);
	words("pingpong: nobody is surely ahead at 8.");
}

static void a_single_competitor_has_no_summary(void **state)
{
	(void)state;
	report_new(5);
	measured(PERF_PINGPONG, VERBS, 8, 10, 0);
	measured(PERF_PINGPONG, RAW, 8, 1, 0);
	words("");
}

static void numbers_fit_four_columns(void **state)
{
	static const struct {
		double x;
		const char *text;
	} rows[] = { { 0.5, "0.50" }, { 1, "1.00" }, { 9.994, "9.99" }, { 9.996, "10.0" },
		     { 99.94, "99.9" }, { 99.96, "100" }, { 1234.5, "1234" } };
	char room[8];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cmp_ratio_text(rows[i].x, room, sizeof(room));
		assert_string_equal(room, rows[i].text);
	}
}

static void stored_and_read_back(void **state)
{
	char path[] = "/tmp/braid-compare-XXXXXX", err[PERF_TEXT], before[CMP_SUMMARY];
	struct cmp_report got;
	int i, fd = mkstemp(path);
	FILE *to = fdopen(fd, "w");
	json_t *doc;

	(void)state;
	assert_non_null(to);
	report_new(5);
	four(8, 10, 11, 5, 1, 0.1);
	rep.ways[TCP4].there = false;
	snprintf(rep.ways[TCP4].why, sizeof(rep.ways[TCP4].why), "why not");
	snprintf(rep.failed, sizeof(rep.failed), "it failed");
	rep.interrupted = true;
	cmp_note(&rep, "a note with %d", 100);
	doc = cmp_json(&rep);
	assert_int_equal(json_dumpf(doc, to, 0), 0);
	json_decref(doc);
	fclose(to);
	assert_int_equal(cmp_json_read(&got, path, err), 0);
	unlink(path);
	assert_int_equal(got.nrows, rep.nrows);
	for (i = 0; i < rep.nrows; i++) {
		assert_int_equal(got.rows[i].way, rep.rows[i].way);
		assert_int_equal(got.rows[i].round, rep.rows[i].round);
		assert_int_equal(got.rows[i].size, rep.rows[i].size);
		near(got.rows[i].v[CMP_P50], rep.rows[i].v[CMP_P50], 1e-6);
	}
	assert_int_equal(got.nways, WAYS);
	assert_int_equal(got.base, TCP1);
	assert_false(got.ways[TCP4].there);
	assert_string_equal(got.ways[TCP4].why, "why not");
	assert_string_equal(got.failed, "it failed");
	assert_string_equal(got.notes[0], "a note with 100");
	assert_true(got.interrupted && got.ways[RAW].reference);
	cmp_summary(&rep, PERF_PINGPONG, before);
	cmp_report_fini(&rep);
	rep = got;
	words(before);
}

/* A file that is no report is refused with one sentence, and nothing of it is used. */
static void rubbish_is_refused(void **state)
{
	static const char *const texts[] = {
		"", "{", "[]", "{}", "{\"schema\": \"braid-perf-1\"}",
		"{\"schema\": \"braid-compare-1\", \"rounds\": 100000}",
		"{\"schema\": \"braid-compare-1\", \"rounds\": 5, \"rows\": [{}]}",
		("{\"schema\": \"braid-compare-1\", \"rounds\": 5, \"ways\": [{\"name\": \"a\"}], "
		 "\"rows\": [{\"pattern\": \"pingpong\", \"over\": \"a\", \"round\": 5}]}"),
		"{\"schema\": \"braid-compare-1\", \"rounds\": 5, \"patterns\": [{\"name\": \"x\"}]}",
	};
	char path[] = "/tmp/braid-compare-XXXXXX", err[PERF_TEXT];
	int fd = mkstemp(path);
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
		*err = 0;
		assert_true(cmp_json_read(&rep, path, err) < 0);
		assert_non_null(strstr(err, path));
		assert_int_equal(rep.nrows, 0);
	}
	close(fd);
	unlink(path);
}

/* -- launchers ---------------------------------------------------------------------------- */

static const char *const variables[] = {
	"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
	"PMIX_NAMESPACE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID",
	"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMI_RANK",
	"PMI_SIZE", "MPI_LOCALNRANKS",
};

/* With these variables of a launcher's, "NAME=VALUE ...", and no others. */
static bool launched(const char *env, struct cmp_place *p, char *meet)
{
	char copy[400], *save = NULL, *word;
	unsigned i;

	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	snprintf(copy, sizeof(copy), "%s", env);
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		*strchr(word, '=') = 0;
		setenv(word, word + strlen(word) + 1, 1);
	}
	*p = (struct cmp_place){ .nprocs = 0 };
	return cmp_launched(p, meet, 300);
}

static void launchers_are_recognised_by_their_variables(void **state)
{
	static const struct {
		const char *env, *launcher, *meet;	/* meet: how it begins; launcher NULL: none */
		int rank, nprocs;
	} rows[] = {
		{ "", NULL, "", 0, 0 },
		{ "RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500", "torchrun", "a:29501", 1, 4 },
		{ "RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1", "torchrun", "[::1]:2", 0, 2 },
		{ "RANK=1 WORLD_SIZE=4", NULL, "", 0, 0 },
		{ "RANK=0 WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=29500", NULL, "", 0, 0 },
		{ "RANK=4 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500", NULL, "", 0, 0 },
		{ "RANK=x WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500", NULL, "", 0, 0 },
		{ "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=8 "
		  "PMIX_NAMESPACE=j1", "mpirun", "127.0.0.1:2", 3, 8 },
		{ "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
		  "PMIX_NAMESPACE=j1", "mpirun", "", 3, 8 },
		{ "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NODELIST=n[03-05,7],x "
		  "SLURM_JOB_ID=7 SLURM_STEP_ID=0", "srun", "n03:", 2, 3 },
		{ "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NODELIST=n-1,n-2", "srun",
		  "n-1:", 2, 3 },
		{ "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=n1", NULL, "", 0, 0 },
		{ "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2", "mpiexec", "127.0.0.1:", 1, 2 },
		{ "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=1", "mpiexec", "", 1, 2 },
		{ "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n1 RANK=5 WORLD_SIZE=16 "
		  "MASTER_ADDR=a MASTER_PORT=1", "torchrun", "a:2", 5, 16 },
	};
	struct cmp_place p;
	char meet[300];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(launched(rows[i].env, &p, meet), rows[i].launcher != NULL);
		assert_string_equal(p.launcher, rows[i].launcher ? rows[i].launcher : "");
		assert_int_equal(p.rank, rows[i].rank);
		assert_int_equal(p.nprocs, rows[i].nprocs);
		if (rows[i].launcher && !rows[i].meet[0])
			assert_string_equal(meet, "");
		assert_int_equal(strncmp(meet, rows[i].meet, strlen(rows[i].meet)), 0);
	}
}

static void jobs_meet_at_ports_of_their_own(void **state)
{
	static const char *const jobs[] = { "SLURM_JOB_ID=7", "SLURM_JOB_ID=8" };
	char env[200], meet[2][300];
	struct cmp_place p;
	int i, port;

	(void)state;
	for (i = 0; i < 2; i++) {
		snprintf(env, sizeof(env), "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 "
			 "SLURM_STEP_NODELIST=n1 %s", jobs[i]);
		assert_true(launched(env, &p, meet[i]));
		port = atoi(strchr(meet[i], ':') + 1);
		assert_in_range(port, 20000, 31999);
	}
	assert_string_not_equal(meet[0], meet[1]);
}

static void two_ranks_are_far_apart(void **state)
{
	struct cmp_place p = { .nprocs = 4, .addr = { "", "a:1", "b:2", "b:3" } };
	struct cmp_place listener = { .remote = "c:7" }, here = { .nprocs = 0 };
	const char *where[4];

	(void)state;
	cmp_where(&p, 4, where);
	assert_null(where[0]);
	assert_string_equal(where[3], "b:3");
	cmp_where(&p, 2, where);
	assert_string_equal(where[1], "a:1");	/* all on one host */
	p.elsewhere[2] = p.elsewhere[3] = true;
	cmp_where(&p, 2, where);
	assert_string_equal(where[1], "b:2");
	cmp_where(&listener, 4, where);
	assert_null(where[1]);
	assert_string_equal(where[2], "c:7");
	cmp_where(&here, 4, where);
	assert_null(where[3]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_ratio_is_certain),
		cmocka_unit_test(interval_depends_on_the_seed_alone),
		cmocka_unit_test(interval_holds_the_truth),
		cmocka_unit_test(few_rounds_give_no_verdict),
		cmocka_unit_test(medians),
		cmocka_unit_test_teardown(less_latency_is_a_ratio_above_1, report_end),
		cmocka_unit_test_teardown(greatest_of_maxima, report_end),
		cmocka_unit_test_teardown(sizes_come_in_order, report_end),
		cmocka_unit_test_teardown(the_winner_changes, report_end),
		cmocka_unit_test_teardown(lanes_are_named_where_only_they_differ, report_end),
		cmocka_unit_test_teardown(noise_makes_no_winner, report_end),
		cmocka_unit_test_teardown(a_single_competitor_has_no_summary, report_end),
		cmocka_unit_test(numbers_fit_four_columns),
		cmocka_unit_test_teardown(stored_and_read_back, report_end),
		cmocka_unit_test(rubbish_is_refused),
		cmocka_unit_test(launchers_are_recognised_by_their_variables),
		cmocka_unit_test(jobs_meet_at_ports_of_their_own),
		cmocka_unit_test(two_ranks_are_far_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
