/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_connect.c - connect() from a handle to a comm: which link it takes, how the peer answers, and
 * what becomes of handles that were damaged or used before.
 *
 * The links are those of null.h, and the test accepts or refuses at their other end.  There is no
 * service thread: the linker puts a function of the test in place of the one that starts it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/msg/open.h"
#include "core/proto/auth.h"
#include "core/proto/handle.h"
#include "core/setup/connect.h"
#include "core/setup/links.h"
#include "tests/lib/pair.h"

enum { LISTEN = 77, PEER_DEV = 3 };

static struct null_pair p;
static struct braid_link *link;		/* of p's dialler: it leads to the process of the handle */
static struct braid_params saved;
static struct braid_handle listener;
static uint8_t handle[BRAID_HANDLE_SIZE];
static struct braid_comm *comm;		/* what the last call returned */
static int service_err, check_err;
static bool wrong_token;
static const struct braid_link *twice;	/* a comm over it comes second */
static bool one_comm, came_second;		/* q's end takes one comm of a connect; has taken another */
static uint64_t numbers[8];		/* of the connects in OPENs, modulo 8 */
static unsigned starts, checks;

int __wrap_braid_service_try(void);
int __wrap_braid_service_try(void)
{
	starts++;
	return service_err;
}

static unsigned dials, helps;

void __wrap_braid_dial_at_once(struct braid_link *l);
void __wrap_braid_dial_at_once(struct braid_link *l)
{
	assert_false(braid_list_empty(&braid_svc.links));
	assert_int_equal(atomic_load(&l->state), BRAID_LINK_DIALING);
	dials++;
}

void __wrap_braid_dial_help(struct braid_link *l);
void __wrap_braid_dial_help(struct braid_link *l)
{
	(void)l;
	helps++;
}

/* --- the other end ------------------------------------------------------------------------- */

static int check(const struct braid_link *l, uint32_t id, const struct braid_open *open)
{
	uint8_t mac[BRAID_MAC_SIZE];

	numbers[checks++ % 8] = open->connect;
	assert_int_equal(open->listen_id, LISTEN);
	braid_auth_open(listener.token, l->setup.session, id, LISTEN, mac);
	assert_memory_equal(open->mac, mac, sizeof(mac));
	return l == twice ? -EALREADY : check_err;
}

static int offer(struct braid_comm *c, const struct braid_open *open)
{
	(void)open;
	braid_auth_opened(listener.token, c->link->setup.session, c->id, LISTEN, c->opened_mac);
	c->opened_mac[0] ^= wrong_token;
	return 0;
}

static void revoked(const struct braid_link *l)
{
	(void)l;
}

/* --- this end ------------------------------------------------------------------------------ */

static void list(struct braid_link *l, bool in)
{
	braid_svc_lock();
	if (in)
		braid_link_list(l);
	else
		assert_true(braid_link_unlist(l));
	braid_svc_unlock();
}

static bool connects_left(void)
{
	bool left;

	braid_svc_lock();
	left = braid_connects_left();
	braid_svc_unlock();
	return left;
}

static uint8_t session[BRAID_KEY_SIZE] = { 4 };

static int setup(void **state)
{
	struct null_config config = { .window = 65536 };

	(void)state;
	saved = braid_param;
	braid_param.connect_timeout = 60;
	braid_comm_hooks = (struct braid_comm_hooks){ check, offer, revoked };
	service_err = check_err = 0;
	wrong_token = false;
	twice = NULL;
	one_comm = true;
	came_second = false;
	starts = checks = dials = helps = 0;
	null_pair_init(&p, &config);
	null_now_ns += 1000 * SEC;
	braid_links_init();
	link = p.end[0];
	link->key.peer_dev = PEER_DEV;
	link->setup.proven = true;
	link->setup.session = p.end[1]->setup.session = session;
	list(link, true);
	listener = (struct braid_handle){
		.least = BRAID_WIRE_LEAST, .most = BRAID_WIRE_MOST, .dev = PEER_DEV,
		.listen_id = LISTEN, .port = 4711, .has4 = 1, .addr4 = { 10, 1, 0, 2 },
		.token = { 1, 2, 3 },
	};
	memcpy(listener.process, link->key.process, sizeof(listener.process));
	braid_handle_pack(&listener, handle);
	return braid_auth_init();
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_lock();
	braid_connects_free();
	braid_svc_unlock();
	list(link, false);
	assert_true(braid_list_empty(&braid_svc.links));
	null_pair_fini(&p);
	braid_param = saved;
	return 0;
}

