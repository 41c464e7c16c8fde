/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_listen.c - listens: what their handles say, which comms they take, and how accept() gets one.
 *
 * The service, the listeners' sockets, links and comms are replaced here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/base/self.h"
#include "core/base/wakeup.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comm.h"
#include "core/msg/open.h"
#include "core/rma/rma.h"
#include "core/proto/auth.h"
#include "core/proto/handle.h"
#include "core/base/secret.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/listener.h"
#include "core/setup/moved.h"
#include "core/setup/service.h"

enum { LINKS = 20, PORT = 4711 };

struct braid_comm_hooks braid_comm_hooks;	/* instead of core/msg/open.c's */

static struct braid_dev dev, member[2], other;
static struct braid_link links[LINKS];
static uint8_t session[LINKS][BRAID_KEY_SIZE];
static struct braid_listener sockets[12];
static struct braid_listen *l;
static char handle[BRAID_HANDLE_SIZE];

static struct {
	int service_err, listener_err, channel_err;
	unsigned opened;		/* devices whose listeners were opened */
	unsigned moved[LINKS], flushed;
	struct braid_comm *brought;	/* comes when a link is moved */
	struct braid_comm *closed[4];
	unsigned nclosed, wakes;
	bool due;			/* a report of what accept() waits for */
	unsigned reports;
	uint8_t seed;
} w;

/* --- the neighbours ------------------------------------------------------------------------ */

int braid_service_start(void)
{
	braid_svc_assert_locked();
	return w.service_err;
}

struct braid_list braid_listeners;

void braid_moved_open(void)
{
}

void braid_moved_device(struct braid_dev *of)
{
	(void)of;
}

int braid_listener_open(struct braid_dev *d, bool quiet, struct braid_listener **ret)
{
	braid_svc_assert_locked();
	assert_false(quiet);
	w.opened++;
	for (unsigned i = 0; i < sizeof(sockets) / sizeof(sockets[0]) && !w.listener_err; i++) {
		if (sockets[i].dev == d) {
			*ret = &sockets[i];
			return 0;
		}
	}
	return w.listener_err;
}

static int open_comm(struct braid_comm *c);

void braid_link_progress(struct braid_link *link, uint64_t *idle, const atomic_bool *done)
{
	struct braid_comm *c = w.brought;

	assert_true(!idle && !done);
	w.moved[link - links]++;
	w.brought = NULL;
	if (c)
		assert_int_equal(open_comm(c), 0);
}

bool braid_link_try_flush_control(struct braid_link *link)
{
	assert_ptr_equal(link, &links[0]);
	w.flushed++;
	return true;
}

int braid_rma_channel_new(struct braid_rma *rma, struct braid_comm *c)
{
	c->channel = rma;
	return w.channel_err;
}

void braid_comm_close(struct braid_comm *c)
{
	w.closed[w.nclosed++] = c;
}

void braid_wake_service(void)
{
	w.wakes++;
}

bool braid_awaited_is_due(struct braid_awaited *a)
{
	a->since_ns = 1;
	return w.due;
}

void braid_awaited_report(const struct braid_awaited *a, const struct braid_dev *at,
			  uint64_t listen_id)
{
	assert_ptr_equal(at, &dev);
	assert_int_equal(listen_id, l->id);
	assert_int_equal(a->came_ns, w.reports ? 7 : 0);
	w.reports++;
}

void braid_awaited_came(struct braid_awaited *a, const struct braid_conn *c, int err, uint32_t link,
			uint64_t now)
{
	(void)c, (void)err, (void)link;
	a->came_ns = now;
}

static int os_random(void *buf, size_t len)
{
	memset(buf, ++w.seed, len);
	return 0;
}

/* --- a listen ------------------------------------------------------------------------------ */

static void add_socket(unsigned i, struct braid_dev *of, const char *ip)
{
	struct braid_listener *p = &sockets[i];
	bool v6 = strchr(ip, ':') != NULL;

	*p = (struct braid_listener){ .dev = of, .port = PORT, .first = !i };
	p->at.sa.sa_family = v6 ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(p->at.sa.sa_family, ip, v6 ? (void *)&p->at.in6.sin6_addr :
						       (void *)&p->at.in.sin_addr), 1);
	braid_list_add_tail(&braid_listeners, &p->node);
}

