/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_accept.c - the accepting end of handshakes: what a hello names, who is admitted, and what
 * becomes of the socket.
 *
 * Cases call the owner's functions in the order of a handshake.  The rest of core/setup is replaced
 * here, all but the table of links.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/link/link.h"
#include "core/setup/accept.h"
#include "core/setup/bind.h"
#include "core/setup/cross.h"
#include "core/setup/handshake.h"
#include "core/setup/join.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/moved.h"
#include "core/setup/offer.h"
#include "core/setup/path.h"
#include "core/setup/recover.h"
#include "core/setup/redial.h"
#include "core/setup/reverse.h"
#include "tests/lib/warns.h"

enum { LISTEN = 1000, LINK = 2000, PEER = 'q', LANES = 2 };

struct braid_list braid_handshakes;

static struct braid_dev dev, met;
static struct braid_link link_, made;
static struct braid_lane lane[LANES];
static struct braid_conn c, other;
static uint8_t keys[2][BRAID_KEY_SIZE], session[BRAID_KEY_SIZE];
static const struct braid_transport tr = { .name = "tr" };

static struct {
	bool crossed;			/* our own dial goes on */
	int close_err, join_err;
	struct braid_conn *ended;
	const struct braid_link *joined;
	const struct braid_lane *rejoined;
	int new_lane;			/* its index; -1: none */
	unsigned bound, wanted, announced, offers, freed, reached, offered;
	bool no_memory;
	unsigned came;			/* peers that were reported to the listen */
	int came_err;
	uint32_t came_link;
} w;

/* --- the neighbours ------------------------------------------------------------------------ */

bool braid_listen_token(uint64_t id, struct braid_dev **at, uint8_t *ret)
{
	assert_ptr_equal(*at, &met);
	if (id != LISTEN)
		return false;
	*at = &dev;
	memset(ret, 't', BRAID_KEY_SIZE);
	return true;
}

void braid_listen_came(const struct braid_conn *k, int err, uint32_t link, uint64_t now)
{
	assert_int_equal(k->theirs.ident, LISTEN);
	assert_int_equal(now, 77);
	w.came++;
	w.came_err = err;
	w.came_link = link;
}

void braid_moved_learn(const struct braid_conn *proven)
{
	(void)proven;
}

void braid_offer_fill(struct braid_hello *h, const struct braid_dev *at, bool plain)
{
	assert_ptr_equal(at, &met);
	assert_false(plain);
	h->lanes_max = 8;
	w.offers++;
}

void braid_paths_announce(struct braid_dev *at, const struct braid_dev *by, struct braid_hello *mine)
{
	assert_ptr_equal(at, &dev);
	assert_ptr_equal(by, &met);
	(void)mine;
	w.announced++;
}

void braid_conn_session(const struct braid_conn *k, uint8_t *ret)
{
	assert_ptr_equal(k, &other);
	memset(ret, 'k', BRAID_KEY_SIZE);
}

bool braid_cross_refuse(struct braid_link *link, uint64_t now)
{
	assert_ptr_equal(link, &link_);
	assert_int_equal(now, 77);
	return w.crossed;
}

void braid_recover_requested(struct braid_link *link, unsigned index, uint32_t epoch)
{
	assert_ptr_equal(link, &link_);
	assert_int_equal(index, c.theirs.lane);
	assert_int_equal(epoch, c.theirs.epoch);
	w.wanted++;
}

void braid_redial_reached(struct braid_link *link, uint64_t now)
{
	assert_ptr_equal(link, &link_);
	(void)now;
	w.reached++;
}

int braid_reverse_take(struct braid_conn *k, uint64_t now)
{
	assert_ptr_equal(k, &c);
	(void)now;
	w.offered++;
	return 0;
}

void braid_handshake_end(struct braid_conn *k)
{
	assert_null(w.ended);
	w.ended = k;
	braid_list_del(&k->node);
}

void braid_bind_accepted(struct braid_conn *k)
{
	assert_ptr_equal(k, &c);
	w.bound++;
}

void braid_join_setup(struct braid_conn *k)
{
	(void)k;
}

int braid_join_close_lane(struct braid_conn *k)
{
	assert_ptr_equal(k, &c);
	return w.close_err;
}

