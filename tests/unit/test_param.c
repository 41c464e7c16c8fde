/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_param.c - what param.h promises.  braid_param_load() works once per process, so each of its
 * cases runs in a forked child with an environment of its own; its exit status is the result.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* clearenv */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/param.h"

enum { WARNS_MAX = 16 };

static struct {
	unsigned n;
	char text[WARNS_MAX][1024];
} warns;

static void keep(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file;
	(void)line;
	if (level == BRAID_LOG_WARN && warns.n < WARNS_MAX)
		snprintf(warns.text[warns.n++], sizeof(warns.text[0]), "%s", text);
}

static void keep_infos(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file;
	(void)line;
	if (level == BRAID_LOG_INFO && warns.n < WARNS_MAX)
		snprintf(warns.text[warns.n++], sizeof(warns.text[0]), "%s", text);
}

static const struct braid_param_row *find(const char *name)
{
	for (unsigned i = 0; i < braid_param_count; i++) {
		if (strcmp(braid_param_rows[i].name, name) == 0)
			return &braid_param_rows[i];
	}
	fail_msg("no parameter %s", name);
	return NULL;
}

/* The value of a parameter as text, whatever its type. */
static void show(const struct braid_params *p, const char *name, char *ret, size_t len)
{
#define P_INT(n, ...) if (strcmp(name, #n) == 0) snprintf(ret, len, "%" PRId64, p->n);
#define P_SIZE(n, ...) P_INT(n)
#define P_STR(n, ...) if (strcmp(name, #n) == 0) snprintf(ret, len, "%s", p->n);
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
}

static void every_row_is_fit_for_code_and_page(void **state)
{
	(void)state;
	assert_true(braid_param_count > 0);
	for (unsigned i = 0; i < braid_param_count; i++) {
		const struct braid_param_row *row = &braid_param_rows[i];

		for (const char *c = row->name; *c; c++)
			assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) ||
				    *c == '_');
		assert_true(strlen(row->name) > 1 && strlen(row->name) < 32);
		assert_true(row->least <= row->most);
		assert_true(strlen(row->help) > 10 && row->help[strlen(row->help) - 1] == '.');
		if (row->fallback)
			assert_int_equal(strncmp(row->fallback, "NCCL_", 5), 0);
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(row->name, braid_param_rows[j].name);
	}
}

static void the_default_is_a_legal_value_and_there_from_the_start(void **state)
{
	(void)state;
	for (unsigned i = 0; i < braid_param_count; i++) {
		const struct braid_param_row *row = &braid_param_rows[i];
		char start[BRAID_PARAM_STR_MAX] = "", set[BRAID_PARAM_STR_MAX] = "";
		struct braid_params p;

		memset(&p, 0x5a, sizeof(p));
		assert_int_equal(braid_param_set(&p, row->name, row->def), 0);
		show(&braid_param, row->name, start, sizeof(start));
		show(&p, row->name, set, sizeof(set));
		assert_string_equal(start, set);
	}
}