static int call_with(void *h)
{
	comm = (void *)&p;
	return braid_connect(&p.dev[0], -1, h, NULL, &comm);
}

static int call(void)
{
	return call_with(handle);
}

static void assert_not_yet(void)
{
	assert_int_equal(call(), 0);
	assert_null(comm);
	assert_true(connects_left());
}

static void assert_ends(int err, const char *id)
{
	warns_clear();
	assert_int_equal(call(), err);
	assert_null(comm);
	assert_int_equal(warn_count, 1);
	if (!strstr(warn_text, id))
		fail_msg("no %s in: %s", id, warn_text);
	assert_false(connects_left());
}

static unsigned pins(void)
{
	return atomic_load(&link->thread.pins);
}

/* --- over a link that is up ---------------------------------------------------------------- */

static void a_connect_over_a_link_that_is_up_takes_one_answer(void **state)
{
	(void)state;
	assert_not_yet();
	assert_int_equal(pins(), 1);		/* the link is not idle meanwhile */
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_non_null(comm);
	assert_true(comm->opened && comm->sender);
	assert_ptr_equal(comm->link, link);
	assert_int_equal(pins(), 0);
	assert_false(connects_left());
	assert_int_equal(starts, 0);
	assert_int_equal(checks, 1);
	assert_int_equal(warn_count, 0);
}

static void comms_of_one_link_have_ids_of_their_own(void **state)
{
	uint8_t second[BRAID_HANDLE_SIZE];
	struct braid_comm *first;

	(void)state;
	braid_handle_pack(&listener, second);
	assert_not_yet();
	assert_int_equal(call_with(second), 0);
	assert_int_equal(pins(), 2);
	null_settle(&p);
	assert_int_equal(call(), 0);
	first = comm;
	assert_int_equal(call_with(second), 0);
	assert_non_null(first);
	assert_non_null(comm);
	assert_int_equal(first->id, 0);
	assert_int_equal(comm->id, 2);		/* odd ones are the peer's */
}

static void a_peer_that_no_longer_listens_refuses(void **state)
{
	(void)state;
	check_err = -ENOENT;
	assert_not_yet();
	null_settle(&p);
	assert_ends(-EREMOTEIO, "[not-listening]");
	assert_int_equal(pins(), 0);
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_UP);
}

static void a_peer_without_room_refuses(void **state)
{
	(void)state;
	check_err = -ENOSPC;
	assert_not_yet();
	null_settle(&p);
	assert_ends(-EREMOTEIO, "[peer-no-room]");
}

static void a_peer_that_does_not_know_the_token_is_refused(void **state)
{
	(void)state;
	wrong_token = true;
	assert_not_yet();
	null_settle(&p);
	assert_ends(-EACCES, "[wrong-token]");
}

static void a_peer_that_does_not_answer_is_given_up_in_time(void **state)
{
	(void)state;
	assert_not_yet();
	null_now_ns += 60 * SEC - 1;
	assert_not_yet();
	null_now_ns += 1;
	assert_ends(-EREMOTEIO, "[no-answer]");
	assert_non_null(strstr(warn_text, "within 60 s (BRAID_CONNECT_TIMEOUT)"));
	assert_int_equal(pins(), 0);
	/* Nobody uses the comm any more. */
	assert_false(braid_list_empty(&link->msg.comms));
	assert_true(braid_list_entry(link->msg.comms.next, struct braid_comm, node)->closed);
}

/* --- handles ------------------------------------------------------------------------------- */

