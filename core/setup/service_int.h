/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service_int.h - what the files behind core/setup/service.h share, and no other file includes:
 *
 *	service.c	the table of links, and the thread
 *	listen.c	listening sockets and listens
 *	connect.c	connect(), from a handle to a comm
 *	dial.c		dialling links and lanes
 *	handshake.c	handshakes under way, both ways
 *
 * Unless a comment says otherwise, these functions are called with braid_svc.lock held, wait for
 * nothing, and return 0 or a negative errno.
 */
#ifndef BRAID_SETUP_SERVICE_INT_H
#define BRAID_SETUP_SERVICE_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/link/recover.h"
#include "core/setup/conn.h"
#include "core/setup/service.h"

#define MS 1000000ull
#define SEC 1000000000ull

struct braid_svc {
	pthread_mutex_t lock;
	struct braid_list links;
};
extern struct braid_svc braid_svc;

/* --- service.c ----------------------------------------------------------------------------- */

/* The kind of object that an epoll event is for, in the low bits of its pointer. */
enum braid_tag {
	BRAID_TAG_WAKE, BRAID_TAG_PORT, BRAID_TAG_CONN, BRAID_TAG_LANE, BRAID_TAG_DEVICE,
	BRAID_TAG_MASK = 7,
};

/* epoll_ctl() on the thread's set; no lock is needed. */
int braid_watch(int op, int fd, uint32_t events, void *obj, enum braid_tag tag);
/*
 * Call it before close(), which is not enough: a forked child that has not called exec() yet holds
 * the descriptor too, so epoll would still report its events, with a pointer to freed memory.
 */
void braid_unwatch(int fd);

/* Start the thread unless it runs.  An error has been logged. */
int braid_service_start(void);
/* _try() is the same without a line in the log; _failed() writes that line, and returns err. */
int braid_service_try(void);
int braid_service_failed(int err);

/* The link with that key, up or on its way, or NULL; `pending`: only one that is not up yet. */
struct braid_link *braid_link_find(const struct braid_link_key *key, bool pending);
/* Give a new link its number, and add it to the table, from which service.c removes it. */
void braid_link_number(struct braid_link *link);
void braid_link_list(struct braid_link *link);
/* Fence a lane that may be watched: as braid_lane_fence(). */
int braid_lane_shut(struct braid_lane *lane);

/* --- listen.c ------------------------------------------------------------------------------ */

struct braid_listener;

void braid_listens_init(void);
void braid_listens_wipe(void);		/* in a forked child: no lock, async-signal-safe */
bool braid_listens_left(void);

/* Connections have arrived at a listening socket: accept some of them. */
void braid_listener_event(struct braid_listener *p, uint64_t now);
/* Accept again where descriptors had run out; true if some ports still wait for them. */
bool braid_listeners_resume(uint64_t now);
void braid_listeners_close(void);
/* Read the events of the transports' devices, of this port's or of all; true: more are to come. */
bool braid_listener_news(struct braid_listener *p);
bool braid_listeners_news(void);

/* The TCP port at which a device listens, from now on if not before; 0: it can't. */
uint16_t braid_listener_port(struct braid_dev *dev);

/* A listen's token and device; on entry *dev is that device or a member of it.  False: none. */
bool braid_listen_token(uint64_t id, struct braid_dev **dev, uint8_t *ret);
/* Take a comm of a dead link back from its listen; false if it is at none.  Link's lock held. */
bool braid_listen_withdraw(struct braid_comm *c);

/* --- connect.c ----------------------------------------------------------------------------- */

void braid_connects_wipe(void);		/* as above */
bool braid_connects_left(void);
void braid_connects_free(void);

/* --- dial.c -------------------------------------------------------------------------------- */

/* The address to dial, as text: names the peer of a new link until the peer's hello is here. */
void braid_dial_addr(const struct braid_link *link, unsigned path, char *ret, size_t len);
/* Dial a new link.  Errors go to braid_dial_failed(). */
void braid_dial_link(struct braid_link *link, uint64_t now);
/*
 * Dial a lane of a link that is up: one more (lane NULL), or one that is lost or suspect.
 * The result goes to braid_lane_count_dialled() or braid_recover_dialled(), except an error that
 * is returned here.
 */
int braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now);
/* Ask the end that dialled this link to dial again; the result goes to braid_recover_asked(). */
int braid_dial_ask(struct braid_link *link, uint64_t now);
/* The dial of a new link failed (c NULL: before there was a connection): try again, wait for the
 * peer's dial, or give up. */
void braid_dial_failed(struct braid_link *link, struct braid_conn *c, int err, uint64_t now);

/* --- handshake.c --------------------------------------------------------------------------- */

void braid_handshakes_init(void);
bool braid_handshakes_left(void);

/* Watch a connection that is prepared; on failure the connection has been freed. */
int braid_handshake_add(struct braid_conn *c, uint32_t events);
/* The same for an accepted socket, which this call owns from now on, also if it fails. */
int braid_handshake_accept(int fd, struct braid_dev *dev, const struct sockaddr_storage *from,
			   uint64_t now);
/* Move a handshake on; `c` may be gone afterwards. */
void braid_handshake_event(struct braid_conn *c, uint64_t now);
void braid_handshake_end(struct braid_conn *c);		/* close and free */

/*
 * Call it before listen() or connect() where the peer may be on this host: replaces a congestion
 * control that paces.  The name of the replaced one goes to ret, "" if none was.
 */
void braid_handshake_unpaced(int fd, char ret[BRAID_CONGESTION_SIZE]);

/* Drop the oldest accepted connection, of those that have not shown the key if any; false: none. */
bool braid_handshake_make_room(void);
void braid_handshakes_expire(uint64_t now);
void braid_handshakes_drop(const struct braid_link *link);	/* those of a dead link's lanes */
void braid_handshakes_close(void);
void braid_handshakes_tell(uint64_t now);	/* one line about strangers, now and then */

/* "address:port", for logs. */
void braid_addr_text(const struct sockaddr_storage *sa, char *text, size_t len);

/* Fill a hello with the transports of `met` and the most lanes.  plain: offer only the socket. */
void braid_handshake_offer(struct braid_hello *h, const struct braid_dev *met, bool plain);
/* Text: which end could not have the transport agreed on, and why; "": both could. */
void braid_handshake_refused(const struct braid_conn *c, char *ret, size_t len);
/* Move handshakes that wait for something other than their socket; true if there are any. */
bool braid_handshakes_poll(uint64_t now);

#endif
