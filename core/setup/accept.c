/* SPDX-License-Identifier: BSD-3-Clause */
/* accept.c - see accept.h. */
#include "core/setup/accept.h"

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/proto/hello.h"
#include "core/setup/bind.h"
#include "core/setup/cross.h"
#include "core/setup/encrypt.h"
#include "core/setup/handshake.h"
#include "core/setup/job_key.h"
#include "core/setup/join.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/moved.h"
#include "core/setup/offer.h"
#include "core/setup/path.h"
#include "core/setup/recover.h"
#include "core/setup/redial.h"
#include "core/setup/reverse.h"

enum { SLOW_MS = 500 };			/* a dial of ours that takes longer gets nowhere */

static struct braid_log_gate gate_version, gate_encrypt, gate_secret;

/* --- the listen or link that a hello names -------------------------------------------------- */

static void key_of_hello(const struct braid_conn *c, struct braid_link_key *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->process, c->theirs.process, sizeof(ret->process));
	ret->dev = c->dev;
	ret->peer_dev = c->theirs.dev;
	ret->traffic_class = c->theirs.traffic_class;
	ret->self_accepted = !memcmp(ret->process, braid_self.process, sizeof(ret->process));
}

/* Is the hello a replay, or from a dial that was given up?  Only a lane's last dial counts. */
static bool hello_is_old(const struct braid_conn *c)
{
	return c->theirs.kind == BRAID_HELLO_LANE && c->theirs.lane < c->link->nlanes &&
	       !braid_epoch_is_later(c->link->setup.version, c->theirs.epoch,
				     c->link->lane[c->theirs.lane]->recover.dialled);
}

/* The handshake of a link that is up only at its dialler: the proof is on its way.  Or NULL. */
static struct braid_conn *link_coming(uint64_t id)
{
	struct braid_conn *c;

	braid_list_for(c, &braid_handshakes, node) {
		if (!c->dialler && c->state == BRAID_CONN_RX_PROOF &&
		    c->theirs.kind == BRAID_HELLO_LINK && c->mine.ident == id)
			return c;
	}
	return NULL;
}

static int accept_find(struct braid_conn *c)
{
	struct braid_conn *coming;
	struct braid_link *link;

	c->mine.kind = c->theirs.kind;
	c->mine.status = BRAID_HELLO_OK;
	c->mine.lane = c->theirs.lane;
	c->mine.epoch = c->theirs.epoch;
	c->mine.peer_dev = c->theirs.dev;
	c->mine.traffic_class = c->theirs.traffic_class;
	braid_offer_fill(&c->mine, c->met, false);
	if (c->theirs.kind == BRAID_HELLO_LINK) {
		if (!braid_listen_token(c->theirs.ident, &c->dev, c->key))
			c->mine.status = BRAID_HELLO_NO_LISTEN;
		else
			braid_paths_announce(c->dev, c->met, &c->mine);
		c->mine.dev = (uint16_t)c->dev->index;
		return 0;
	}
	braid_list_for(link, &braid_svc.links, table.node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP ||
		    link->setup.id != c->theirs.ident ||
		    link->dialler != (c->theirs.kind == BRAID_HELLO_ALIVE))
			continue;
		memcpy(c->key, link->setup.session, BRAID_KEY_SIZE);
		c->must_be = link->setup.version;
		c->link = link;
		return hello_is_old(c) ? -EACCES : 0;
	}
	coming = link_coming(c->theirs.ident);
	if (coming && c->theirs.lane)
		return -EALREADY;
	if (coming) {
		braid_conn_session(coming, c->key);
		c->must_be = coming->version;
	} else {
		c->mine.status = BRAID_HELLO_NO_LINK;
	}
	return 0;
}

/* Drop earlier dials of a lane that is not up here yet; false: `c` itself is not the last one. */
static bool last_dial(const struct braid_conn *c)
{
	struct braid_conn *k, *tmp;

	braid_list_for_safe(k, tmp, &braid_handshakes, node) {
		if (k == c || k->dialler || k->link != c->link ||
		    k->theirs.kind != BRAID_HELLO_LANE || k->theirs.lane != c->theirs.lane)
			continue;
		if (!braid_epoch_is_later(c->version, c->theirs.epoch, k->theirs.epoch))
			return false;
		braid_handshake_end(k);
	}
	return true;
}

static int admit_lane(struct braid_conn *c)
{
	struct braid_link *link = c->link;

	if (c->lane)			/* called again: the lane is being closed */
		return c->lane->recover.dialled == c->theirs.epoch ? braid_join_close_lane(c) :
								     -EALREADY;
	if (!link) {			/* its first lane was lost before the proof was read */
		braid_handshake_end(link_coming(c->theirs.ident));
		c->mine.status = BRAID_HELLO_NO_LINK;
	} else if (c->theirs.kind == BRAID_HELLO_LANE && !c->tr) {
		c->mine.status = BRAID_HELLO_NO_ROOM;	/* no common transport now; perhaps later */
	} else if (c->theirs.kind == BRAID_HELLO_ALIVE) {
		braid_recover_requested(link, c->theirs.lane, c->theirs.epoch);
	} else if (c->theirs.lane < link->nlanes) {
		c->lane = link->lane[c->theirs.lane];
		c->lane->recover.dialled = c->theirs.epoch;
		return braid_join_close_lane(c);
	} else if (c->theirs.lane != link->nlanes || !last_dial(c)) {
		c->mine.status = BRAID_HELLO_NO_ROOM;	/* out of turn, or a later dial is here */
	}
	return 0;
}