static void handles_that_are_not_ours_are_distinguished(void **state)
{
	(void)state;
	handle[0] ^= 1;
	assert_ends(-EPROTONOSUPPORT, "[other-plugin]");
	listener.least = listener.most = BRAID_WIRE_MOST + 1;
	braid_handle_pack(&listener, handle);
	assert_ends(-EPROTONOSUPPORT, "speaks Braid's wire versions 3 to 3, this library 1 to 2");
	assert_non_null(strstr(warn_text, "[wire-version]"));
	listener.least = listener.most = BRAID_WIRE_MOST;
	braid_handle_pack(&listener, handle);
	handle[40] ^= 1;
	assert_ends(-EINVAL, "[bad-handle]");
}

static void a_handle_whose_connect_has_ended_is_not_taken_again(void **state)
{
	(void)state;
	assert_not_yet();
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_non_null(comm);
	assert_ends(-EINVAL, "[bad-handle]");
	assert_non_null(strstr(warn_text, "used again"));
}

static void after_a_failure_the_handle_is_good_for_another_try(void **state)
{
	(void)state;
	check_err = -ENOENT;
	assert_not_yet();
	null_settle(&p);
	assert_ends(-EREMOTEIO, "[not-listening]");
	check_err = 0;
	assert_not_yet();
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_non_null(comm);
}

static void the_state_in_a_handle_cannot_be_made_up(void **state)
{
	struct braid_handle_state real;
	struct braid_handle h;
	uint8_t copy[BRAID_HANDLE_SIZE];

	(void)state;
	assert_not_yet();
	assert_int_equal(braid_handle_unpack(handle, &h), 0);
	real = h.state;
	assert_int_equal(real.slot, 1);
	for (unsigned i = 0; i < 4; i++) {
		struct braid_handle_state st = real;

		st.nonce ^= i == 0;
		st.gen += i == 1;
		st.slot += i == 2;
		if (i == 3)
			st.slot = 0;
		memcpy(copy, handle, sizeof(copy));
		braid_handle_put_state(copy, &st);
		assert_int_equal(call_with(copy), -EINVAL);
		assert_null(comm);
	}
	null_settle(&p);			/* the real one was not disturbed */
	assert_int_equal(call(), 0);
	assert_non_null(comm);
}

/* --- the service's lock -------------------------------------------------------------------- */

static uint64_t ticking(void)
{
	return null_now_ns += 100000;
}

static void a_lock_that_is_held_for_long_makes_it_call_again(void **state)
{
	const struct braid_os *standing = braid_os;
	struct braid_os os = *braid_os;
	uint64_t before = null_now_ns;

	(void)state;
	os.now_ns = ticking;
	braid_os = &os;
	braid_svc_lock();
	assert_int_equal(call(), 0);
	braid_svc_unlock();
	braid_os = standing;
	assert_null(comm);
	assert_false(connects_left());
	assert_true(null_now_ns - before >= MS);
	assert_true(null_now_ns - before < 2 * MS);
}

/* --- a new link ---------------------------------------------------------------------------- */

/* The link that was made last, which the service thread would dial. */
static struct braid_link *made(void)
{
	struct braid_link *l = braid_list_entry(braid_svc.links.prev, struct braid_link, table.node);

	assert_ptr_not_equal(l, link);
	return l;
}

static void forget(struct braid_link *l)
{
	assert_int_equal(atomic_load(&l->thread.pins), 0);
	list(l, false);
	braid_link_free(l);
}

/* Dialling it has failed, or it was lost before its peer had answered. */
static void die(struct braid_link *l, int err)
{
	atomic_store(&l->err, err);
	atomic_store(&l->state, BRAID_LINK_DEAD);
}

static void where_no_link_is_up_a_new_one_is_to_be_dialled(void **state)
{
	struct braid_link *l;

	(void)state;
	listener.dev = PEER_DEV + 1;
	braid_handle_pack(&listener, handle);
	assert_not_yet();
	assert_int_equal(starts, 1);
	assert_int_equal(dials, 1);		/* by this call, which has also helped */
	assert_int_equal(helps, 1);
	assert_not_yet();
	assert_int_equal(dials, 1);
	assert_int_equal(helps, 2);
	l = made();
	assert_int_equal(atomic_load(&l->state), BRAID_LINK_DIALING);
	assert_true(l->dialler);
	assert_true(l->number);
	assert_int_equal(l->dial.until_ns, null_now_ns + 60 * SEC);
	assert_memory_equal(l->dial.token, listener.token, sizeof(listener.token));
	assert_int_equal(l->key.peer_dev, PEER_DEV + 1);
	assert_string_equal(l->peer, "10.1.0.2:4711");
	null_now_ns += 60 * SEC;		/* how its dial ends decides, not the time */
	assert_not_yet();
	die(l, -EREMOTEIO);
	warns_clear();
	assert_int_equal(call(), -EREMOTEIO);
	assert_int_equal(warn_count, 0);	/* the end of the dial was reported */
	assert_false(connects_left());
	forget(l);
}

