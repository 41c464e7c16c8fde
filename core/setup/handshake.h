/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handshake.h - the handshakes under way, in both directions.
 *
 * core/setup/conn.c exchanges the messages.  This file watches the sockets, keeps the time limits,
 * and bounds the number of strangers.  A handshake's owner knows its purpose: dial.c for those that
 * we dial, accept.c for those that peers dial.  All calls are made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_HANDSHAKE_H
#define BRAID_SETUP_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/setup/conn.h"

struct braid_link;

extern struct braid_list braid_handshakes;	/* struct braid_conn */

void braid_handshakes_init(void);
bool braid_handshakes_left(void);

/* Watch a connection that is prepared; on failure the connection has been freed. */
int braid_handshake_add(struct braid_conn *c, uint32_t events);
/* Begin and watch a handshake on an accepted socket, which this call owns even if it fails. */
int braid_handshake_accept(int fd, struct braid_dev *dev, const struct braid_conn_owner *owner,
			   const struct sockaddr_storage *from, uint64_t now);
/* The service thread moves a handshake on; nothing happens if it has ended. */
void braid_handshake_event(struct braid_conn *c, uint64_t now);
/*
 * A caller that waits for a handshake, and will call again soon, moves it on, so that no thread has
 * to be woken.  The socket is not watched then, until the service thread looks again and finds that
 * no caller has come since.  What may sleep in the kernel is left to the thread.
 */
void braid_handshake_help(struct braid_conn *c, uint64_t now);
/* The same for peers' that wait for the proof.  Takes braid_svc.lock, or does nothing. */
void braid_handshakes_help(void);
/* Close it.  The service thread may hold an event of it, so its memory is freed later: */
void braid_handshake_end(struct braid_conn *c);
void braid_handshakes_free(void);	/* by the service thread, when it holds no event */

/*
 * Drop one accepted connection: the oldest of those that have not shown the key, or else the
 * oldest.  Each has some time before that; at_once: only those that have shown the key have.
 * False: there is none to drop.
 */
bool braid_handshake_make_room(uint64_t now, bool at_once);
/*
 * May one more be accepted?  Drops one if need be.  False: leave it in the kernel's queue, since
 * those that are here are as likely to be peers.
 */
bool braid_handshake_has_room(uint64_t now);
void braid_handshakes_expire(uint64_t now);
void braid_handshakes_drop(const struct braid_link *link);	/* those of a dead link's lanes */
void braid_handshakes_close(void);
void braid_handshakes_log_strangers(uint64_t now);	/* one line about strangers, now and then */
/* Move handshakes that wait for something other than their socket; true if there are any. */
bool braid_handshakes_poll(uint64_t now);

#endif