int braid_join_new_lane(struct braid_link *link, struct braid_conn *k, unsigned index)
{
	assert_ptr_equal(link, &link_);
	assert_ptr_equal(k, &c);
	w.new_lane = (int)index;
	return 0;
}

int braid_join_lane(struct braid_lane *l, struct braid_conn *k)
{
	assert_ptr_equal(k, &c);
	w.rejoined = l;
	return 0;
}

int braid_join_link(struct braid_link *link, struct braid_conn *k)
{
	assert_ptr_equal(k, &c);
	w.joined = link;
	return w.join_err;
}

struct braid_link *braid_link_new(const struct braid_link_key *key)
{
	if (w.no_memory)
		return NULL;
	made = (struct braid_link){ .key = *key };
	braid_list_init(&made.table.node);
	return &made;
}

void braid_link_free(struct braid_link *link)
{
	assert_ptr_equal(link, &made);
	w.freed++;
}

static uint64_t now_ns(void)
{
	return 77;
}

static int os_random(void *buf, size_t len)
{
	memset(buf, 'r', len);
	return 0;
}

/* --- a handshake --------------------------------------------------------------------------- */

static struct braid_conn *conn(struct braid_conn *k, enum braid_hello_kind kind, uint64_t ident)
{
	if (k->node.next)			/* it is another connection now */
		braid_list_del(&k->node);
	*k = (struct braid_conn){ .dev = &met, .met = &met, .tr = &tr, .state = BRAID_CONN_RX_PROOF };
	k->key = keys[k == &other];
	k->theirs = (struct braid_hello){ .kind = (uint8_t)kind, .ident = ident, .dev = 5,
					  .traffic_class = -1, .least = 8, .most = 9 };
	memset(k->theirs.process, PEER, sizeof(k->theirs.process));
	strcpy(k->addr, "10.0.0.9");
	braid_list_add_tail(&braid_handshakes, &k->node);
	return k;
}

/* A link to that peer with LANES lanes, in that state. */
static void have_link(int state, bool dialler)
{
	link_ = (struct braid_link){ .key = { .dev = &dev, .peer_dev = 5, .traffic_class = -1 },
				     .dialler = dialler, .nlanes = LANES, .number = 1 };
	memset(link_.key.process, PEER, sizeof(link_.key.process));
	link_.setup.id = LINK;
	link_.setup.session = memset(session, 's', sizeof(session));
	for (unsigned i = 0; i < LANES; i++) {
		lane[i] = (struct braid_lane){ .link = &link_, .index = (uint8_t)i };
		lane[i].recover.dialled = 3;
		link_.lane[i] = &lane[i];
	}
	atomic_store(&link_.state, state);
	braid_link_list(&link_);
}

static int setup(void **state)
{
	static const struct braid_os os = { .now_ns = now_ns, .random = os_random };

	(void)state;
	braid_os = &os;
	warns_keep();
	memset(&w, 0, sizeof(w));
	memset(&c, 0, sizeof(c));
	memset(&other, 0, sizeof(other));
	w.new_lane = -1;
	braid_param.share = 1;
	braid_param.window = 1 << 20;
	memset(braid_self.process, 'm', sizeof(braid_self.process));
	dev = (struct braid_dev){ .index = 3, .net.name = "eth0" };
	met = (struct braid_dev){ .index = 4, .net.name = "eth1" };
	braid_svc_lock();
	braid_links_init();
	braid_list_init(&braid_handshakes);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	return 0;
}

static int find(void)
{
	return braid_accepting.find(&c);
}

static int admit(void)
{
	return braid_accepting.admit(&c);
}

static void greeted(void)
{
	braid_accepting.greeted(&c);
}

static void done(int err)
{
	braid_accepting.done(&c, err, 77);
}

static void assert_key(char byte)
{
	for (unsigned i = 0; i < BRAID_KEY_SIZE; i++)
		assert_int_equal(c.key[i], byte);
}

static void lane_hello(unsigned index, uint32_t epoch)
{
	conn(&c, BRAID_HELLO_LANE, LINK);
	c.theirs.lane = (uint8_t)index;
	c.theirs.epoch = epoch;
}