/* Whoever knows a token of ours can link in and claim to be the process that we connect to. */
static void a_refusal_over_a_link_that_the_peer_dialled_is_not_the_last_word(void **state)
{
	static const int refusals[] = { -ENOENT, -ENOSPC, 0 };
	struct braid_link *l;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		link->setup.proven = link->setup.distrusted = false;
		check_err = refusals[i];
		wrong_token = !check_err;
		braid_handle_pack(&listener, handle);
		assert_not_yet();
		null_settle(&p);
		assert_not_yet();
		assert_int_equal(pins(), 0);
		assert_not_yet();
		assert_int_equal(warn_count, 0);
		l = made();			/* now by our own dial */
		assert_true(l->dialler && l->dial.alone);
		assert_memory_equal(l->dial.token, listener.token, sizeof(listener.token));
		assert_memory_equal(&l->key, &link->key, sizeof(l->key));
		die(l, -EREMOTEIO);
		assert_int_equal(call(), -EREMOTEIO);
		forget(l);
	}
	assert_int_equal(atomic_load(&link->state), BRAID_LINK_UP);	/* its comms go on */
}

/* --- a way beside, over a link that is up -------------------------------------------------- */

static struct null_pair q;		/* leads to the same process, and proves it */

static void assert_called(unsigned n)
{
	while (n--)
		assert_not_yet();
}

/* The OPEN over `link` is late, and another has left over q's link. */
static void doubt(void)
{
	struct null_config config = { .window = 65536 };

	null_pair_init(&q, &config);
	q.end[0]->key = link->key;
	q.end[0]->setup.proven = true;
	q.end[0]->setup.one_comm = one_comm;
	twice = came_second ? q.end[1] : NULL;
	q.end[0]->setup.session = q.end[1]->setup.session = session;
	list(q.end[0], true);
	link->setup.proven = false;
	assert_not_yet();
	null_now_ns += SEC - 1;
	assert_called(3);
	assert_int_equal(checks, 1);
	null_now_ns++;
	assert_called(2);
}

static void doubt_ends(void)
{
	assert_int_equal(atomic_load(&q.end[0]->thread.pins), 0);
	list(q.end[0], false);
	null_pair_fini(&q);
}

static void a_late_answer_is_also_asked_for_over_a_link_of_our_own(void **state)
{
	(void)state;
	doubt();
	assert_int_equal(checks, 2);
	assert_true(numbers[0] && numbers[0] == numbers[1]);
	null_settle(&q);
	assert_int_equal(call(), 0);
	assert_non_null(comm);
	assert_ptr_equal(comm->link, q.end[0]);
	assert_true(link->setup.distrusted);
	assert_int_equal(pins(), 0);
	assert_true(braid_list_entry(link->msg.comms.next, struct braid_comm, node)->closed);
	assert_int_equal(warn_count, 0);
	doubt_ends();
}

static void a_peer_that_was_only_slow_is_believed(void **state)
{
	(void)state;
	doubt();
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_non_null(comm);
	assert_ptr_equal(comm->link, link);
	assert_true(link->setup.proven && !link->setup.distrusted);
	assert_true(braid_list_entry(q.end[0]->msg.comms.next, struct braid_comm, node)->closed);
	assert_false(connects_left());
	doubt_ends();
}

static void what_comes_second_waits_for_what_came_first(void **state)
{
	(void)state;
	came_second = true;
	doubt();
	null_settle(&q);
	assert_called(2);
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_ptr_equal(comm->link, link);
	doubt_ends();
}

