/* SPDX-License-Identifier: BSD-3-Clause */
/* test_metrics.c - the metrics of a process: well-formed, with its job's labels, and what is ill. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/setup/links.h"
#include "core/watch/metrics.h"
#include "core/watch/report.h"
#include "tests/lib/pair.h"

static struct null_pair pair;
static struct braid_link *link_;
static struct braid_text t;

static int up(void **state)
{
	const struct null_config config = { .lanes = 2, .window = 512 << 10, .held = true };
	struct braid_comm *cs, *cr;

	(void)state;
	null_pair_init(&pair, &config);
	null_comms(&pair, 0, &cs, &cr);
	braid_clock_set();
	link_ = pair.end[0];
	braid_links_init();
	braid_svc_lock();
	braid_link_number(link_);
	braid_link_list(link_);
	braid_svc_unlock();
	snprintf(link_->peer, sizeof(link_->peer), "a \"host\"\\\n");
	return 0;
}

static int down(void **state)
{
	(void)state;
	braid_text_free(&t);
	braid_list_del(&link_->table.node);
	null_pair_fini(&pair);
	return 0;
}

static void read_metrics(void)
{
	braid_text_free(&t);
	assert_int_equal(braid_metrics_text(&t), 0);
}

/* The line that begins so, and has that in it; or NULL. */
static const char *line_of(const char *begin, const char *has)
{
	static char line[1000];

	for (const char *s = t.p; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : "") {
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(s, "\n"), s);
		if (strncmp(line, begin, strlen(begin)) == 0 && strstr(line, has))
			return line;
	}
	return NULL;
}

static void every_metric_has_its_heading_and_the_text_an_end(void **state)
{
	(void)state;
	read_metrics();
	assert_non_null(line_of("# TYPE braid_oldest_seconds gauge", ""));
	assert_non_null(line_of("# TYPE braid_sent_bytes_total counter", ""));
	assert_non_null(line_of("braid_sent_bytes_total{", "device="));
	assert_string_equal(t.p + t.len - strlen("# EOF\n"), "# EOF\n");
}

static void the_text_says_when_it_was_made(void **state)
{
	time_t now = time(NULL);
	const char *line;

	(void)state;
	read_metrics();
	line = line_of("braid_metrics_timestamp_seconds{", "");
	assert_non_null(line);
	assert_in_range(atoll(strrchr(line, ' ')), now, now + 1000);
}

static void labels_are_the_first_variables_that_say_something(void **state)
{
	(void)state;
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_PROCID");
	setenv("TORCHELASTIC_RUN_ID", "none", 1);
	setenv("PBS_JOBID", "12.server", 1);
	setenv("RANK", "", 1);
	setenv("OMPI_COMM_WORLD_RANK", "4", 1);
	braid_metrics_job();
	read_metrics();
	assert_non_null(line_of("braid_up{", "job_id=\"12.server\",rank=\"4\","));
	setenv("SLURM_JOB_ID", "7", 1);
	braid_metrics_job();
	read_metrics();
	assert_non_null(line_of("braid_up{", "job_id=\"7\",rank=\"4\","));
}

static void a_silent_peer_is_named_while_it_is_silent(void **state)
{
	(void)state;
	read_metrics();
	assert_null(line_of("braid_peer_silent_seconds{", ""));
	assert_non_null(line_of("# TYPE braid_peer_silent_seconds gauge", ""));
	atomic_store(&link_->recover.silent, true);
	link_->recover.received_ns = null_now_ns;
	null_now_ns += 4500 * MS;
	read_metrics();
	assert_non_null(line_of("braid_peer_silent_seconds{", "peer=\"a \\\"host\\\"\\\\?\"} 4.5"));
	atomic_store(&link_->recover.silent, false);
	read_metrics();
	assert_null(line_of("braid_peer_silent_seconds{", ""));
}

static void a_lane_that_is_down_is_named_with_its_peer(void **state)
{
	(void)state;
	read_metrics();
	assert_null(line_of("braid_lane_down{", ""));
	braid_lock_wait(&link_->lock);
	braid_lane_lost(link_->lane[1], -ECONNRESET);
	braid_unlock(&link_->lock);
	read_metrics();
	assert_non_null(line_of("braid_lane_down{", "peer=\"a \\\"host\\\"\\\\?\",lane=\"1\"} 1"));
	assert_null(line_of("braid_lane_down{", "lane=\"0\""));
	assert_non_null(line_of("braid_lanes_down{", "} 1"));
}

static void a_link_that_failed_is_counted_while_comms_are_open(void **state)
{
	(void)state;
	read_metrics();
	assert_non_null(line_of("braid_links_failed{", "} 0"));
	atomic_store(&link_->err, -ECONNRESET);
	atomic_store(&link_->state, BRAID_LINK_DEAD);
	read_metrics();
	assert_non_null(line_of("braid_links_failed{", "} 1"));
	assert_null(line_of("braid_lane_down{", ""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_metric_has_its_heading_and_the_text_an_end),
		TEST(the_text_says_when_it_was_made),
		TEST(labels_are_the_first_variables_that_say_something),
		TEST(a_silent_peer_is_named_while_it_is_silent),
		TEST(a_lane_that_is_down_is_named_with_its_peer),
		TEST(a_link_that_failed_is_counted_while_comms_are_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
