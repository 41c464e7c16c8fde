/* SPDX-License-Identifier: BSD-3-Clause */
/* test_file.c - a file that others read is replaced whole, and nothing but a user's own file is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/watch/file.h"
#include "core/watch/report.h"

static char dir[] = "/tmp/braid-test-file-XXXXXX";
static char path[64];
static struct braid_text text;

static int begin(void **state)
{
	(void)state;
	strcpy(strrchr(dir, '-') + 1, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/f", dir);
	braid_text_add(&text, "%s", "new");
	return 0;
}

static int end(void **state)
{
	(void)state;
	braid_text_free(&text);
	unlink(path);
	rmdir(path);
	assert_int_equal(rmdir(dir), 0);	/* so nothing else was left behind */
	return 0;
}

static void holds(const char *want)
{
	char got[16] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_int_equal(fread(got, 1, sizeof(got) - 1, f), strlen(want));
	fclose(f);
	assert_string_equal(got, want);
}

static void a_file_is_made_with_its_mode(void **state)
{
	struct stat sb;

	(void)state;
	assert_int_equal(braid_file_write(path, &text, 0600), 0);
	holds("new");
	assert_int_equal(stat(path, &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0600);
}

static void an_own_file_is_replaced_by_a_new_one(void **state)
{
	struct stat before, after;

	(void)state;
	assert_int_equal(braid_file_write(path, &text, 0600), 0);
	assert_int_equal(stat(path, &before), 0);
	braid_text_add(&text, "%s", "er");
	assert_int_equal(braid_file_write(path, &text, 0600), 0);
	holds("newer");
	assert_int_equal(stat(path, &after), 0);
	assert_true(before.st_ino != after.st_ino);	/* a reader of the old file reads it whole */
}

static void a_link_is_not_followed_and_stays(void **state)
{
	struct stat sb;

	(void)state;
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(braid_file_write(path, &text, 0600), -1);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(lstat(path, &sb), 0);
	assert_true(S_ISLNK(sb.st_mode));
}

static void a_pipe_and_a_directory_stay(void **state)
{
	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(braid_file_write(path, &text, 0600), -1);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(braid_file_write(path, &text, 0600), -1);
	assert_int_equal(errno, EEXIST);
}

static void a_directory_that_is_not_there_is_an_error(void **state)
{
	char nowhere[80];

	(void)state;
	snprintf(nowhere, sizeof(nowhere), "%s/none/f", dir);
	assert_int_equal(braid_file_write(nowhere, &text, 0600), -1);
	assert_int_equal(errno, ENOENT);
}

static void a_name_that_is_too_long_is_an_error(void **state)
{
	static char name[20000];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	assert_int_equal(braid_file_write(name, &text, 0600), -1);
	assert_int_equal(errno, ENAMETOOLONG);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_file_is_made_with_its_mode),
		CASE(an_own_file_is_replaced_by_a_new_one),
		CASE(a_link_is_not_followed_and_stays),
		CASE(a_pipe_and_a_directory_stay),
		CASE(a_directory_that_is_not_there_is_an_error),
		CASE(a_name_that_is_too_long_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