/* --- what a hello names -------------------------------------------------------------------- */

static void a_hello_for_a_listen_gets_its_token_and_device(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.kind, BRAID_HELLO_LINK);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_int_equal(c.mine.dev, 3);
	assert_int_equal(c.mine.peer_dev, 5);
	assert_int_equal(c.mine.lanes_max, 8);
	assert_ptr_equal(c.dev, &dev);
	assert_int_equal(w.announced, 1);
	assert_key('t');
}

static void a_closed_listen_is_reported_as_closed(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN + 1);
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_LISTEN);
	assert_int_equal(w.announced, 0);
}

static void a_hello_for_a_lane_gets_its_links_session_key(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	lane_hello(LANES, 0);
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_ptr_equal(c.link, &link_);
	assert_key('s');
}

/* One end of a link dials its lanes; the other asks it to. */
static void lanes_are_dialled_by_one_end_and_asked_for_by_the_other(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, true);
	lane_hello(LANES, 0);
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_LINK);
	conn(&c, BRAID_HELLO_ALIVE, LINK);
	assert_int_equal(find(), 0);
	assert_ptr_equal(c.link, &link_);
	link_.dialler = false;
	conn(&c, BRAID_HELLO_ALIVE, LINK);
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_LINK);
}

static void a_link_that_is_not_up_is_none(void **state)
{
	(void)state;
	have_link(BRAID_LINK_DEAD, false);
	lane_hello(LANES, 0);
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_LINK);
	assert_null(c.link);
}

static void a_hello_older_than_the_lanes_last_dial_gets_no_answer(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	for (uint16_t epoch = 1; epoch < 6; epoch++) {
		lane_hello(1, epoch);
		assert_int_equal(find(), epoch <= 3 ? -EACCES : 0);
	}
	lane[1].recover.dialled = UINT16_MAX;	/* version 1 sends 16 bits of it */
	lane_hello(1, 0);
	assert_int_equal(find(), 0);
	link_.setup.version = 2;
	lane_hello(1, 0);
	assert_int_equal(find(), -EACCES);
	lane_hello(1, UINT16_MAX + 1);
	assert_int_equal(find(), 0);
}

/* With 16 bits an old hello would seem new after 32,768 more dials. */
static void a_recorded_hello_stays_old_however_often_a_lane_is_dialled(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	link_.setup.version = 2;
	for (unsigned bit = 3; bit < 31; bit++) {
		lane[1].recover.dialled = 1u << bit;
		lane_hello(1, 3);
		assert_int_equal(find(), -EACCES);
	}
}

/* The dialler is up already, and loses its first lane or dials the next. */
static void a_lane_may_come_before_the_proof_of_its_link(void **state)
{
	(void)state;
	conn(&other, BRAID_HELLO_LINK, LISTEN)->mine.ident = LINK;
	lane_hello(1, 0);
	assert_int_equal(find(), -EALREADY);
	lane_hello(0, 1);
	assert_int_equal(find(), 0);
	assert_key('k');
	assert_null(c.link);
	assert_int_equal(admit(), 0);		/* that handshake is over then */
	assert_ptr_equal(w.ended, &other);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_LINK);
}

/* --- who is admitted ----------------------------------------------------------------------- */

static int find_and_admit(void)
{
	assert_int_equal(find(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	return admit();
}

static void a_new_link_gets_an_id_and_a_window(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_true(c.mine.ident == 0x7272727272727272);
	assert_true(c.mine.window > 0);
}

static void ends_without_a_common_transport_make_no_link(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN)->tr = NULL;
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_TRANSPORT);
}

static void if_both_ends_dial_one_dial_is_refused(void **state)
{
	(void)state;
	have_link(BRAID_LINK_DIALING, true);
	w.crossed = true;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_CROSSED);
	w.crossed = false;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
}

static void dials_cross_only_where_links_are_shared_and_never_within_a_process(void **state)
{
	(void)state;
	have_link(BRAID_LINK_DIALING, true);
	w.crossed = true;
	braid_param.share = 0;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	braid_param.share = 1;
	memset(braid_self.process, PEER, sizeof(braid_self.process));
	link_.key.self_accepted = true;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
}