/* The peer's dial may end ours: note before that whether ours gets nowhere, for say_whose(). */
static void note_own_dial(struct braid_link *link, uint64_t now)
{
	const struct braid_conn *own = link->dial.conn;

	if (own && own->state == BRAID_CONN_CONNECT &&
	    braid_since(own->began_ns, now) >= SLOW_MS * MS)
		link->dial.unanswered = true;
}

static int accept_admit(struct braid_conn *c)
{
	uint64_t now = braid_os->now_ns();
	struct braid_link_key key;
	struct braid_link *link;
	int err;

	if (c->theirs.kind != BRAID_HELLO_LINK)
		return admit_lane(c);
	key_of_hello(c, &key);
	link = key.self_accepted || !braid_param.share ? NULL : braid_link_find(&key, true);
	if (link)
		note_own_dial(link, now);
	if (!c->tr) {
		c->mine.status = BRAID_HELLO_NO_TRANSPORT;
	} else if (link && braid_cross_refuse(link, now)) {
		c->mine.status = BRAID_HELLO_CROSSED;
	} else {
		err = braid_os->random(&c->mine.ident, sizeof(c->mine.ident));
		if (err)
			return err;
		c->mine.window = (uint32_t)braid_pool_promise((size_t)braid_param.window);
	}
	return 0;
}

/* --- the socket becomes a lane, or is closed ----------------------------------------------- */

/* The peer's dial makes the link that we dial, too.  Say so if ours gets nowhere. */
static void say_whose(const struct braid_link *link, const struct braid_conn *c)
{
	if (link->dial.err || link->dial.unanswered)
		braid_info("device %s, peer %s: our own dial has not come through (%s); the "
			   "peer's carries our connections, too", c->dev->net.name, link->peer,
			   link->dial.err ? strerror(-link->dial.err) : "no answer yet");
}

/* The dialler has proved itself: make the link, or give the socket to a link that waits for it. */
static int accepted(struct braid_conn *c, uint64_t now, uint32_t *ret_link)
{
	struct braid_link_key key;
	struct braid_link *link;
	int err;

	if (c->theirs.kind != BRAID_HELLO_LINK) {
		braid_moved_learn(c);
		braid_redial_reached(c->link, now);
	}
	if (c->theirs.kind == BRAID_HELLO_ALIVE)
		return braid_reverse_take(c, now);
	if (c->theirs.kind == BRAID_HELLO_LANE)
		return c->lane ? braid_join_lane(c->lane, c) :
				 braid_join_new_lane(c->link, c, c->theirs.lane);
	key_of_hello(c, &key);
	link = key.self_accepted ? NULL : braid_link_find(&key, true);
	if (link && !braid_param.share && atomic_load(&link->state) == BRAID_LINK_DIALING)
		link = NULL;
	if (link) {
		say_whose(link, c);
		if (link->dial.conn)
			braid_handshake_end(link->dial.conn);
		*ret_link = link->number;
		return braid_join_link(link, c);
	}
	link = braid_link_new(&key);
	if (!link)
		return braid_no_memory("a link");
	braid_link_number(link);
	*ret_link = link->number;
	err = braid_join_link(link, c);
	if (err) {
		braid_link_forget_keys(link);
		braid_link_free(link);
		return err;
	}
	braid_link_list(link);
	return 0;
}

static void accept_done(struct braid_conn *c, int err, uint64_t now)
{
	const char *differs = braid_job_key_differs(c);
	uint32_t link = 0;
	char why[256];

	if (!err)
		err = accepted(c, now, &link);
	if (c->known && c->theirs.kind == BRAID_HELLO_LINK &&
	    c->mine.status != BRAID_HELLO_CROSSED)
		braid_listen_came(c, err, link, now);
	if (differs && braid_log_gate_open(&gate_secret, now))
		braid_warn("device %s: %s %s: refused. Every process needs the same "
			   "BRAID_SECRET_FILE; braid doctor checks it [secret-mismatch]",
			   c->dev->net.name, c->addr, differs);
	if (err == -EPROTONOSUPPORT && braid_log_gate_open(&gate_version, now))
		braid_warn("device %s: %s speaks Braid's wire versions %u to %u, this library %u "
			   "to %u: "
			   "refused. Install the same Braid release on both hosts [wire-version]",
			   c->dev->net.name, c->addr, c->theirs.least, c->theirs.most,
			   BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	if (err == -ENOKEY && braid_log_gate_open(&gate_encrypt, now)) {
		braid_encrypt_why(c, why, sizeof(why));
		braid_warn("device %s: refused: %s (pid %u, %s) %s", c->dev->net.name,
			   c->theirs.host, c->theirs.pid, c->addr, why);
	}
}

/* What takes time is done while the dialler computes. */
static void accept_greeted(struct braid_conn *c)
{
	if (c->theirs.kind != BRAID_HELLO_ALIVE)
		braid_bind_accepted(c);
}

const struct braid_conn_owner braid_accepting = {
	.find = accept_find, .admit = accept_admit, .greeted = accept_greeted,
	.setup = braid_join_setup, .done = accept_done,
};