static void set_takes_what_the_row_allows_and_nothing_else(void **state)
{
	static const struct {
		const char *name, *text;
		int err;
		const char *value;
	} rows[] = {
		{ "lanes", "0", 0, "0" },
		{ "lanes", "16", 0, "16" },
		{ "lanes", "007", 0, "7" },
		{ "lanes", "17", -EINVAL, NULL },
		{ "lanes", "-1", -EINVAL, NULL },
		{ "lanes", "", -EINVAL, NULL },
		{ "lanes", " 4", -EINVAL, NULL },
		{ "lanes", "4 ", -EINVAL, NULL },
		{ "lanes", "+4", -EINVAL, NULL },
		{ "lanes", "4.0", -EINVAL, NULL },
		{ "lanes", "0x4", -EINVAL, NULL },
		{ "lanes", "4k", -EINVAL, NULL },
		{ "lanes", "four", -EINVAL, NULL },
		{ "lanes", "-", -EINVAL, NULL },
		{ "lanes", "--4", -EINVAL, NULL },
		{ "lanes", "99999999999999999999", -EINVAL, NULL },
		{ "dscp", "-1", 0, "-1" },
		{ "dscp", "63", 0, "63" },
		{ "dscp", "-2", -EINVAL, NULL },
		{ "dscp", "-99999999999999999999", -EINVAL, NULL },
		{ "eager", "65536", 0, "65536" },
		{ "eager", "64k", 0, "65536" },
		{ "eager", "64K", 0, "65536" },
		{ "eager", "1m", 0, "1048576" },
		{ "eager", "1M", 0, "1048576" },
		{ "eager", "1025k", -EINVAL, NULL },
		{ "eager", "1g", -EINVAL, NULL },
		{ "eager", "-1k", -EINVAL, NULL },
		{ "eager", "1kb", -EINVAL, NULL },
		{ "eager", "1t", -EINVAL, NULL },
		{ "eager", "k", -EINVAL, NULL },
		{ "eager", "1 k", -EINVAL, NULL },
		{ "eager", "0k", 0, "0" },
		{ "chunk", "4095", -EINVAL, NULL },
		{ "chunk", "4k", 0, "4096" },
		{ "pool", "64g", 0, "68719476736" },
		{ "pool", "64G", 0, "68719476736" },
		{ "pool", "65g", -EINVAL, NULL },
		{ "pool", "9223372036854775807g", -EINVAL, NULL },
		{ "pool", "9007199254740993k", -EINVAL, NULL },
		{ "socket_ifname", "", 0, "" },
		{ "socket_ifname", "^docker,lo", 0, "^docker,lo" },
		{ "LANES", "4", -ENOENT, NULL },
		{ "lane", "4", -ENOENT, NULL },
		{ "lanes_", "4", -ENOENT, NULL },
		{ "", "4", -ENOENT, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_params p = braid_param;
		char value[BRAID_PARAM_STR_MAX] = "";

		if (braid_param_set(&p, rows[i].name, rows[i].text) != rows[i].err)
			fail_msg("%s '%s'", rows[i].name, rows[i].text);
		if (rows[i].err) {
			assert_memory_equal(&p, &braid_param, sizeof(p));
		} else {
			show(&p, rows[i].name, value, sizeof(value));
			assert_string_equal(value, rows[i].value);
		}
	}
	assert_int_equal(warns.n, 0);
}

static void a_text_fits_up_to_its_limit(void **state)
{
	struct braid_params p = braid_param;
	char text[BRAID_PARAM_STR_MAX + 1];

	(void)state;
	memset(text, 'x', sizeof(text));
	text[BRAID_PARAM_STR_MAX] = '\0';
	assert_int_equal(braid_param_set(&p, "congestion", text), -EINVAL);
	assert_string_equal(p.congestion, braid_param.congestion);
	text[BRAID_PARAM_STR_MAX - 1] = '\0';
	assert_int_equal(braid_param_set(&p, "congestion", text), 0);
	assert_string_equal(p.congestion, text);
}

static void only_legal_words_are_taken(void **state)
{
	static const struct {
		const char *name, *text;
		int err;
	} rows[] = {
		{ "socket_family", "AF_INET", 0 }, { "socket_family", "AF_INET6", 0 },
		{ "socket_family", "", 0 }, { "socket_family", "AF_INET7", -EINVAL },
		{ "socket_family", "AF_INE", -EINVAL }, { "socket_family", "af_inet", -EINVAL },
		{ "socket_family", "AF_INET|AF_INET6", -EINVAL },
		{ "socket_family", "AF_INET,", -EINVAL }, { "socket_family", "6", -EINVAL },
		{ "transports", "tcp", 0 }, { "transports", "tcp,verbs", 0 },
		{ "transports", "tcp,tcp", 0 },
		{ "transports", "rdma", -EINVAL }, { "transports", "tcp,rdma", -EINVAL },
		{ "transports", "tcp,", -EINVAL }, { "transports", ",tcp", -EINVAL },
		{ "transports", "tc", -EINVAL }, { "transports", "tcp2", -EINVAL },
		{ "port_range", "", 0 }, { "port_range", "20000-20099", 0 },
		{ "port_range", "1-65535", 0 }, { "port_range", "7-7", 0 },
		{ "port_range", "7", -EINVAL }, { "port_range", "7-", -EINVAL },
		{ "port_range", "-7", -EINVAL }, { "port_range", "8-7", -EINVAL },
		{ "port_range", "0-7", -EINVAL }, { "port_range", "1-65536", -EINVAL },
		{ "port_range", "1-2,3", -EINVAL }, { "port_range", "1- 2", -EINVAL },
		{ "port_range", "99999999999999999999-7", -EINVAL },
		{ "ib_gid", "", 0 }, { "ib_gid", "mlx5_0=3", 0 },
		{ "ib_gid", "mlx5_0=0,mlx5_1:2=255", 0 }, { "ib_gid", "mlx5_0=256", -EINVAL },
		{ "ib_gid", "mlx5_0=-1", -EINVAL }, { "ib_gid", "mlx5_0=", -EINVAL },
		{ "ib_gid", "3", -EINVAL }, { "ib_gid", "=3", -EINVAL },
		{ "ib_gid", "mlx5_0=3,", -EINVAL }, { "ib_gid", "mlx5_0=3 ", -EINVAL },
		{ "ib_gid", "a=1,,b=2", -EINVAL }, { "ib_gid", "a=1=2", -EINVAL },
		{ "ib_gid", "a=99999999999999999999", -EINVAL },
	};
	char range[96];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_params p = braid_param;

		if (braid_param_set(&p, rows[i].name, rows[i].text) != rows[i].err)
			fail_msg("%s = '%s'", rows[i].name, rows[i].text);
	}
	braid_param_range(find("socket_family"), range, sizeof(range));
	assert_string_equal(range, "AF_INET or AF_INET6");
	braid_param_range(find("transports"), range, sizeof(range));
	assert_string_equal(range, "a comma list of verbs, smc, ucx, tcp");
	braid_param_range(find("ib_gid"), range, sizeof(range));
	assert_string_equal(range, "a comma list of NAME=NUMBER, 0 to 255");
}