static void the_next_lane_is_admitted_and_no_other(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	lane_hello(LANES, 0);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_null(c.lane);
	lane_hello(LANES + 1, 0);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_ROOM);
}

static void a_lane_without_a_transport_now_may_be_dialled_later(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	lane_hello(LANES, 0);
	c.tr = NULL;
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_ROOM);
}

static void of_two_dials_of_a_new_lane_the_later_counts(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	conn(&other, BRAID_HELLO_LANE, LINK)->link = &link_;
	other.theirs.lane = LANES;
	other.theirs.epoch = 7;
	lane_hello(LANES, 6);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_NO_ROOM);
	assert_null(w.ended);
	lane_hello(LANES, 8);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_ptr_equal(w.ended, &other);
}

static void a_lost_lane_is_closed_here_before_its_new_socket_is_admitted(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	w.close_err = -EAGAIN;
	lane_hello(1, 4);
	assert_int_equal(find_and_admit(), -EAGAIN);
	assert_ptr_equal(c.lane, &lane[1]);
	assert_int_equal(lane[1].recover.dialled, 4);
	assert_int_equal(admit(), -EAGAIN);
	w.close_err = 0;
	assert_int_equal(admit(), 0);
	lane[1].recover.dialled = 5;		/* meanwhile a later dial came */
	assert_int_equal(admit(), -EALREADY);
}

static void a_peer_that_lost_all_lanes_makes_us_dial(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, true);
	conn(&c, BRAID_HELLO_ALIVE, LINK)->theirs.lane = 1;
	c.theirs.epoch = 3;
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(c.mine.status, BRAID_HELLO_OK);
	assert_int_equal(w.wanted, 1);
	assert_int_equal(w.reached, 0);		/* it has proved nothing yet */
	greeted();
	done(0);
	assert_int_equal(w.reached, 1);
	assert_int_equal(w.offered, 1);		/* core/setup/reverse.h; else its socket is closed */
	assert_int_equal(w.bound, 0);
	assert_null(w.joined);
}

/* --- what becomes of the socket ------------------------------------------------------------ */

static void the_socket_of_a_new_peer_makes_a_link(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	assert_int_equal(w.bound, 0);
	greeted();
	assert_int_equal(w.bound, 1);		/* while the dialler computes */
	done(0);
	assert_ptr_equal(w.joined, &made);
	assert_true(made.number > 0);
	assert_ptr_equal(made.key.dev, &dev);
	assert_int_equal(made.key.peer_dev, 5);
	assert_false(made.key.self_accepted);
	assert_ptr_equal(braid_svc.links.next, &made.table.node);
}

static void a_link_that_can_not_be_made_leaves_nothing(void **state)
{
	(void)state;
	w.join_err = -ENOMEM;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	done(0);
	assert_int_equal(w.freed, 1);
	assert_true(braid_list_empty(&braid_svc.links));
	w.no_memory = true;
	w.joined = NULL;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	done(0);
	assert_null(w.joined);
	assert_non_null(strstr(warn_text, "[no-memory]"));
}

static void a_link_that_waits_for_the_peers_dial_gets_its_socket(void **state)
{
	(void)state;
	have_link(BRAID_LINK_WAITING, true);
	conn(&other, BRAID_HELLO_LINK, LISTEN);
	link_.dial.conn = &other;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	done(0);
	assert_ptr_equal(w.joined, &link_);
	assert_ptr_equal(w.ended, &other);	/* our own dial is not needed any more */
}

static void links_that_are_not_shared_are_made_by_each_dial(void **state)
{
	(void)state;
	braid_param.share = 0;
	have_link(BRAID_LINK_DIALING, true);
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	done(0);
	assert_ptr_equal(w.joined, &made);
}

static void a_link_to_our_own_process_has_two_ends(void **state)
{
	(void)state;
	memset(braid_self.process, PEER, sizeof(braid_self.process));
	have_link(BRAID_LINK_DIALING, true);
	link_.key.self_accepted = true;		/* even if it were found by its key */
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	done(0);
	assert_ptr_equal(w.joined, &made);
	assert_true(made.key.self_accepted);
}

