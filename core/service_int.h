/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service_int.h - what the files behind core/service.h share, and nobody else includes:
 *
 *	service.c	the table of links, and the thread
 *	listen.c	listening sockets and listens
 *	connect.c	connect(), from a handle to a comm
 *	dial.c		dialling links and lanes
 *	handshake.c	handshakes under way, both ways
 *
 * Unless it says otherwise, what is declared here is called with braid_svc.lock held, waits for
 * nothing, and is 0 or a negative errno.
 */
#ifndef BRAID_CORE_SERVICE_INT_H
#define BRAID_CORE_SERVICE_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/conn.h"
#include "core/service.h"

#define MS 1000000ull
#define SEC 1000000000ull

struct braid_svc {
	pthread_mutex_t lock;
	struct braid_list links;
};
extern struct braid_svc braid_svc;

/* --- service.c ----------------------------------------------------------------------------- */

/* What an epoll event is about: the low bits of the pointer. */
enum braid_tag {
	BRAID_TAG_WAKE, BRAID_TAG_PORT, BRAID_TAG_CONN, BRAID_TAG_LANE, BRAID_TAG_DEVICE,
	BRAID_TAG_MASK = 7,
};

/* epoll_ctl() on the thread's set; no lock is needed. */
int braid_watch(int op, int fd, uint32_t events, void *obj, enum braid_tag tag);
/*
 * Before close, which is not enough: a child that was forked and has not come to exec yet may hold
 * the descriptor too, and epoll would go on to tell of it by a pointer to what is freed.
 */
void braid_unwatch(int fd);

/* Start the thread unless it runs.  An error has been logged. */
int braid_service_start(void);
/* The same without a line in the log, and that line; returns err. */
int braid_service_try(void);
int braid_service_failed(int err);

/* The link of that key which is up or on its way, or NULL; `pending`: which is not up yet. */
struct braid_link *braid_link_find(const struct braid_link_key *key, bool pending);
/* A new link gets its number, and joins the table; service.c takes it out. */
void braid_link_number(struct braid_link *link);
void braid_link_list(struct braid_link *link);
/* Fence a lane that may be watched: as braid_lane_fence(). */
int braid_lane_shut(struct braid_lane *lane);

/* --- listen.c ------------------------------------------------------------------------------ */

struct braid_port;

void braid_listens_init(void);
void braid_listens_wipe(void);		/* in a forked child: no lock, async-signal-safe */
bool braid_listens_left(void);

/* Somebody connects: take some of them in. */
void braid_port_event(struct braid_port *p, uint64_t now);
/* Accept again where descriptors had run out; true if some ports still wait for them. */
bool braid_ports_resume(uint64_t now);
void braid_ports_close(void);
/* What transports' devices have heard; true if more is to come of the port's, or of any. */
bool braid_port_news(struct braid_port *p);
bool braid_ports_news(void);

/* The TCP port at which a device listens, from now on if not before; 0: it can't. */
uint16_t braid_port(struct braid_dev *dev);

/* The token of a listen, and its device, of which *dev is one or a member; false: none such. */
bool braid_listen_token(uint64_t id, struct braid_dev **dev, uint8_t *ret);
/* Take a comm of a dead link back from its listen; false if it is at none.  Link's lock held. */
bool braid_listen_withdraw(struct braid_comm *c);

/* --- connect.c ----------------------------------------------------------------------------- */

void braid_connects_wipe(void);		/* as above */
bool braid_connects_left(void);
void braid_connects_free(void);

/* --- dial.c -------------------------------------------------------------------------------- */

/* The address to dial as text: a new link's name until its peer has told its own. */
void braid_dial_addr(const struct braid_link *link, unsigned path, char *ret, size_t len);
/* Dial a new link.  What goes wrong goes to braid_dial_failed(). */
void braid_dial_link(struct braid_link *link, uint64_t now);
/*
 * Dial a lane of a link that is up: one more (lane NULL), or one that is lost or suspect.
 * braid_grow_dialled() or braid_heal_dialled() hears how it ended, but for an error from here.
 */
int braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now);
/* Ask the end that dialled this link to dial again; then braid_heal_asked(), as above. */
int braid_dial_ask(struct braid_link *link, uint64_t now);
/* A dial of a new link did not come through: try again, wait for theirs, or give up.  `c` may be
 * NULL: there was no connection. */
void braid_dial_failed(struct braid_link *link, struct braid_conn *c, int err, uint64_t now);

/* --- handshake.c --------------------------------------------------------------------------- */

void braid_handshakes_init(void);
bool braid_handshakes_left(void);

/* Watch a connection that is prepared; on failure it has been freed. */
int braid_handshake_add(struct braid_conn *c, uint32_t events);
/* The same for one that has just been accepted; the socket is taken in any case. */
int braid_handshake_accept(int fd, struct braid_dev *dev, const struct sockaddr_storage *from,
			   uint64_t now);
/* Move a handshake on; `c` may be gone afterwards. */
void braid_handshake_event(struct braid_conn *c, uint64_t now);
void braid_handshake_end(struct braid_conn *c);		/* close and free */

/*
 * Before listen or connect: a socket whose path may be this host's memory should not come up with
 * a congestion control that paces.  What it gave up goes to ret, "" if nothing.
 */
void braid_handshake_unpaced(int fd, char ret[BRAID_CONGESTION_SIZE]);

/* Drop the oldest accepted connection that has proved nothing; false if there is none. */
bool braid_handshake_make_room(void);
void braid_handshakes_expire(uint64_t now);
void braid_handshakes_drop(const struct braid_link *link);	/* those of its lanes: it is dead */
void braid_handshakes_close(void);
void braid_handshakes_tell(uint64_t now);	/* one line about strangers, now and then */

/* "address:port", for people. */
void braid_addr_text(const struct sockaddr_storage *sa, char *text, size_t len);

/* What both ends' hellos say about us: transports of `met`, and lanes.  plain: the socket alone. */
void braid_handshake_offer(struct braid_hello *h, const struct braid_dev *met, bool plain);
/* Who can't have what both wanted, and why, for people; "" if that did not happen. */
void braid_handshake_refused(const struct braid_conn *c, char *ret, size_t len);
/* Move on those that wait for something else than their socket; true if there are any. */
bool braid_handshakes_poll(uint64_t now);

#endif
