/* SPDX-License-Identifier: BSD-3-Clause */
/* test_awaited.c - the WARN of an accept() that waits: when it comes, and for whom it says it waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/setup/awaited.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/stopped.h"
#include "tests/lib/warns.h"

enum { LISTEN = 1000 };

struct braid_list braid_handshakes;

static struct braid_dev dev;
static struct braid_conn c;
static struct braid_link link_;
static struct braid_awaited w;
static struct braid_thread peer;	/* what its service thread does */
static uint64_t now = 1000 * SEC;

/* --- the neighbours ------------------------------------------------------------------------ */

const char *braid_stopped_text(const struct braid_thread *t, uint32_t pid, char ret[BRAID_STOPPED_TEXT])
{
	assert_int_equal(pid, 42);
	ret[0] = t->state;
	strcpy(ret + 1, "-state");
	return ret;
}

const char *braid_stopped_peer(const char *host, uint32_t pid, char ret[BRAID_STOPPED_TEXT])
{
	assert_string_equal(host, "node7");
	return braid_stopped_text(&peer, pid, ret);
}

struct braid_thread braid_stopped_seen(const struct braid_link *link)
{
	assert_ptr_equal(link, &link_);
	return peer;
}

static uint64_t now_ns(void)
{
	return now;
}

static int setup(void **state)
{
	static struct braid_os os;

	(void)state;
	os.now_ns = now_ns;
	braid_os = &os;
	now += 1000 * SEC;		/* the gate of the case before is open again */
	warns_keep();
	braid_param.stall_warn = 10;
	braid_param.handshake_timeout = 5;
	braid_list_init(&braid_handshakes);
	braid_links_init();
	dev = (struct braid_dev){ .net.name = "eth0", .addr = "10.0.0.1" };
	c = (struct braid_conn){ .dev = &dev, .known = true, .state = BRAID_CONN_RX_PROOF,
				 .addr = "10.0.0.9:5000",
				 .theirs = { .kind = BRAID_HELLO_LINK, .ident = LISTEN, .pid = 42,
					     .host = "node7" } };
	link_ = (struct braid_link){ .number = 3, .setup.peer_pid = 42 };
	memset(&w, 0, sizeof(w));
	peer.state = 'T';
	return 0;
}

static bool due_after(unsigned s)
{
	now += s * SEC;
	return braid_awaited_is_due(&w);
}

static void report(void)
{
	warns_clear();
	w.since_ns = now - 12 * SEC;
	braid_awaited_report(&w, &dev, LISTEN);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device eth0"));
	assert_non_null(strstr(warn_text, "waited for 12 s"));
	assert_non_null(strstr(warn_text, "[accept-waits]"));
}

#define SAYS(text) assert_non_null(strstr(warn_text, text))
#define SAYS_NOT(text) assert_null(strstr(warn_text, text))

/* --- when ---------------------------------------------------------------------------------- */

static void it_is_due_after_the_stall_time_and_then_six_times_as_long(void **state)
{
	(void)state;
	assert_false(due_after(0));
	assert_false(due_after(9));
	assert_true(due_after(1));
	assert_false(due_after(59));
	assert_true(due_after(1));
}

static void a_later_wait_begins_anew(void **state)
{
	(void)state;
	assert_false(due_after(0));
	assert_true(due_after(10));
	w.since_ns = 0;			/* accept() has found a peer */
	assert_false(due_after(100));
	assert_false(due_after(9));
	assert_true(due_after(1));
}

static void of_many_listens_one_in_ten_seconds_reports(void **state)
{
	struct braid_awaited other = { 0 };

	(void)state;
	braid_awaited_is_due(&other);
	assert_false(due_after(0));
	assert_true(due_after(10));
	assert_false(braid_awaited_is_due(&other));
	now += 10 * SEC;
	assert_true(braid_awaited_is_due(&other));
}

static void without_a_stall_time_it_never_is(void **state)
{
	(void)state;
	braid_param.stall_warn = 0;
	assert_false(due_after(0));
	assert_false(due_after(100000));
}

/* --- for whom ------------------------------------------------------------------------------ */

static void nobody_has_come(void **state)
{
	(void)state;
	report();
	SAYS("no peer has come to 10.0.0.1");
	SAYS("is late");
}

static void connections_that_say_nothing_are_counted(void **state)
{
	(void)state;
	c.known = false;
	braid_list_add_tail(&braid_handshakes, &c.node);
	report();
	SAYS("1, one from 10.0.0.9:5000");
}

static void a_peer_in_its_handshake_is_named_with_its_state(void **state)
{
	(void)state;
	braid_list_add_tail(&braid_handshakes, &c.node);
	report();
	SAYS("peer node7 (pid 42, 10.0.0.9:5000)");
	SAYS("has not answered our answer");
	SAYS("T-state");
	c.theirs.ident = LISTEN + 1;		/* it waits at another listen */
	report();
	SAYS("no peer has come");
}

static void a_peer_that_failed_is_named_with_its_error(void **state)
{
	(void)state;
	braid_awaited_came(&w, &c, -ETIMEDOUT, 0, now - 3 * SEC);
	report();
	SAYS("peer node7 (pid 42, 10.0.0.9:5000)");
	SAYS("3 s ago the peer has not answered our answer within 5 s (BRAID_HANDSHAKE_TIMEOUT)");
	SAYS("T-state");
	braid_awaited_came(&w, &c, -ECONNRESET, 0, now);
	report();
	SAYS("closed the connection in its handshake");
	SAYS_NOT("state");
	braid_awaited_came(&w, &c, -ENOMEM, 0, now);
	report();
	SAYS("Cannot allocate memory");
}

static void a_peer_whose_link_is_up_has_asked_for_nothing(void **state)
{
	(void)state;
	braid_svc_lock();
	braid_link_list(&link_);
	braid_svc_unlock();
	atomic_store(&link_.state, BRAID_LINK_UP);
	braid_awaited_came(&w, &c, 0, 3, now);
	report();
	SAYS("has connected, and has not asked for this connection: T-state");
	peer.state = 'S';			/* it does something else */
	report();
	SAYS_NOT("state");
	atomic_store(&link_.state, BRAID_LINK_DEAD);
	report();
	SAYS("that connection is lost");
}

static void each_step_that_is_missing_has_its_words(void **state)
{
	static const struct braid_transport verbs = { .name = "verbs" };
	static const struct {
		enum braid_conn_state state;
		const char *says;
	} rows[] = {
		{ BRAID_CONN_TX_ANSWER, "does not read our answer" },
		{ BRAID_CONN_RX_ASKED, "has not begun to set up verbs" },
		{ BRAID_CONN_RX_READY, "does not report that it is ready for verbs" },
		{ BRAID_CONN_ANSWER_SETUP, "waits for verbs of this host" },
	};

	(void)state;
	c.tr = &verbs;
	braid_list_add_tail(&braid_handshakes, &c.node);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		c.state = rows[i].state;
		report();
		SAYS(rows[i].says);
	}
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(it_is_due_after_the_stall_time_and_then_six_times_as_long),
		CASE(a_later_wait_begins_anew),
		CASE(of_many_listens_one_in_ten_seconds_reports),
		CASE(without_a_stall_time_it_never_is),
		CASE(nobody_has_come),
		CASE(connections_that_say_nothing_are_counted),
		CASE(a_peer_in_its_handshake_is_named_with_its_state),
		CASE(a_peer_that_failed_is_named_with_its_error),
		CASE(a_peer_whose_link_is_up_has_asked_for_nothing),
		CASE(each_step_that_is_missing_has_its_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
