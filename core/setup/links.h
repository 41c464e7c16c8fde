/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * links.h - the table of all links of this process, and the lock of the set-up.
 *
 * braid_svc.lock guards the table and what the other files of core/setup keep.  Set-up calls and
 * the service thread take it for moments.  Only the service thread frees links, so it may move one
 * without this lock.
 *
 * Locks, outermost first: a braid_coll_peer's, this one, a lane's io lock, a link's lock, that of
 * the listens, a braid_rma's, a mover's.
 */
#ifndef BRAID_SETUP_LINKS_H
#define BRAID_SETUP_LINKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/base/os.h"

struct braid_dev;
struct braid_link;
struct braid_link_key;

struct braid_svc {
	pthread_mutex_t lock;
	struct braid_list links;
	bool wake;			/* see braid_svc_wake() */
#ifdef BRAID_CHECK_LOCKS
	struct braid_lock owned;	/* held while `lock` is, by the same thread */
#endif
};
extern struct braid_svc braid_svc;

void braid_svc_lock(void);
bool braid_svc_trylock(void);
void braid_svc_unlock(void);

/* As braid_assert_locked(): at the head of a function whose callers hold braid_svc.lock. */
#ifdef BRAID_CHECK_LOCKS
#define braid_svc_assert_locked() braid_assert_locked(&braid_svc.owned)
#else
#define braid_svc_assert_locked() ((void)0)
#endif

/* --- with braid_svc.lock held -------------------------------------------------------------- */

/* Wake the service thread once the lock is free; before, it would only wait for the lock. */
void braid_svc_wake(void);

void braid_links_init(void);	/* there are none */
/*
 * The link with that key, up or on its way, or NULL.  `pending`: only one that is not up yet, and
 * whose place a link dialled by the peer may take.
 */
struct braid_link *braid_link_find(const struct braid_link_key *key, bool pending);
/* The same of a link whose peer has shown, or will, that it is the process of the key. */
struct braid_link *braid_link_find_proven(const struct braid_link_key *key);
/* Give a new link its number in this process. */
void braid_link_number(struct braid_link *link);
/* Add a link to the table, or take it out; false: a reader still uses it. */
void braid_link_list(struct braid_link *link);
bool braid_link_unlist(struct braid_link *link);
/* Wipe and free what a link knows: the token by which it was dialled; that and its session key. */
void braid_link_forget_token(struct braid_link *link);
void braid_link_forget_keys(struct braid_link *link);

/* --- without any lock ---------------------------------------------------------------------- */

/*
 * Walk the links: pass NULL to begin; NULL is returned at the end.  The link returned is not freed
 * before it is passed back here or to braid_links_leave().
 */
struct braid_link *braid_links_next(struct braid_link *link);
void braid_links_leave(struct braid_link *link);	/* ends a walk early; NULL: nothing */
/* The same, but it goes on where the last caller stopped, and has no end but an empty table. */
struct braid_link *braid_links_turn(struct braid_link *link);
unsigned braid_links_count(void);
/* The devices that ever had a link, at most `max`; they are never freed. */
unsigned braid_links_devices(const struct braid_dev **ret, unsigned max);

#endif