static int setup(void **state)
{
	static const struct braid_os os = { .random = os_random };

	(void)state;
	memset(&w, 0, sizeof(w));
	memset(sockets, 0, sizeof(sockets));
	memset(links, 0, sizeof(links));
	memset(&braid_self, 0, sizeof(braid_self));
	memset(braid_self.process, 'p', sizeof(braid_self.process));
	braid_self.place = 77;
	braid_os = &os;
	dev = (struct braid_dev){ .index = 3, .nmembers = 1, .member = { &dev } };
	member[0] = member[1] = other = (struct braid_dev){ .index = 4 };
	braid_svc_lock();
	braid_links_init();
	braid_list_init(&braid_listeners);
	add_socket(0, &dev, "10.0.0.1");
	for (unsigned i = 0; i < LINKS; i++) {
		links[i].key.dev = &dev;
		links[i].number = i + 1;
		links[i].setup.session = memset(session[i], 's', sizeof(session[i]));
		atomic_store(&links[i].state, BRAID_LINK_UP);
	}
	braid_svc_unlock();
	braid_listens_init();
	l = NULL;
	return braid_auth_init();
}

static void listen_now(void)
{
	assert_int_equal(braid_listen_new(&dev, handle, &l), 0);
	assert_non_null(l);
}

static int teardown(void **state)
{
	(void)state;
	if (l)
		braid_listen_close(l);
	assert_false(braid_listens_left());
	return 0;
}

static struct braid_handle said(void)
{
	struct braid_handle h;

	assert_int_equal(braid_handle_unpack(handle, &h), 0);
	return h;
}

static void have_links(unsigned n)
{
	braid_svc_lock();
	for (unsigned i = 0; i < n; i++)
		braid_link_list(&links[i]);
	braid_svc_unlock();
}

/* --- what the handle says ------------------------------------------------------------------ */

static void a_handle_names_the_process_the_device_and_where_it_listens(void **state)
{
	struct braid_handle h;

	(void)state;
	listen_now();
	h = said();
	assert_memory_equal(h.process, braid_self.process, sizeof(h.process));
	assert_int_equal(h.place, 77);
	assert_int_equal(h.dev, 3);
	assert_int_equal(h.port, PORT);
	assert_int_equal(h.has4, 1);
	assert_int_equal(h.has6, 0);
	assert_memory_equal(h.addr4, "\x0a\0\0\1", 4);
	assert_int_equal(h.listen_id, l->id);
	assert_memory_equal(h.token, l->token, sizeof(h.token));
}

static void each_listen_has_its_own_id_and_token(void **state)
{
	struct braid_listen *first;

	(void)state;
	listen_now();
	first = l;
	listen_now();
	assert_int_not_equal(first->id, l->id);
	assert_memory_not_equal(first->token, l->token, BRAID_KEY_SIZE);
	braid_listen_close(first);
}

static void further_addresses_follow_in_order_as_many_as_there_is_room_for(void **state)
{
	char ip[] = "10.0.0.2";
	struct braid_handle h;

	(void)state;
	for (unsigned i = 1; i < 10; i++) {
		ip[sizeof(ip) - 2] = (char)('1' + i % 9);
		add_socket(i, &dev, ip);
	}
	sockets[1].bound = true;		/* the same address again, bound to its interface */
	listen_now();
	h = said();
	assert_int_equal(h.addr4[3], 1);
	for (uint8_t i = 0; i < BRAID_HANDLE_MORE; i++)
		assert_int_equal(h.more4[i][3], i + 3);
}

static void the_first_ipv6_address_has_its_own_place(void **state)
{
	struct braid_handle h;

	(void)state;
	add_socket(1, &dev, "fd00::1");
	add_socket(2, &dev, "fd00::2");
	listen_now();
	h = said();
	assert_int_equal(h.has4, 1);
	assert_int_equal(h.has6, 1);
	assert_int_equal(h.addr6[0], 0xfd);
	assert_int_equal(h.addr6[15], 1);
}

static void a_device_of_several_listens_at_all_and_names_the_first(void **state)
{
	struct braid_dev fused = { .index = 9, .nmembers = 2, .member = { &member[0], &member[1] } };

	(void)state;
	add_socket(1, &member[0], "10.0.1.1");
	add_socket(2, &member[1], "10.0.2.1");
	assert_int_equal(braid_listen_new(&fused, handle, &l), 0);
	assert_int_equal(w.opened, 2);
	assert_int_equal(said().dev, 9);
	assert_int_equal(said().addr4[2], 1);
	assert_int_equal(said().more4[0][0], 0);
	braid_listen_close(l);
	l = NULL;
}

static void without_the_service_or_a_socket_there_is_no_listen(void **state)
{
	(void)state;
	w.service_err = -EMFILE;
	assert_int_equal(braid_listen_new(&dev, handle, &l), -EMFILE);
	assert_int_equal(w.opened, 0);
	w.service_err = 0;
	w.listener_err = -EADDRNOTAVAIL;
	assert_int_equal(braid_listen_new(&dev, handle, &l), -EADDRNOTAVAIL);
	assert_false(braid_listens_left());
	w.listener_err = 0;
	listen_now();
	assert_true(braid_listens_left());
}

