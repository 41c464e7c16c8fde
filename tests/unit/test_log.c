/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_log.c - what log.h promises.  The test's own sink keeps each line.  For stderr, descriptors 1
 * and 2 are two temporary files during a call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"

enum { THREADS = 4, LINES_EACH = 2000 };

static struct {
	unsigned n;
	enum braid_log_level level;
	int line;
	char file[64];
	char text[2048];
} got;

static void keep(enum braid_log_level level, const char *file, int line, const char *text)
{
	got.n++;
	got.level = level;
	got.line = line;
	snprintf(got.file, sizeof(got.file), "%s", file);
	snprintf(got.text, sizeof(got.text), "%s", text);
	errno = ENOTTY;			/* as a careless logger would */
}

static int setup(void **state)
{
	(void)state;
	memset(&got, 0, sizeof(got));
	braid_log_info_to_stderr(false);
	braid_log_to(keep);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_log_to(NULL);
	braid_log_info_to_stderr(false);
	return 0;
}

static void a_line_reaches_the_sink_with_its_prefix_and_place(void **state)
{
	int line = __LINE__ + 2;

	braid_warn("peer %s gone after %d s", "10.0.0.7", 5);
	(void)state;
	assert_int_equal(got.n, 1);
	assert_int_equal(got.level, BRAID_LOG_WARN);
	assert_int_equal(got.line, line);
	assert_non_null(strstr(got.file, "test_log.c"));
	assert_string_equal(got.text, "braid: peer 10.0.0.7 gone after 5 s");
}

static void every_level_reaches_the_sink(void **state)
{
	(void)state;
	for (enum braid_log_level l = BRAID_LOG_WARN; l <= BRAID_LOG_TRACE; l++) {
		braid_log(l, "f.c", 3, "x");
		assert_int_equal(got.level, l);
	}
	assert_int_equal(got.n, 3);
}

static void error_returns_what_it_was_given_and_warns(void **state)
{
	(void)state;
	assert_int_equal(braid_error(-ENODEV, "no device %s", "eth9"), -ENODEV);
	assert_int_equal(got.level, BRAID_LOG_WARN);
	assert_string_equal(got.text, "braid: no device eth9");
}

static void errno_is_kept_and_can_be_printed(void **state)
{
	(void)state;
	errno = ECONNREFUSED;
	braid_warn("connect: %m");
	assert_int_equal(errno, ECONNREFUSED);
	assert_non_null(strstr(got.text, strerror(ECONNREFUSED)));
	errno = EPIPE;
	assert_int_equal(braid_error(-1, "x"), -1);
	assert_int_equal(errno, EPIPE);
}

static void a_long_line_is_cut_to_the_limit_and_marked(void **state)
{
	static const struct {
		size_t body, len;
		bool cut;
	} rows[] = {
		{ 0, 7, false },
		{ 1, 8, false },
		{ BRAID_LOG_MAX - 8, BRAID_LOG_MAX - 1, false },
		{ BRAID_LOG_MAX - 7, BRAID_LOG_MAX, false },
		{ BRAID_LOG_MAX - 6, BRAID_LOG_MAX, true },
		{ BRAID_LOG_MAX, BRAID_LOG_MAX, true },
		{ 1500, BRAID_LOG_MAX, true },
	};
	char body[2000];

	(void)state;
	memset(body, 'a', sizeof(body));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		braid_warn("%.*s", (int)rows[i].body, body);
		assert_int_equal(strlen(got.text), rows[i].len);
		assert_int_equal(strcmp(got.text + rows[i].len - 3, "...") == 0, rows[i].cut);
	}
}

/* The last byte but "..." falls on each of the bytes of a character. */
static void a_cut_never_splits_a_character(void **state)
{
	static const char *const chars[] = { "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x80" };

	(void)state;
	for (size_t c = 0; c < 3; c++) {
		size_t len = strlen(chars[c]);

		for (int pad = 0; pad < 4; pad++) {
			char body[1200] = "xxxx";
			size_t keep_len;

			for (size_t at = (size_t)pad; at + len < sizeof(body); at += len)
				memcpy(body + at, chars[c], len + 1);
			braid_warn("%s", body);
			keep_len = strlen(got.text) - 3;
			assert_true(strlen(got.text) <= BRAID_LOG_MAX);
			assert_true(strlen(got.text) > BRAID_LOG_MAX - 4);
			assert_string_equal(got.text + keep_len, "...");
			assert_int_equal((keep_len - 7 - (size_t)pad) % len, 0);
		}
	}
}

static void bytes_that_are_no_text_do_not_upset_the_cut(void **state)
{
	char body[1200];

	(void)state;
	memset(body, 0x80, sizeof(body));
	braid_warn("%.*s", (int)sizeof(body), body);
	assert_int_equal(strlen(got.text), BRAID_LOG_MAX);
}

