/* SPDX-License-Identifier: BSD-3-Clause */
/* test_statdir.c - the statistics socket: its name, its permissions, and the removal of stale ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/watch/statdir.h"

static char top[] = "/tmp/braid-test-statdir-XXXXXX";
static char said[1024];

static void keep(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	assert_int_equal(level, BRAID_LOG_INFO);	/* none of it concerns the job */
	snprintf(said, sizeof(said), "%s", text);
}

static int begin(void **state)
{
	(void)state;
	strcpy(strrchr(top, '-') + 1, "XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(braid_param.stat_dir, sizeof(braid_param.stat_dir), "%s/d", top);
	braid_self.pid = (uint32_t)getpid();
	said[0] = 0;
	braid_log_to(keep);
	return 0;
}

static int end(void **state)
{
	char cmd[200];

	(void)state;
	braid_log_to(NULL);
	braid_param.stat_dir[0] = 0;
	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	assert_int_equal(system(cmd), 0);
	return 0;
}

static bool connects(const struct sockaddr_un *sa)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), err;

	assert_true(fd >= 0);
	err = connect(fd, (const struct sockaddr *)sa, sizeof(*sa));
	close(fd);
	return !err;
}

static bool there(const char *path)
{
	struct stat sb;

	return !lstat(path, &sb);
}

static void the_socket_is_named_by_the_pid_and_is_the_users_alone(void **state)
{
	struct sockaddr_un sa;
	struct stat sb;
	char want[64];
	int fd = braid_statdir_open(&sa);

	(void)state;
	assert_true(fd >= 0);
	snprintf(want, sizeof(want), "%s/d/%d", top, (int)getpid());
	assert_string_equal(sa.sun_path, want);
	assert_true(connects(&sa));
	assert_int_equal(stat(want, &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0600);
	assert_int_equal(stat(braid_param.stat_dir, &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0700);
	braid_statdir_close(fd, &sa);
	assert_false(there(want));
}

static void two_copies_of_a_process_have_a_name_each(void **state)
{
	struct sockaddr_un a, b;
	int fa = braid_statdir_open(&a), fb = braid_statdir_open(&b);

	(void)state;
	assert_true(fa >= 0 && fb >= 0);
	assert_string_not_equal(a.sun_path, b.sun_path);
	assert_true(connects(&a) && connects(&b));
	braid_statdir_close(fa, &a);
	braid_statdir_close(fb, &b);
}

static void a_directory_that_others_may_enter_is_refused(void **state)
{
	struct sockaddr_un sa;

	(void)state;
	assert_int_equal(mkdir(braid_param.stat_dir, 0755), 0);
	assert_int_equal(chmod(braid_param.stat_dir, 0755), 0);
	assert_int_equal(braid_statdir_open(&sa), -1);
	assert_non_null(strstr(said, "with mode 0700"));
}

static void a_link_to_a_directory_is_refused(void **state)
{
	struct sockaddr_un sa;
	char real[64];

	(void)state;
	snprintf(real, sizeof(real), "%s/real", top);
	assert_int_equal(mkdir(real, 0700), 0);
	assert_int_equal(symlink(real, braid_param.stat_dir), 0);
	assert_int_equal(braid_statdir_open(&sa), -1);
	assert_non_null(strstr(said, "can't look at this process"));
}

/* The socket of a process that was killed, a socket that answers, and a user's own file. */
static void only_what_a_dead_process_left_is_removed(void **state)
{
	struct sockaddr_un mine, dead, lives;
	char file[128];
	int fd, fl;
	pid_t pid;

	(void)state;
	fl = braid_statdir_open(&lives);
	assert_true(fl >= 0);
	pid = fork();
	if (!pid) {
		braid_self.pid = (uint32_t)getpid();
		_exit(braid_statdir_open(&dead) < 0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	snprintf(dead.sun_path, sizeof(dead.sun_path), "%s/d/%d", top, (int)pid);
	assert_true(there(dead.sun_path));
	snprintf(file, sizeof(file), "%s/d/%d0", top, (int)pid);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	fd = braid_statdir_open(&mine);
	assert_true(fd >= 0);
	assert_false(there(dead.sun_path));
	assert_true(there(file) && connects(&lives));
	braid_statdir_close(fd, &mine);
	braid_statdir_close(fl, &lives);
}

static void closing_nothing_is_nothing(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	(void)state;
	braid_statdir_close(-1, &sa);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_socket_is_named_by_the_pid_and_is_the_users_alone),
		CASE(two_copies_of_a_process_have_a_name_each),
		CASE(a_directory_that_others_may_enter_is_refused),
		CASE(a_link_to_a_directory_is_refused),
		CASE(only_what_a_dead_process_left_is_removed),
		CASE(closing_nothing_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