/* --- a hello names it ---------------------------------------------------------------------- */

static void a_token_is_found_by_id_at_the_listens_device_or_a_member(void **state)
{
	struct braid_dev fused = { .nmembers = 2, .member = { &dev, &member[1] } };
	uint8_t token[BRAID_KEY_SIZE];
	struct braid_dev *at = &member[1];

	(void)state;
	assert_int_equal(braid_listen_new(&fused, handle, &l), 0);
	assert_true(braid_listen_token(l->id, &at, token));
	assert_ptr_equal(at, &fused);
	assert_memory_equal(token, l->token, sizeof(token));
	at = &other;
	assert_false(braid_listen_token(l->id, &at, token));
	assert_ptr_equal(at, &other);
	at = &dev;
	assert_false(braid_listen_token(l->id + 1, &at, token));
	braid_listen_close(l);
	l = NULL;
}

/* --- comms --------------------------------------------------------------------------------- */

static struct braid_comm comms[3];

static struct braid_comm *comm(unsigned i)
{
	struct braid_comm *c = &comms[i];

	memset(c, 0, sizeof(*c));
	c->id = 10 + i;
	c->link = &links[0];
	braid_list_init(&c->listen_node);
	return c;
}

static struct braid_open proof(const struct braid_comm *c)
{
	struct braid_open o = { .listen_id = l->id };

	braid_auth_open(l->token, c->link->setup.session, c->id, l->id, o.mac);
	return o;
}

static int offer(struct braid_comm *c, const struct braid_open *o)
{
	int checked, err;

	braid_lock_wait(&c->link->lock);
	checked = braid_comm_hooks.open_check(c->link, c->id, o);
	err = braid_comm_hooks.open_offer(c, o);
	braid_unlock(&c->link->lock);
	assert_int_equal(checked, err);
	return err;
}

static int open_comm(struct braid_comm *c)
{
	struct braid_open o = proof(c);

	return offer(c, &o);
}

static void comms_are_accepted_in_the_order_in_which_peers_opened_them(void **state)
{
	(void)state;
	listen_now();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(open_comm(comm(i)), 0);
	assert_ptr_equal(comms[0].listen, l);
	assert_int_equal(comms[0].listen_id, l->id);
	for (unsigned i = 0; i < 3; i++)
		assert_ptr_equal(braid_listen_accept(l), &comms[i]);
	assert_null(comms[0].listen);
	assert_null(braid_listen_accept(l));
}

/* The peer knows then that this end has the token, too. */
static void the_answer_to_an_open_is_prepared(void **state)
{
	uint8_t mac[BRAID_MAC_SIZE];

	(void)state;
	listen_now();
	assert_int_equal(open_comm(comm(0)), 0);
	braid_auth_opened(l->token, links[0].setup.session, comms[0].id, l->id, mac);
	assert_memory_equal(comms[0].opened_mac, mac, sizeof(mac));
	assert_ptr_equal(braid_listen_accept(l), &comms[0]);
}

static void an_open_without_proof_is_refused(void **state)
{
	struct braid_comm *c = comm(0);
	struct braid_open o;

	(void)state;
	listen_now();
	o = proof(c);
	o.mac[0] ^= 1;
	assert_int_equal(offer(c, &o), -EACCES);
	o = proof(c);
	c->id++;				/* the proof is of one comm ... */
	assert_int_equal(offer(c, &o), -EACCES);
	c->id--;
	links[0].setup.session[0]++;		/* ... on one link */
	assert_int_equal(offer(c, &o), -EACCES);
	assert_null(braid_listen_accept(l));
}

static void an_open_for_no_listen_or_one_of_another_device_is_refused(void **state)
{
	struct braid_comm *c = comm(0);
	struct braid_open o;

	(void)state;
	listen_now();
	o = proof(c);
	o.listen_id++;
	assert_int_equal(offer(c, &o), -ENOENT);
	links[0].key.dev = &other;
	o = proof(c);
	assert_int_equal(offer(c, &o), -ENOENT);
	assert_null(braid_listen_accept(l));
}

