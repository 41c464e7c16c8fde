/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stopped.c - the text about a peer's process that does not answer: its state, if it is on this host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

#include "core/base/self.h"
#include "core/link/link.h"
#include "core/setup/path.h"
#include "core/setup/stopped.h"

static struct braid_thread seen;	/* what the kernel tells of any process here */
static uint32_t asked;			/* the process that it was last asked for */

/* --- the neighbours ------------------------------------------------------------------------ */

struct braid_thread __wrap_braid_thread_of(uint32_t pid, const char *name);
struct braid_thread __wrap_braid_thread_of(uint32_t pid, const char *name)
{
	assert_string_equal(name, "braid-service");
	asked = pid;
	return seen;
}

static int setup(void **state)
{
	(void)state;
	asked = 0;
	braid_self.pid = 1;
	strcpy(braid_self.host, "here");
	seen = (struct braid_thread){ .state = 'T' };
	return 0;
}

static const char *says(char state, uint32_t pid, char text[BRAID_STOPPED_TEXT])
{
	return braid_stopped_text(&(struct braid_thread){ .state = state }, pid, text);
}

static void a_silent_process_is_stopped_or_starved_or_held_up(void **state)
{
	char text[BRAID_STOPPED_TEXT];

	(void)state;
	assert_non_null(strstr(says('T', 7, text), "stopped"));
	assert_non_null(strstr(text, "pid 7 is in state T"));
	assert_non_null(strstr(says('t', 7, text), "debugger"));
	assert_non_null(strstr(says('R', 7, text), "no CPU"));
	assert_null(strstr(text, "stopped"));
	assert_non_null(strstr(says('D', 7, text), "kernel holds it up"));
	assert_null(strstr(text, "stopped"));
	assert_non_null(strstr(says('\0', 0, text), "T, stopped"));
	assert_non_null(strstr(text, "R, no CPU"));
	assert_non_null(strstr(text, "frozen cgroup (docker pause)"));
	assert_non_null(strstr(says('S', 7, text), "not stopped"));
	assert_null(strstr(text, "CPU"));
	braid_stopped_text(&(struct braid_thread){ 'S', 10, 3000 }, 7, text);
	assert_non_null(strstr(text, "not stopped, but gets no CPU"));
	assert_non_null(strstr(says(BRAID_THREAD_FROZEN, 7, text), "cgroup is frozen"));
	assert_null(strstr(text, "state"));
}

static void only_a_process_of_this_host_can_be_seen(void **state)
{
	char text[BRAID_STOPPED_TEXT];

	(void)state;
	assert_non_null(strstr(braid_stopped_peer("here", 7, text), "is stopped, by SIGSTOP"));
	assert_int_equal(asked, 7);
	asked = 0;
	assert_non_null(strstr(braid_stopped_peer("there", 7, text), "R, no CPU"));
	braid_stopped_peer("here", 1, text);	/* it is this one, which is not stopped */
	braid_stopped_peer("here", 0, text);
	assert_int_equal(asked, 0);
}

static void a_link_leads_to_this_host_if_its_address_is_here(void **state)
{
	static struct braid_link link;
	struct sockaddr_in *to = &link.setup.path[0].ways.way[0].pair.to.in;
	char text[BRAID_STOPPED_TEXT];

	(void)state;
	link.setup.peer_pid = 7;
	link.setup.path[0].ways.n = 1;
	*to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	braid_stopped_why(&link, text);
	assert_int_equal(asked, 7);
	assert_int_equal(braid_stopped_seen(&link).state, 'T');
	asked = 0;
	to->sin_addr.s_addr = htonl(0xc0000201);	/* of TEST-NET-1 */
	assert_int_equal(braid_stopped_seen(&link).state, '\0');
	assert_int_equal(asked, 0);
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_silent_process_is_stopped_or_starved_or_held_up),
		CASE(only_a_process_of_this_host_can_be_seen),
		CASE(a_link_leads_to_this_host_if_its_address_is_here),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
