/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_job_secret.c - where the secret of a job comes from: files that may be used and files that may
 * not, the variables, and calls that fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/job_secret.h"

int __wrap_fstat(int fd, struct stat *st);
int __real_fstat(int fd, struct stat *st);
ssize_t __wrap_read(int fd, void *buf, size_t len);
ssize_t __real_read(int fd, void *buf, size_t len);

static struct {
	int fstat_err, read_err;
	unsigned interrupts;		/* reads that a signal interrupts */
	size_t bite;			/* bytes that a read gives at most; 0: any number */
	uid_t owner;			/* of the file, if not 0 */
} w;

static const char text[] = "sixteen bytes or";
static char dir[64], file[100];
static struct braid_job_secret secret;
static char why[BRAID_JOB_SECRET_WHY];

int __wrap_fstat(int fd, struct stat *st)
{
	int rc = __real_fstat(fd, st);

	if (w.owner)
		st->st_uid = w.owner;
	errno = w.fstat_err;
	return w.fstat_err ? -1 : rc;
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	if (w.interrupts || w.read_err) {
		errno = w.interrupts ? EINTR : w.read_err;
		w.interrupts -= w.interrupts > 0;
		return -1;
	}
	return __real_read(fd, buf, w.bite && len > w.bite ? w.bite : len);
}

static void write_file(const void *data, size_t len, mode_t mode)
{
	FILE *f = fopen(file, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(file, mode), 0);
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	memset(&secret, 0, sizeof(secret));
	why[0] = '\0';
	unsetenv("BRAID_SECRET");
	unsetenv("BRAID_SECRET_FILE");
	strcpy(dir, "/tmp/braid-job-secret-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/secret", dir);
	write_file(text, strlen(text), 0600);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(file);
	rmdir(file);
	return rmdir(dir);
}

static void assert_text(const char *want)
{
	assert_int_equal(secret.len, strlen(want));
	assert_memory_equal(secret.text, want, secret.len);
}

/* The file is refused; the line names it, and has no byte of the secret. */
static void assert_refused(const char *word)
{
	assert_int_equal(braid_job_secret_file(file, geteuid(), &secret, why), -EINVAL);
	assert_non_null(strstr(why, file));
	if (!strstr(why, word))
		fail_msg("no \"%s\" in: %s", word, why);
	assert_null(strstr(why, "sixteen"));
}

static void a_file_of_its_user_alone_gives_its_text(void **state)
{
	static const mode_t modes[] = { 0600, 0400, 0700 };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		chmod(file, modes[i]);
		assert_int_equal(braid_job_secret_file(file, geteuid(), &secret, why), 0);
		assert_text(text);
	}
}

static void newlines_at_the_end_do_not_count(void **state)
{
	(void)state;
	write_file("sixteen bytes or\n\n", 18, 0600);
	assert_int_equal(braid_job_secret_file(file, geteuid(), &secret, why), 0);
	assert_text(text);
	write_file("\nsixteen\nbytes or", 17, 0600);
	assert_int_equal(braid_job_secret_file(file, geteuid(), &secret, why), 0);
	assert_text("\nsixteen\nbytes or");
}

static void a_file_that_others_have_access_to_is_refused(void **state)
{
	(void)state;
	for (mode_t bit = 1; bit <= 040; bit <<= 1) {
		chmod(file, 0600 | bit);
		assert_refused("chmod 600");
	}
}

static void a_file_of_another_user_is_refused(void **state)
{
	(void)state;
	w.owner = geteuid() + 1;
	assert_refused("chown");
}

static void only_regular_files_are_read(void **state)
{
	(void)state;
	unlink(file);
	assert_int_equal(mkfifo(file, 0600), 0);
	assert_refused("no regular file");
	unlink(file);
	assert_int_equal(mkdir(file, 0700), 0);
	assert_refused("no regular file");
}

/* Kubernetes mounts secrets as links. */
static void a_link_to_a_file_will_do(void **state)
{
	char link[sizeof(file) + 4];

	(void)state;
	snprintf(link, sizeof(link), "%s.ln", file);
	assert_int_equal(symlink(file, link), 0);
	assert_int_equal(braid_job_secret_file(link, geteuid(), &secret, why), 0);
	assert_text(text);
	chmod(file, 0644);
	assert_int_equal(braid_job_secret_file(link, geteuid(), &secret, why), -EINVAL);
	unlink(link);
}