static void a_refusal_leaves_the_way_beside(void **state)
{
	(void)state;
	check_err = -EALREADY;
	doubt();
	check_err = 0;
	null_settle(&p);
	assert_called(1);
	null_settle(&q);
	assert_called(2);			/* q's was refused as well: all begins anew */
	assert_int_equal(checks, 3);
	assert_true(numbers[2] && numbers[2] != numbers[0]);
	null_settle(&q);
	assert_int_equal(call(), 0);
	assert_ptr_equal(comm->link, q.end[0]);
	doubt_ends();
}

/* As builds do that know no number of a connect. */
static void a_peer_that_would_take_both_comms_is_offered_one(void **state)
{
	(void)state;
	one_comm = false;
	doubt();
	assert_int_equal(checks, 1);
	assert_int_equal(atomic_load(&q.end[0]->thread.pins), 0);
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_ptr_equal(comm->link, link);
	doubt_ends();
}

/* The answer is late over a link that proves nothing: what is dialled beside it. */
static struct braid_link *dialled_beside(void)
{
	link->setup.proven = false;
	assert_not_yet();
	null_now_ns += SEC;
	assert_not_yet();
	return made();
}

static void a_dial_beside_that_fails_costs_nothing(void **state)
{
	struct braid_link *l = dialled_beside();

	(void)state;
	assert_true(l->dialler && l->dial.alone && l->spare);
	assert_memory_equal(l->dial.token, listener.token, sizeof(listener.token));
	assert_int_equal(pins(), 1);
	die(l, -EREMOTEIO);
	assert_called(3);
	forget(l);
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_ptr_equal(comm->link, link);
	assert_int_equal(starts, 1);
	assert_int_equal(warn_count, 0);
}

static void where_the_first_link_dies_the_dial_beside_goes_on(void **state)
{
	struct braid_link *l = dialled_beside();

	(void)state;
	die(link, -EREMOTEIO);
	assert_called(2);
	assert_int_equal(pins(), 0);
	assert_ptr_equal(made(), l);
	assert_false(l->spare);		/* its failure is one of the connect */
	die(l, -EREMOTEIO);
	assert_int_equal(call(), -EREMOTEIO);
	forget(l);
}

static void a_link_that_was_proven_is_waited_for(void **state)
{
	(void)state;
	assert_not_yet();
	null_now_ns += 59 * SEC;
	assert_called(3);
	assert_int_equal(starts, 0);
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_ptr_equal(comm->link, link);
}

static void a_peer_that_has_opened_a_comm_is_believed(void **state)
{
	(void)state;
	link->setup.proven = false;
	assert_not_yet();
	null_settle(&p);
	assert_int_equal(call(), 0);
	assert_non_null(comm);
	assert_true(link->setup.proven);
}

static void two_connects_to_one_process_share_a_link_if_they_may(void **state)
{
	uint8_t second[BRAID_HANDLE_SIZE];
	struct braid_link *one, *two;

	(void)state;
	listener.dev = PEER_DEV + 1;
	braid_handle_pack(&listener, handle);
	braid_handle_pack(&listener, second);
	assert_not_yet();
	one = made();
	assert_int_equal(call_with(second), 0);
	assert_ptr_equal(made(), one);
	die(one, -EREMOTEIO);
	assert_int_equal(call(), -EREMOTEIO);
	assert_int_equal(call_with(second), -EREMOTEIO);
	forget(one);

	braid_param.share = 0;
	assert_not_yet();
	one = made();
	assert_int_equal(call_with(second), 0);
	two = made();
	assert_ptr_not_equal(two, one);
	die(one, -EREMOTEIO);
	die(two, -EREMOTEIO);
	assert_int_equal(call(), -EREMOTEIO);
	assert_int_equal(call_with(second), -EREMOTEIO);
	forget(one);
	forget(two);
}

static void a_link_that_was_only_closing_is_replaced(void **state)
{
	(void)state;
	assert_not_yet();
	assert_int_equal(starts, 0);
	die(link, -ENOTCONN);			/* it was idle, and is closed */
	assert_not_yet();
	assert_int_equal(pins(), 0);
	assert_not_yet();
	assert_int_equal(starts, 1);
	die(made(), -EREMOTEIO);
	assert_int_equal(call(), -EREMOTEIO);
	forget(made());
}