static void values_and_ranges_read_as_people_write_them(void **state)
{
	static const struct {
		const char *name;
		int64_t value;
		const char *text, *range;
	} rows[] = {
		{ "lanes", 16, "16", "0 to 16" },
		{ "dscp", -1, "-1", "-1 to 63" },
		{ "busy_poll", 1024, "1024", "0 to 1000" },
		{ "chunk", 4096, "4k", "4k to 16m" },
		{ "chunk", 4097, "4097", "4k to 16m" },
		{ "chunk", 1536 * 1024, "1536k", "4k to 16m" },
		{ "eager", 0, "0", "0 to 1m" },
		{ "pool", 1ll << 36, "64g", "1m to 64g" },
	};
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		braid_param_format(find(rows[i].name), rows[i].value, text, sizeof(text));
		assert_string_equal(text, rows[i].text);
		braid_param_range(find(rows[i].name), text, sizeof(text));
		assert_string_equal(text, rows[i].range);
	}
	braid_param_range(find("socket_ifname"), text, sizeof(text));
	assert_string_equal(text, "at most 4095 bytes");
}

static void a_short_buffer_cuts_the_text(void **state)
{
	char text[4] = "zzz";

	(void)state;
	braid_param_range(find("chunk"), text, 3);
	assert_string_equal(text, "4k");
	assert_int_equal(text[3], 0);
}

static void the_nearest_name_is_the_one_that_was_meant(void **state)
{
	static const char *const rows[][2] = {
		{ "lane", "lanes" },
		{ "lnaes", "lanes" },
		{ "lanesmax", "lanes_max" },
		{ "max_lanes", "lanes" },
		{ "sokcet_ifname", "socket_ifname" },
		{ "socket_if_name", "socket_ifname" },
		{ "ifname", "socket_ifname" },
		{ "transport", "transports" },
		{ "connection_timeout", "connect_timeout" },
		{ "chunk_size", "chunk" },
		{ "send_buf", "sndbuf" },
		{ "dscp", "dscp" },
	};
	char name[1000];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(braid_param_nearest(rows[i][0]), rows[i][1]) != 0)
			fail_msg("%s: %s", rows[i][0], braid_param_nearest(rows[i][0]));
	}
	memset(name, 'q', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_non_null(braid_param_nearest(name));
	assert_non_null(braid_param_nearest(""));
}