static void a_text_has_16_to_4096_bytes(void **state)
{
	static const struct {
		size_t len;
		bool fine;
	} rows[] = {
		{ 0, false }, { 1, false }, { 15, false }, { 16, true }, { 4096, true },
		{ 4097, false }, { 4098, false }, { 20000, false },
	};
	char *many = malloc(20001);

	(void)state;
	assert_non_null(many);
	memset(many, 'x', 20000);
	many[20000] = '\0';
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *value = many + 20000 - rows[i].len;

		write_file(value, rows[i].len, 0600);
		unsetenv("BRAID_SECRET");
		if (!rows[i].fine) {
			assert_refused("16 to 4096");
		} else {
			assert_int_equal(braid_job_secret_file(file, geteuid(), &secret, why), 0);
			assert_text(value);
		}
		setenv("BRAID_SECRET", value, 1);
		assert_int_equal(braid_job_secret_read(&secret, why), rows[i].fine ? 1 : -EINVAL);
	}
	write_file("fifteen bytes!!\n", 16, 0600);
	assert_refused("has 15 bytes");
	free(many);
}

static void reads_that_give_little_or_are_interrupted_go_on(void **state)
{
	(void)state;
	w.bite = 1;
	w.interrupts = 3;
	assert_int_equal(braid_job_secret_file(file, geteuid(), &secret, why), 0);
	assert_text(text);
}

static void calls_that_fail_are_named(void **state)
{
	(void)state;
	w.fstat_err = EIO;
	assert_refused("can't look at");
	w.fstat_err = 0;
	w.read_err = EISDIR;
	assert_refused("can't read");
	w.read_err = 0;
	unlink(file);
	assert_refused("No such file");
	assert_non_null(strstr(why, "umask 077"));
}

static void no_variable_is_no_secret(void **state)
{
	(void)state;
	assert_int_equal(braid_job_secret_read(&secret, why), 0);
}

static void either_variable_gives_the_same_secret(void **state)
{
	(void)state;
	setenv("BRAID_SECRET_FILE", file, 1);
	assert_int_equal(braid_job_secret_read(&secret, why), 1);
	assert_text(text);
	unsetenv("BRAID_SECRET_FILE");
	setenv("BRAID_SECRET", text, 1);
	memset(&secret, 0, sizeof(secret));
	assert_int_equal(braid_job_secret_read(&secret, why), 1);
	assert_text(text);
	assert_string_equal(getenv("BRAID_SECRET"), text);	/* a guest changes no variable */
}

static void both_variables_are_one_too_many(void **state)
{
	(void)state;
	setenv("BRAID_SECRET_FILE", file, 1);
	setenv("BRAID_SECRET", text, 1);
	assert_int_equal(braid_job_secret_read(&secret, why), -EINVAL);
	assert_non_null(strstr(why, "are both set"));
	assert_null(strstr(why, text));
}

static void an_empty_variable_is_not_taken_for_none(void **state)
{
	static const char *const names[] = { "BRAID_SECRET_FILE", "BRAID_SECRET" };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		setenv(names[i], "", 1);
		assert_int_equal(braid_job_secret_read(&secret, why), -EINVAL);
		assert_non_null(strstr(why, names[i]));
		assert_non_null(strstr(why, "is set and empty"));
		unsetenv(names[i]);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_file_of_its_user_alone_gives_its_text),
		T(newlines_at_the_end_do_not_count),
		T(a_file_that_others_have_access_to_is_refused),
		T(a_file_of_another_user_is_refused),
		T(only_regular_files_are_read),
		T(a_link_to_a_file_will_do),
		T(a_text_has_16_to_4096_bytes),
		T(reads_that_give_little_or_are_interrupted_go_on),
		T(calls_that_fail_are_named),
		T(no_variable_is_no_secret),
		T(either_variable_gives_the_same_secret),
		T(both_variables_are_one_too_many),
		T(an_empty_variable_is_not_taken_for_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