/* Python decodes what PyTorch quotes, and fails at bytes that are not UTF-8. */
static void bytes_that_are_not_utf_8_are_replaced(void **state)
{
	static const struct {
		const char *text, *written;
	} rows[] = {
		{ "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf",
		  "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf" },
		{ "\xff\xfe", "??" },
		{ "\x80 \xbf", "? ?" },
		{ "\xc0\x80 \xc1\xbf", "?? ??" },
		{ "\xe0\x80\x80 \xed\xa0\x80", "??? ???" },
		{ "\xf0\x80\x80\x80 \xf4\x90\x80\x80 \xf5\x80\x80\x80", "???? ???? ????" },
		{ "\xc3", "?" },
		{ "\xe2\x82", "??" },
		{ "\xf0\x9f\x9a", "???" },
		{ "\xe2\x82|\xc3\xa9", "??|\xc3\xa9" },
		{ "\xc3\xc3\xa9", "?\xc3\xa9" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		braid_warn("%s", rows[i].text);
		assert_string_equal(got.text + strlen("braid: "), rows[i].written);
	}
	braid_warn("%.3s end", "xy\xc3\xa9");
	assert_string_equal(got.text, "braid: xy? end");
}

static void one_line_stays_one_line(void **state)
{
	(void)state;
	braid_warn("value '%s end", "a\nb\r\033[31m\t\x7f\x01");
	assert_string_equal(got.text, "braid: value 'a?b??[31m??? end");
}

/* Calls fn with descriptors 1 and 2 on files, and copies what was written to them. */
static void with_files(void (*fn)(void), char *out, char *err, size_t len)
{
	char *const text[2] = { out, err };
	FILE *file[2];
	int saved[2];

	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		file[i] = tmpfile();
		assert_non_null(file[i]);
		saved[i] = dup(i + 1);
		assert_true(saved[i] >= 0 && dup2(fileno(file[i]), i + 1) == i + 1);
	}
	fn();
	for (int i = 0; i < 2; i++) {
		assert_true(dup2(saved[i], i + 1) == i + 1);
		close(saved[i]);
		rewind(file[i]);
		text[i][fread(text[i], 1, len - 1, file[i])] = '\0';
		fclose(file[i]);
	}
}

static void say_all(void)
{
	braid_log_to(NULL);
	braid_warn("w");
	braid_info("i");
	braid_log(BRAID_LOG_TRACE, "f", 1, "t");
}

static void without_a_sink_warnings_go_to_stderr_and_nothing_to_stdout(void **state)
{
	static const struct {
		bool info;
		const char *err;
	} rows[] = {
		{ false, "braid: w\n" },
		{ true, "braid: w\nbraid: i\n" },
	};
	char out[256], err[256];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		braid_log_info_to_stderr(rows[i].info);
		with_files(say_all, out, err, sizeof(err));
		assert_string_equal(out, "");
		assert_string_equal(err, rows[i].err);
	}
	assert_int_equal(got.n, 0);
}

static void say_long(void)
{
	braid_log_to(NULL);
	braid_warn("%01000d", 0);
}

static void a_cut_line_on_stderr_still_ends(void **state)
{
	char out[8], err[2048];

	(void)state;
	with_files(say_long, out, err, sizeof(err));
	assert_int_equal(strlen(err), BRAID_LOG_MAX + 1);
	assert_string_equal(err + BRAID_LOG_MAX - 3, "...\n");
}

static void say_closed(void)
{
	braid_log_to(NULL);
	close(2);
	errno = EAGAIN;
	braid_warn("to nobody");
	if (errno == EAGAIN)
		got.n = 77;
}

static void a_closed_stderr_does_no_harm(void **state)
{
	char out[8], err[8];

	(void)state;
	with_files(say_closed, out, err, sizeof(err));
	assert_int_equal(got.n, 77);
	assert_string_equal(out, "");
}

static void a_gate_opens_once_in_ten_seconds(void **state)
{
	static const uint64_t s = 1000000000u;
	static const struct {
		uint64_t now;
		bool open;
	} rows[] = {
		{ 0, true }, { 0, false }, { 1, false }, { 10 * s - 1, false }, { 10 * s, true },
		{ 10 * s, false }, { 20 * s - 1, false }, { 100 * s, true }, { 109 * s, false },
		{ 110 * s, true }, { 3 * s, false },
	};
	struct braid_log_gate gate = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(braid_log_gate_open(&gate, rows[i].now), rows[i].open);
}

static struct braid_log_gate shared_gate;
static atomic_uint passed, lines, torn;

static void count_a(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)level;
	(void)file;
	(void)line;
	atomic_fetch_add(&lines, 1);
	if (strlen(text) != 7 + 64 || strspn(text + 7, (char[]){ text[7], '\0' }) != 64)
		atomic_fetch_add(&torn, 1);
}

static void count_b(enum braid_log_level level, const char *file, int line, const char *text)
{
	count_a(level, file, line, text);
}

static void *talker(void *arg)
{
	char body[65];

	memset(body, 'a' + *(int *)arg, 64);
	body[64] = '\0';
	for (int i = 0; i < LINES_EACH; i++) {
		braid_info("%s", body);
		if (braid_log_gate_open(&shared_gate, 5))
			atomic_fetch_add(&passed, 1);
	}
	return NULL;
}

static void threads_lose_no_line_while_the_sink_changes(void **state)
{
	pthread_t threads[THREADS];
	int ids[THREADS];

	(void)state;
	braid_log_to(count_a);
	for (int i = 0; i < THREADS; i++) {
		ids[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, talker, &ids[i]), 0);
	}
	for (int i = 0; i < 1000; i++)
		braid_log_to(i % 2 ? count_a : count_b);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&lines), THREADS * LINES_EACH);
	assert_int_equal(atomic_load(&torn), 0);
	assert_int_equal(atomic_load(&passed), 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_line_reaches_the_sink_with_its_prefix_and_place),
		T(every_level_reaches_the_sink),
		T(error_returns_what_it_was_given_and_warns),
		T(errno_is_kept_and_can_be_printed),
		T(a_long_line_is_cut_to_the_limit_and_marked),
		T(a_cut_never_splits_a_character),
		T(bytes_that_are_no_text_do_not_upset_the_cut),
		T(bytes_that_are_not_utf_8_are_replaced),
		T(one_line_stays_one_line),
		T(without_a_sink_warnings_go_to_stderr_and_nothing_to_stdout),
		T(a_cut_line_on_stderr_still_ends),
		T(a_closed_stderr_does_no_harm),
		T(a_gate_opens_once_in_ten_seconds),
		T(threads_lose_no_line_while_the_sink_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