struct load_case {
	const char *env[4];
	int err;
	unsigned n_warns;
	const char *says[3];		/* in the first warning */
	const char *name, *value;
};

/* In the child: a line on stderr and 1 if the case is not as it should be. */
static int run_load(const struct load_case *c)
{
	char value[BRAID_PARAM_STR_MAX] = "";
	int bad = 0;

	clearenv();
	for (int i = 0; i < 4 && c->env[i]; i++)
		putenv((char *)(uintptr_t)c->env[i]);
	braid_log_to(keep);
	bad |= braid_param_load() != c->err;
	bad |= warns.n != c->n_warns;
	for (int i = 0; i < 3 && c->says[i]; i++)
		bad |= !strstr(warns.text[0], c->says[i]);
	if (c->name) {
		show(&braid_param, c->name, value, sizeof(value));
		bad |= strcmp(value, c->value) != 0;
	}
	/* Again: the same answer, no second warning, and nothing read. */
	putenv((char *)(uintptr_t)"BRAID_LANES=13");
	bad |= braid_param_load() != c->err || warns.n != c->n_warns || braid_param.lanes == 13;
	if (bad)
		fprintf(stderr, "%s: %u warnings, '%s', value '%s'\n", c->env[0], warns.n,
			warns.text[0], value);
	return bad;
}

#define LONG_16 "0123456789abcdef"
#define LONG_64 LONG_16 LONG_16 LONG_16 LONG_16
#define LONG_256 LONG_64 LONG_64 LONG_64 LONG_64
#define LONG_1024 LONG_256 LONG_256 LONG_256 LONG_256
#define LONG_4096 LONG_1024 LONG_1024 LONG_1024 LONG_1024