/* The listen that its dialler named is gone, which says nothing about this one. */
static void a_dial_for_another_listen_does_not_fail_this_connect(void **state)
{
	struct braid_link *l;

	(void)state;
	listener.dev = PEER_DEV + 1;
	braid_handle_pack(&listener, handle);
	assert_not_yet();
	l = made();
	l->dial.target.listen_id = LISTEN + 1;
	die(l, -EREMOTEIO);
	assert_not_yet();
	forget(l);
	assert_not_yet();			/* dials for its own listen now */
	l = made();
	assert_int_equal(l->dial.target.listen_id, LISTEN);
	die(l, -EREMOTEIO);
	assert_int_equal(call(), -EREMOTEIO);
	forget(l);
}

static void links_that_are_lost_one_after_the_other_end_it(void **state)
{
	(void)state;
	listener.dev = PEER_DEV + 1;
	braid_handle_pack(&listener, handle);
	for (unsigned i = 0; i < 10; i++) {
		struct braid_link *l;

		assert_not_yet();
		l = made();
		die(l, -EREMOTEIO);
		atomic_store(&l->nlanes, 1);	/* it had been up */
		if (i < 9)
			assert_not_yet();
		else
			assert_ends(-EREMOTEIO, "10 links in a row were lost");
		atomic_store(&l->nlanes, 0);
		forget(l);
	}
	assert_non_null(strstr(warn_text, "[links-lost]"));
}

/* --- no service thread --------------------------------------------------------------------- */

static void connect_waits_when_resources_run_short(void **state)
{
	(void)state;
	braid_param.share = 0;
	service_err = -EMFILE;
	assert_not_yet();
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "Raise ulimit -n [no-descriptors]"));
	assert_not_yet();
	assert_int_equal(warn_count, 1);
	null_now_ns += 60 * SEC;
	assert_ends(-EMFILE, "[no-start]");
	/* -EAGAIN would mean that NCCL should call again. */
	service_err = -EAGAIN;
	assert_not_yet();
	null_now_ns += 60 * SEC;
	assert_ends(-ENOBUFS, "[no-start]");
}

static void other_errors_end_the_connect_at_once(void **state)
{
	(void)state;
	braid_param.share = 0;
	service_err = -ENOMEM;
	assert_ends(-ENOMEM, "[no-start]");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_connect_over_a_link_that_is_up_takes_one_answer),
		CASE(comms_of_one_link_have_ids_of_their_own),
		CASE(a_peer_that_no_longer_listens_refuses),
		CASE(a_peer_without_room_refuses),
		CASE(a_peer_that_does_not_know_the_token_is_refused),
		CASE(a_peer_that_does_not_answer_is_given_up_in_time),
		CASE(handles_that_are_not_ours_are_distinguished),
		CASE(a_handle_whose_connect_has_ended_is_not_taken_again),
		CASE(after_a_failure_the_handle_is_good_for_another_try),
		CASE(the_state_in_a_handle_cannot_be_made_up),
		CASE(a_lock_that_is_held_for_long_makes_it_call_again),
		CASE(where_no_link_is_up_a_new_one_is_to_be_dialled),
		CASE(a_refusal_over_a_link_that_the_peer_dialled_is_not_the_last_word),
		CASE(a_late_answer_is_also_asked_for_over_a_link_of_our_own),
		CASE(a_peer_that_was_only_slow_is_believed),
		CASE(what_comes_second_waits_for_what_came_first),
		CASE(a_refusal_leaves_the_way_beside),
		CASE(a_peer_that_would_take_both_comms_is_offered_one),
		CASE(a_dial_beside_that_fails_costs_nothing),
		CASE(where_the_first_link_dies_the_dial_beside_goes_on),
		CASE(a_link_that_was_proven_is_waited_for),
		CASE(a_peer_that_has_opened_a_comm_is_believed),
		CASE(two_connects_to_one_process_share_a_link_if_they_may),
		CASE(a_link_that_was_only_closing_is_replaced),
		CASE(a_dial_for_another_listen_does_not_fail_this_connect),
		CASE(links_that_are_lost_one_after_the_other_end_it),
		CASE(connect_waits_when_resources_run_short),
		CASE(other_errors_end_the_connect_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