static void the_socket_of_a_lane_goes_to_that_lane(void **state)
{
	(void)state;
	have_link(BRAID_LINK_UP, false);
	lane_hello(1, 4);
	assert_int_equal(find_and_admit(), 0);
	greeted();
	done(0);
	assert_ptr_equal(w.rejoined, &lane[1]);
	assert_int_equal(w.new_lane, -1);
	lane_hello(LANES, 4);
	assert_int_equal(find_and_admit(), 0);
	greeted();
	done(0);
	assert_int_equal(w.new_lane, LANES);
	assert_int_equal(w.bound, 2);
}

static void a_handshake_that_failed_makes_nothing(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	done(-EACCES);
	assert_null(w.joined);
	assert_int_equal(w.bound, 0);
	assert_int_equal(warn_count, 0);
}

static void a_listen_learns_what_became_of_a_peer_that_is_known(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	done(-EACCES);				/* a stranger */
	assert_int_equal(w.came, 0);
	c.known = true;
	done(-ETIMEDOUT);
	assert_int_equal(w.came, 1);
	assert_int_equal(w.came_err, -ETIMEDOUT);
	c.mine.status = BRAID_HELLO_CROSSED;	/* it comes again */
	done(-EREMOTEIO);
	assert_int_equal(w.came, 1);
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	assert_int_equal(find_and_admit(), 0);
	c.known = true;
	done(0);
	assert_int_equal(w.came, 2);
	assert_int_equal(w.came_err, 0);
	assert_int_equal(w.came_link, made.number);
}

static void another_wire_version_is_named_in_one_warning(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	done(-EPROTONOSUPPORT);
	done(-EPROTONOSUPPORT);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "10.0.0.9 speaks Braid's wire versions 8 to 9"));
	assert_non_null(strstr(warn_text, "[wire-version]"));
}

static void another_secret_is_named_in_one_warning(void **state)
{
	(void)state;
	conn(&c, BRAID_HELLO_LINK, LISTEN);
	c.theirs.options = BRAID_OPTION_SECRET;
	c.mine.status = BRAID_HELLO_SECRET;
	done(-EREMOTEIO);
	done(-EREMOTEIO);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "10.0.0.9 has a secret of the job, and this process"));
	assert_non_null(strstr(warn_text, "[secret-mismatch]"));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_hello_for_a_listen_gets_its_token_and_device),
		CASE(a_closed_listen_is_reported_as_closed),
		CASE(a_hello_for_a_lane_gets_its_links_session_key),
		CASE(lanes_are_dialled_by_one_end_and_asked_for_by_the_other),
		CASE(a_link_that_is_not_up_is_none),
		CASE(a_hello_older_than_the_lanes_last_dial_gets_no_answer),
		CASE(a_recorded_hello_stays_old_however_often_a_lane_is_dialled),
		CASE(a_lane_may_come_before_the_proof_of_its_link),
		CASE(a_new_link_gets_an_id_and_a_window),
		CASE(ends_without_a_common_transport_make_no_link),
		CASE(if_both_ends_dial_one_dial_is_refused),
		CASE(dials_cross_only_where_links_are_shared_and_never_within_a_process),
		CASE(the_next_lane_is_admitted_and_no_other),
		CASE(a_lane_without_a_transport_now_may_be_dialled_later),
		CASE(of_two_dials_of_a_new_lane_the_later_counts),
		CASE(a_lost_lane_is_closed_here_before_its_new_socket_is_admitted),
		CASE(a_peer_that_lost_all_lanes_makes_us_dial),
		CASE(the_socket_of_a_new_peer_makes_a_link),
		CASE(a_link_that_can_not_be_made_leaves_nothing),
		CASE(a_link_that_waits_for_the_peers_dial_gets_its_socket),
		CASE(links_that_are_not_shared_are_made_by_each_dial),
		CASE(a_link_to_our_own_process_has_two_ends),
		CASE(the_socket_of_a_lane_goes_to_that_lane),
		CASE(a_handshake_that_failed_makes_nothing),
		CASE(a_listen_learns_what_became_of_a_peer_that_is_known),
		CASE(another_wire_version_is_named_in_one_warning),
		CASE(another_secret_is_named_in_one_warning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