static const struct load_case load_cases[] = {
	{ .env = { "PATH=/bin" }, .name = "lanes", .value = "0" },
	{ .env = { "BRAID_LANES=4" }, .name = "lanes", .value = "4" },
	{ .env = { "BRAID_EAGER=32k" }, .name = "eager", .value = "32768" },
	{ .env = { "BRAID_DSCP=-1" }, .name = "dscp", .value = "-1" },
	{ .env = { "BRAID_SOCKET_IFNAME==eth0" }, .name = "socket_ifname", .value = "=eth0" },
	{ .env = { "braid_lanes=4" }, .name = "lanes", .value = "0" },
	/* Empty is not set. */
	{ .env = { "BRAID_TRANSPORTS=" }, .name = "transports", .value = "verbs,tcp" },
	{ .env = { "BRAID_LANES=" }, .name = "lanes", .value = "0" },
	{ .env = { "BRAID_SNDBUF=", "NCCL_SOCKET_SNDBUF=1048576" }, .name = "sndbuf",
	  .value = "1048576" },
	/* A bad value: variable, value, range; the default stays. */
	{ .env = { "BRAID_LANES=99" }, .err = -EINVAL, .n_warns = 1,
	  .says = { "BRAID_LANES", "'99'", "0 to 16 [bad-parameter]" }, .name = "lanes", .value = "0" },
	{ .env = { "BRAID_CHUNK=1" }, .err = -EINVAL, .n_warns = 1,
	  .says = { "BRAID_CHUNK", "'1'", "4k to 16m" }, .name = "chunk", .value = "1048576" },
	{ .env = { "BRAID_LANES=x", "BRAID_DSCP=y", "BRAID_EAGER=1k" }, .err = -EINVAL,
	  .n_warns = 2, .name = "eager", .value = "1024" },
	{ .env = { "BRAID_TRANSPORTS=tcp,rdma" }, .err = -EINVAL, .n_warns = 1,
	  .says = { "BRAID_TRANSPORTS", "'tcp,rdma'", "a comma list of verbs, smc, ucx, tcp" },
	  .name = "transports", .value = "verbs,tcp" },
	{ .env = { "BRAID_SOCKET_FAMILY=inet6" }, .err = -EINVAL, .n_warns = 1,
	  .says = { "BRAID_SOCKET_FAMILY", "'inet6'", "AF_INET or AF_INET6" },
	  .name = "socket_family", .value = "" },
	{ .env = { "NCCL_SOCKET_FAMILY=inet6" }, .n_warns = 1,
	  .says = { "NCCL_SOCKET_FAMILY", "'inet6'", "ignored" },
	  .name = "socket_family", .value = "" },
	{ .env = { "BRAID_CONGESTION=" LONG_4096 }, .err = -EINVAL, .n_warns = 1,
	  .says = { "BRAID_CONGESTION", "'" LONG_64 "'", "4095" }, .name = "congestion",
	  .value = "" },
	/* NCCL's variables. */
	{ .env = { "NCCL_SOCKET_IFNAME=^docker" }, .name = "socket_ifname", .value = "^docker" },
	{ .env = { "NCCL_SOCKET_IFNAME=a", "BRAID_SOCKET_IFNAME=b" }, .name = "socket_ifname",
	  .value = "b" },
	{ .env = { "NCCL_SOCKET_SNDBUF=65536" }, .name = "sndbuf", .value = "65536" },
	{ .env = { "NCCL_SOCKET_SNDBUF=-1" }, .name = "sndbuf", .value = "0" },
	{ .env = { "NCCL_SOCKET_SNDBUF=much" }, .n_warns = 1,
	  .says = { "NCCL_SOCKET_SNDBUF", "'much'", "taken for 0" }, .name = "sndbuf",
	  .value = "0" },
	/* Their numbers are read as NCCL reads them. */
	{ .env = { "NCCL_IB_TC=0x6a" }, .name = "ib_tc", .value = "106" },
	{ .env = { "NCCL_IB_TC=010" }, .name = "ib_tc", .value = "8" },
	{ .env = { "BRAID_IB_TC=010" }, .name = "ib_tc", .value = "10" },
	{ .env = { "NCCL_IB_TC=  104  " }, .name = "ib_tc", .value = "104" },
	{ .env = { "NCCL_IB_TC=+104" }, .name = "ib_tc", .value = "104" },
	{ .env = { "NCCL_IB_TC=-1" }, .name = "ib_tc", .value = "0" },
	{ .env = { "NCCL_IB_TC=256" }, .n_warns = 1, .says = { "NCCL_IB_TC", "'256'", "ignored" },
	  .name = "ib_tc", .value = "0" },
	{ .env = { "NCCL_IB_TC=99999999999999999999" }, .n_warns = 1, .says = { "ignored" },
	  .name = "ib_tc", .value = "0" },
	{ .env = { "NCCL_IB_DISABLE=2" }, .name = "ib_disable", .value = "1" },
	{ .env = { "NCCL_IB_DISABLE=-1" }, .name = "ib_disable", .value = "1" },
	{ .env = { "NCCL_IB_DISABLE=0x0" }, .name = "ib_disable", .value = "0" },
	{ .env = { "NCCL_IB_DISABLE=yes" }, .n_warns = 1,
	  .says = { "'yes'", "taken for 0", "[parameter-odd]" }, .name = "ib_disable", .value = "0" },
	{ .env = { "NCCL_IB_GID_INDEX=3 # eth0" }, .n_warns = 1, .says = { "taken for 3" },
	  .name = "ib_gid_index", .value = "3" },
	{ .env = { "NCCL_IB_GID_INDEX=-2" }, .name = "ib_gid_index", .value = "-1" },
	{ .env = { "NCCL_SOCKET_SNDBUF=64k" }, .n_warns = 1, .says = { "'64k'", "taken for 64," },
	  .name = "sndbuf", .value = "64" },
	{ .env = { "NCCL_IB_AR_THRESHOLD=-2" }, .name = "ib_ar_threshold", .value = "8192" },
	{ .env = { "NCCL_IB_TIMEOUT=22" }, .name = "ib_timeout", .value = "22" },
	{ .env = { "NCCL_IB_RETRY_CNT=7" }, .name = "ib_retry", .value = "7" },
	{ .env = { "NCCL_IB_ROCE_VERSION_NUM=1" }, .name = "ib_roce_version", .value = "1" },
	{ .env = { "NCCL_IB_ADDR_FAMILY=AF_INET6" }, .name = "ib_addr_family",
	  .value = "AF_INET6" },
	{ .env = { "NCCL_IB_ADDR_RANGE=10.1.0.0/16" }, .name = "ib_addr_range",
	  .value = "10.1.0.0/16" },
	{ .env = { "NCCL_SOCKET_SNDBUF=much", "BRAID_SNDBUF=1k" }, .name = "sndbuf",
	  .value = "1024" },
	{ .env = { "NCCL_SOCKET_IFNAME=" LONG_1024 }, .name = "socket_ifname", .value = LONG_1024 },
	{ .env = { "NCCL_SOCKET_IFNAME=" LONG_4096 }, .n_warns = 1,
	  .says = { "NCCL_SOCKET_IFNAME", "ignored", "[parameter-ignored]" },
	  .name = "socket_ifname", .value = "" },
	{ .env = { "BRAID_SNDBUF=-1" }, .err = -EINVAL, .n_warns = 1,
	  .says = { "BRAID_SNDBUF", "'-1'" }, .name = "sndbuf", .value = "0" },
	/* Strangers. */
	{ .env = { "BRAID_LANE=4" }, .n_warns = 1,
	  .says = { "BRAID_LANE ", "BRAID_LANES", "[unknown-parameter]" },
	  .name = "lanes", .value = "0" },
	{ .env = { "BRAID_lanes=4" }, .n_warns = 1, .says = { "BRAID_lanes ", "BRAID_LANES" } },
	{ .env = { "BRAID_=1" }, .n_warns = 1, .says = { "BRAID_ " } },
	{ .env = { "BRAID_IFNAME=x", "BRAID_TEST_X=1", "BRAID_GIT=abc", "BRAID_DEBUG=info" },
	  .n_warns = 1, .says = { "BRAID_IFNAME", "BRAID_SOCKET_IFNAME" }, .name = "debug",
	  .value = "info" },
	{ .env = { "BRAID_GITHUB=1", "BRAID_TEST=1" }, .n_warns = 2 },
	{ .env = { "BRAID_" LONG_256 "=1" }, .n_warns = 1, .says = { "BRAID_" LONG_64 } },
	{ .env = { "BRAID=1", "XBRAID_LANES=4", "NCCL_LANES=1" } },
};