static void a_listen_keeps_a_limited_number_of_comms(void **state)
{
	static struct braid_comm many[1025];

	(void)state;
	listen_now();
	for (unsigned i = 0; i < 1025; i++) {
		many[i].id = i;
		many[i].link = &links[0];
		assert_int_equal(open_comm(&many[i]), i < 1024 ? 0 : -ENOSPC);
	}
	assert_ptr_equal(braid_listen_accept(l), &many[0]);
	assert_int_equal(open_comm(&many[1024]), 0);
	while (braid_listen_accept(l))
		;
}

/* Its connect() was not answered in time over one link, and has tried another. */
static void of_one_connect_the_first_comm_is_taken(void **state)
{
	struct braid_comm *one = comm(0), *two = comm(1), *three = comm(2);
	struct braid_open o;

	(void)state;
	listen_now();
	o = proof(one);
	o.connect = 5;
	assert_int_equal(offer(one, &o), 0);
	o = proof(two);
	o.connect = 5;
	assert_int_equal(offer(two, &o), -EALREADY);
	assert_ptr_equal(braid_listen_accept(l), one);
	assert_int_equal(offer(two, &o), -EALREADY);	/* although the first is accepted */
	o.mac[0] ^= 1;
	assert_int_equal(offer(two, &o), -EACCES);	/* who can't open learns nothing */
	o = proof(three);
	o.connect = 7;
	assert_int_equal(offer(three, &o), 0);
	assert_ptr_equal(braid_listen_accept(l), three);
}

static void a_listen_for_one_sided_traffic_makes_channels(void **state)
{
	struct braid_comm *one = comm(0), *two = comm(1);
	static struct braid_rma rma;
	struct braid_open o;

	(void)state;
	listen_now();
	braid_listen_for(l, &rma);
	o = proof(one);
	o.connect = 5;
	assert_int_equal(offer(one, &o), 0);
	assert_ptr_equal(one->channel, &rma);
	assert_null(one->listen);		/* accept() does not get it */
	assert_null(braid_listen_accept(l));
	o = proof(two);
	o.connect = 5;
	assert_int_equal(offer(two, &o), -EALREADY);
	o.connect = 7;
	w.channel_err = -ENOMEM;
	braid_lock_wait(&two->link->lock);
	assert_int_equal(braid_comm_hooks.open_offer(two, &o), -ENOMEM);
	w.channel_err = 0;
	assert_int_equal(braid_comm_hooks.open_offer(two, &o), 0);	/* it was not taken */
	braid_unlock(&two->link->lock);
}

static void connects_without_a_number_are_all_taken(void **state)
{
	struct braid_comm *one = comm(0), *two = comm(1);

	(void)state;
	listen_now();
	assert_int_equal(open_comm(one), 0);
	assert_int_equal(open_comm(two), 0);
	assert_ptr_equal(braid_listen_accept(l), one);
	assert_ptr_equal(braid_listen_accept(l), two);
}

static void a_comm_of_a_dead_link_is_taken_back_once(void **state)
{
	bool taken[2];

	(void)state;
	listen_now();
	assert_int_equal(open_comm(comm(0)), 0);
	assert_int_equal(open_comm(comm(1)), 0);
	braid_lock_wait(&links[0].lock);
	taken[0] = braid_listen_withdraw(&comms[0]);
	taken[1] = braid_listen_withdraw(&comms[0]);
	braid_unlock(&links[0].lock);
	assert_true(taken[0]);
	assert_false(taken[1]);
	assert_int_equal(l->nready, 1);
	assert_ptr_equal(braid_listen_accept(l), &comms[1]);
}

static void closing_a_listen_closes_what_was_never_accepted(void **state)
{
	(void)state;
	listen_now();
	assert_int_equal(open_comm(comm(0)), 0);
	assert_int_equal(open_comm(comm(1)), 0);
	braid_listen_close(l);
	l = NULL;
	assert_int_equal(w.nclosed, 2);
	assert_ptr_equal(w.closed[0], &comms[0]);
	assert_int_equal(w.wakes, 1);		/* the service thread may end now */
}

/* --- accept() moves links ------------------------------------------------------------------ */

static void accept_moves_the_links_of_its_device_that_are_up(void **state)
{
	(void)state;
	links[1].key.dev = &other;
	atomic_store(&links[2].state, BRAID_LINK_DIALING);
	have_links(4);
	listen_now();
	assert_null(braid_listen_accept(l));
	assert_int_equal(w.moved[0], 1);
	assert_int_equal(w.moved[1], 0);
	assert_int_equal(w.moved[2], 0);
	assert_int_equal(w.moved[3], 1);
}

