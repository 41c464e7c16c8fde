/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stat.c - the thread that answers: one line in, one report out, and clients that misbehave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/setup/links.h"
#include "core/watch/stat.h"

enum { WAIT_S = 20 };

static char top[] = "/tmp/braid-test-stat-XXXXXX";
static struct sockaddr_un to = { .sun_family = AF_UNIX };

static void quiet(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)level, (void)file, (void)line, (void)text;
}

static int begin(void **state)
{
	(void)state;
	strcpy(strrchr(top, '-') + 1, "XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(braid_param.stat_dir, sizeof(braid_param.stat_dir), "%s/d", top);
	braid_param.stat = 1;
	braid_self.pid = (uint32_t)getpid();
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/d/%d", top, (int)getpid());
	braid_links_init();
	braid_log_to(quiet);
	braid_stat_start();
	return 0;
}

static int end(void **state)
{
	char cmd[200];

	(void)state;
	braid_stat_stop();
	assert_int_not_equal(access(to.sun_path, F_OK), 0);	/* the socket went with the thread */
	braid_log_to(NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	assert_int_equal(system(cmd), 0);
	return 0;
}

/* The thread may not listen yet. */
static int client(void)
{
	const struct timeval limit = { .tv_sec = WAIT_S };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (int i = 0; connect(fd, (struct sockaddr *)&to, sizeof(to)); i++) {
		assert_in_range(i, 0, WAIT_S * 100);
		usleep(10000);
	}
	return fd;
}

static void ask(int fd, const char *line)
{
	assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
}

/* All bytes that come until the other end closes. */
static const char *answer(int fd)
{
	static char text[65536];
	size_t at = 0;
	ssize_t n;

	while ((n = recv(fd, text + at, sizeof(text) - 1 - at, 0)) > 0)
		at += (size_t)n;
	assert_int_equal(n, 0);
	text[at] = 0;
	close(fd);
	return text;
}

static void a_line_gets_its_report(void **state)
{
	int fd = client();

	(void)state;
	ask(fd, "stat\n");
	assert_non_null(strstr(answer(fd), "\"links\""));
	fd = client();
	ask(fd, "dump\n");
	assert_non_null(strstr(answer(fd), "\"events\""));
	fd = client();
	ask(fd, "metrics\n");
	assert_non_null(strstr(answer(fd), "# EOF\n"));
}

static void a_line_in_two_parts_is_one_line(void **state)
{
	int fd = client();

	(void)state;
	ask(fd, "st");
	usleep(20000);
	ask(fd, "at\n");
	assert_non_null(strstr(answer(fd), "\"links\""));
}

static void an_unknown_or_endless_line_gets_no_report(void **state)
{
	char line[4096];
	int fd = client();

	(void)state;
	ask(fd, "reboot\n");
	assert_null(strstr(answer(fd), "\"links\""));
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = 0;
	fd = client();
	(void)!send(fd, line, strlen(line), MSG_NOSIGNAL);
	close(fd);
}

static void a_client_that_is_silent_or_gone_delays_the_next_one_only(void **state)
{
	int silent = client(), gone = client(), fd = client();

	(void)state;
	close(gone);
	ask(fd, "stat\n");
	assert_non_null(strstr(answer(fd), "\"links\""));
	close(silent);
}

static void no_thread_where_no_client_is_allowed(void **state)
{
	(void)state;
	braid_stat_stop();
	braid_param.stat = 0;
	braid_stat_start();
	assert_int_not_equal(access(to.sun_path, F_OK), 0);
	braid_stat_dump();			/* to the log, then */
	braid_stat_stop();
	braid_stat_stop();
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_line_gets_its_report),
		CASE(a_line_in_two_parts_is_one_line),
		CASE(an_unknown_or_endless_line_gets_no_report),
		CASE(a_client_that_is_silent_or_gone_delays_the_next_one_only),
		CASE(no_thread_where_no_client_is_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