static void load_reads_the_environment_once_and_reports_bad_values(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(load_cases) / sizeof(load_cases[0]); i++) {
		int status = -1;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			exit(run_load(&load_cases[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (status)
			fail_msg("case %zu, %s", i, load_cases[i].env[0]);
	}
}

static void ignored_variables_are_reported_once(void **state)
{
	static const char *const both[] = { "NCCL_IB_USE_INLINE=1", "NCCL_SOCKET_NTHREADS=8",
					    "NCCL_IB_TC=104", "NCCL_NET_GDR_LEVEL=PHB",
					    "NCCL_IB_ECE_ENABLE=" };
	int status = -1;
	pid_t pid;

	(void)state;
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		clearenv();
		for (size_t i = 0; i < sizeof(both) / sizeof(both[0]); i++)
			putenv((char *)(uintptr_t)both[i]);
		braid_log_to(keep_infos);
		braid_param_load();
		braid_param_load();
		fprintf(stderr, "%s\n", warns.text[0]);
		exit(!(warns.n == 1 && strstr(warns.text[0], "not heeded: ") &&
		       strstr(warns.text[0], "NCCL_IB_USE_INLINE=1 (") &&
		       strstr(warns.text[0], "NCCL_SOCKET_NTHREADS=8 (") &&
		       strstr(warns.text[0], "BRAID_LANES") && !strstr(warns.text[0], "ECE") &&
		       !strstr(warns.text[0], "IB_TC") && !strstr(warns.text[0], "GDR_LEVEL")));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void all_ignored_variables_fit_in_lines(void **state)
{
	static char set[128][128];
	int status = -1;
	pid_t pid;

	(void)state;
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		unsigned said = 0;

		clearenv();
		for (unsigned i = 0; i < braid_nccl_count; i++) {
			snprintf(set[i], sizeof(set[i]), "%s=%0*d", braid_nccl_rows[i].name,
				 i % 2 ? 1 : 60, 1);
			putenv(set[i]);
		}
		braid_log_to(keep_infos);
		braid_param_load();
		for (unsigned i = 0; i < braid_nccl_count; i++) {
			for (unsigned k = 0; k < warns.n; k++)
				said += strstr(warns.text[k], braid_nccl_rows[i].why) != NULL &&
					strstr(warns.text[k], braid_nccl_rows[i].name) != NULL;
		}
		fprintf(stderr, "%u in %u lines\n", said, warns.n);
		exit(said < braid_nccl_count);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_message_names_the_variable_that_was_set(void **state)
{
	static const char *const rows[][2] = {
		{ "NCCL_IB_HCA=mlx5", "NCCL_IB_HCA" }, { "BRAID_IB_HCA=mlx5", "BRAID_IB_HCA" },
		{ "LANG=C", "BRAID_IB_HCA" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int status = -1;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			char name[BRAID_PARAM_VARIABLE];

			clearenv();
			putenv((char *)(uintptr_t)rows[i][0]);
			braid_param_load();
			exit(strcmp(braid_param_variable("ib_hca", name), rows[i][1]) != 0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

static void no_variable_is_both_used_and_ignored(void **state)
{
	(void)state;
	for (unsigned i = 0; i < braid_nccl_count; i++) {
		const struct braid_nccl_row *row = &braid_nccl_rows[i];

		assert_int_equal(strncmp(row->name, "NCCL_", 5), 0);
		assert_true(row->least <= row->most && strlen(row->why) > 10);
		assert_int_not_equal(row->why[strlen(row->why) - 1], '.');
		for (unsigned k = 0; k < braid_param_count; k++)
			assert_false(braid_param_rows[k].fallback &&
				     !strcmp(braid_param_rows[k].fallback, row->name));
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(row->name, braid_nccl_rows[k].name);
	}
}

static void load_without_any_environment_is_fine(void **state)
{
	int status = -1;
	pid_t pid;

	(void)state;
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		clearenv();
		exit(braid_param_load() != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int setup(void **state)
{
	(void)state;
	warns.n = 0;
	braid_log_to(keep);
	return 0;
}

static void a_value_that_may_be_a_secret_is_hidden(void **state)
{
	static const char *const hidden[] = {
		"BRAID_SECRET", "BRAID_PERF_KEY", "BRAID_SECRT", "BRAID_SERCET", "BRAID_SECRET_FIEL",
		"BRAID_secret", "BRAID_KEY",
	};
	static const char *const shown[] = {
		"BRAID_SECRET_FILE", "BRAID_IB_PKEY", "BRAID_LANES", "BRAID_LANE", "BRAID_SHARED",
		"NCCL_SECRET", "BRAID_GIT", "",
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		assert_true(braid_param_hides(hidden[i]));
	for (unsigned i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		assert_false(braid_param_hides(shown[i]));
	assert_true(braid_param_is_known("BRAID_SECRET"));
	assert_true(braid_param_is_known("BRAID_LANES"));
	assert_false(braid_param_is_known("BRAID_SECRT"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		T(every_row_is_fit_for_code_and_page),
		T(the_default_is_a_legal_value_and_there_from_the_start),
		T(set_takes_what_the_row_allows_and_nothing_else),
		T(a_text_fits_up_to_its_limit),
		T(only_legal_words_are_taken),
		T(values_and_ranges_read_as_people_write_them),
		T(a_short_buffer_cuts_the_text),
		T(the_nearest_name_is_the_one_that_was_meant),
		T(load_reads_the_environment_once_and_reports_bad_values),
		T(load_without_any_environment_is_fine),
		T(ignored_variables_are_reported_once),
		T(all_ignored_variables_fit_in_lines),
		T(a_message_names_the_variable_that_was_set),
		T(no_variable_is_both_used_and_ignored),
		T(a_value_that_may_be_a_secret_is_hidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