static void what_a_link_brings_is_accepted_at_once(void **state)
{
	(void)state;
	have_links(2);
	listen_now();
	w.brought = comm(2);
	assert_ptr_equal(braid_listen_accept(l), &comms[2]);
	assert_int_equal(open_comm(comm(0)), 0);
	w.moved[0] = 0;
	assert_ptr_equal(braid_listen_accept(l), &comms[0]);	/* it had one: nothing is moved */
	assert_int_equal(w.moved[0], 0);
}

static void a_call_moves_some_links_and_the_next_goes_on_behind_them(void **state)
{
	unsigned n = 0;

	(void)state;
	have_links(LINKS);
	listen_now();
	braid_listen_accept(l);
	for (unsigned i = 0; i < LINKS; i++)
		n += w.moved[i];
	assert_int_equal(n, 8);
	braid_listen_accept(l);
	braid_listen_accept(l);
	for (unsigned i = n = 0; i < LINKS; i++) {
		assert_in_range(w.moved[i], 1, 2);
		n += w.moved[i];
	}
	assert_int_equal(n, 3 * 8);
}

/* Else an accept() that waits would have the thread watch thousands of links again and again. */
static void of_many_links_those_that_are_watched_are_left_alone(void **state)
{
	(void)state;
	have_links(LINKS);
	for (unsigned i = 0; i + 1 < LINKS; i++)
		braid_link_set_watched(&links[i], true);
	listen_now();
	for (unsigned i = 0; i < LINKS; i++)
		braid_listen_accept(l);
	for (unsigned i = 0; i + 1 < LINKS; i++)
		assert_int_equal(w.moved[i], 0);
	assert_true(w.moved[LINKS - 1] > 0);
}

static void urgent_control_frames_of_a_link_leave_with_it(void **state)
{
	(void)state;
	have_links(2);
	listen_now();
	braid_link_urge(&links[0]);
	braid_listen_accept(l);
	assert_int_equal(w.flushed, 1);
}

/* --- what accept() waits for --------------------------------------------------------------- */

static void an_accept_that_finds_nothing_reports_it_when_that_is_due(void **state)
{
	struct braid_conn c = { .theirs.ident = 1 };

	(void)state;
	listen_now();
	assert_null(braid_listen_accept(l));
	assert_int_equal(w.reports, 0);
	w.due = true;
	braid_listen_accept(l);
	assert_int_equal(w.reports, 1);
	braid_listen_came(&c, 0, 0, 6);		/* for another listen */
	assert_int_equal(l->awaited.came_ns, 0);
	c.theirs.ident = l->id;
	braid_listen_came(&c, 0, 0, 7);
	braid_listen_accept(l);
	assert_int_equal(w.reports, 2);
}

/* --- a forked child ------------------------------------------------------------------------ */

static void a_forked_child_forgets_the_tokens(void **state)
{
	static const uint8_t zero[BRAID_KEY_SIZE];
	int status;
	pid_t pid;

	(void)state;
	listen_now();
	assert_memory_not_equal(l->token, zero, sizeof(zero));
	pid = fork();
	if (!pid) {
		braid_secrets_wipe();
		_exit(memcmp(l->token, zero, sizeof(zero)) != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_handle_names_the_process_the_device_and_where_it_listens),
		CASE(each_listen_has_its_own_id_and_token),
		CASE(further_addresses_follow_in_order_as_many_as_there_is_room_for),
		CASE(the_first_ipv6_address_has_its_own_place),
		CASE(a_device_of_several_listens_at_all_and_names_the_first),
		CASE(without_the_service_or_a_socket_there_is_no_listen),
		CASE(a_token_is_found_by_id_at_the_listens_device_or_a_member),
		CASE(comms_are_accepted_in_the_order_in_which_peers_opened_them),
		CASE(the_answer_to_an_open_is_prepared),
		CASE(an_open_without_proof_is_refused),
		CASE(an_open_for_no_listen_or_one_of_another_device_is_refused),
		CASE(a_listen_keeps_a_limited_number_of_comms),
		CASE(of_one_connect_the_first_comm_is_taken),
		CASE(a_listen_for_one_sided_traffic_makes_channels),
		CASE(connects_without_a_number_are_all_taken),
		CASE(an_accept_that_finds_nothing_reports_it_when_that_is_due),
		CASE(a_comm_of_a_dead_link_is_taken_back_once),
		CASE(closing_a_listen_closes_what_was_never_accepted),
		CASE(accept_moves_the_links_of_its_device_that_are_up),
		CASE(what_a_link_brings_is_accepted_at_once),
		CASE(a_call_moves_some_links_and_the_next_goes_on_behind_them),
		CASE(of_many_links_those_that_are_watched_are_left_alone),
		CASE(urgent_control_frames_of_a_link_leave_with_it),
		CASE(a_forked_child_forgets_the_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
