/* SPDX-License-Identifier: BSD-3-Clause */
/* links.c - see links.h. */
#include "core/setup/links.h"

#include <string.h>

#include "core/base/secret.h"
#include "core/base/wakeup.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/setup/due.h"
#include "topo/netdev.h"

enum { BUCKETS = 1024 };

struct braid_svc braid_svc = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct {
	struct braid_lock lock;		/* guards the list of links, their `refs`, and this;
					 * its holder never waits */
	const struct braid_dev *device[BRAID_NETDEVS_MAX];	/* that have had links */
	unsigned ndevices;
	atomic_uint n;			/* of links */
	struct {
		struct braid_link *link;
	} bucket[BUCKETS];		/* links by key, under braid_svc.lock */
	struct braid_link *other;	/* the next of braid_links_turn(); NULL: the first */
} table;

/* Make the owner known to checking builds. */
static bool own(bool mine)
{
#ifdef BRAID_CHECK_LOCKS
	atomic_store(&braid_svc.owned.held, mine);
	braid_lock_owned(&braid_svc.owned, mine);
#endif
	return mine;
}

void braid_svc_lock(void)
{
	pthread_mutex_lock(&braid_svc.lock);
	own(true);
}

bool braid_svc_trylock(void)
{
	return !pthread_mutex_trylock(&braid_svc.lock) && own(true);
}

void braid_svc_unlock(void)
{
	bool wake = braid_svc.wake;

	braid_svc.wake = false;
	own(false);
	pthread_mutex_unlock(&braid_svc.lock);
	if (wake)
		braid_wake_service();
}

void braid_svc_wake(void)
{
	braid_svc_assert_locked();
	braid_svc.wake = true;
}

static bool same_key(const struct braid_link_key *a, const struct braid_link_key *b)
{
	return !memcmp(a->process, b->process, sizeof(a->process)) && a->dev == b->dev &&
	       a->peer_dev == b->peer_dev && a->traffic_class == b->traffic_class &&
	       a->self_accepted == b->self_accepted;
}

static bool serves(const struct braid_link *link, const struct braid_link_key *key)
{
	return same_key(&link->key, key) && atomic_load(&link->state) != BRAID_LINK_DEAD &&
	       !braid_link_peer_gone(link) && !link->setup.distrusted;
}

void braid_links_init(void)
{
	braid_list_init(&braid_svc.links);
	memset(table.bucket, 0, sizeof(table.bucket));
	table.other = NULL;
	table.n = 0;
	braid_due_reset();
}

/* The process's id is random, so it is its own hash. */
static struct braid_link **bucket(const struct braid_link_key *key)
{
	uint32_t hash;

	memcpy(&hash, key->process, sizeof(hash));
	return &table.bucket[hash % BUCKETS].link;
}

static void bucket_del(struct braid_link *link)
{
	struct braid_link **other = bucket(&link->key);

	while (*other && *other != link)
		other = &(*other)->table.other;
	if (*other)
		*other = link->table.other;
}

/* The oldest is found first, as at the peer. */
static void bucket_add(struct braid_link *link)
{
	struct braid_link **other = bucket(&link->key);

	while (*other)
		other = &(*other)->table.other;
	link->table.other = NULL;
	*other = link;
}

struct braid_link *braid_link_find(const struct braid_link_key *key, bool pending)
{
	struct braid_link *link;

	braid_svc_assert_locked();
	for (link = *bucket(key); link; link = link->table.other) {
		bool up = atomic_load(&link->state) == BRAID_LINK_UP;

		if (serves(link, key) && (pending ? !up && !link->dial.alone :
						    up || !link->spare))
			return link;
	}
	return NULL;
}

struct braid_link *braid_link_find_proven(const struct braid_link_key *key)
{
	struct braid_link *link;

	braid_svc_assert_locked();
	for (link = *bucket(key); link; link = link->table.other) {
		if (serves(link, key) && (link->setup.proven || link->dial.alone))
			return link;
	}
	return NULL;
}

void braid_link_number(struct braid_link *link)
{
	static uint32_t last;

	braid_svc_assert_locked();
	link->number = ++last;
}

void braid_link_list(struct braid_link *link)
{
	unsigned i = 0;

	braid_svc_assert_locked();
	braid_lock_wait(&table.lock);
	bucket_add(link);
	braid_list_add_tail(&braid_svc.links, &link->table.node);
	braid_due_add(link);
	table.n++;
	while (i < table.ndevices && table.device[i] != link->key.dev)
		i++;
	if (i == table.ndevices && i < BRAID_NETDEVS_MAX)
		table.device[table.ndevices++] = link->key.dev;
	braid_unlock(&table.lock);
}

/* The link after that one in the table, or NULL. */
static struct braid_link *after(const struct braid_link *link)
{
	struct braid_list *n = link ? link->table.node.next : braid_svc.links.next;

	return n == &braid_svc.links ? NULL : braid_list_entry(n, struct braid_link, table.node);
}

bool braid_link_unlist(struct braid_link *link)
{
	bool free;

	braid_svc_assert_locked();
	braid_lock_wait(&table.lock);
	free = !link->table.refs;
	if (free) {
		if (table.other == link)
			table.other = after(link);
		braid_list_del(&link->table.node);
		bucket_del(link);
		braid_due_forget(link);
		table.n--;
	}
	braid_unlock(&table.lock);
	return free;
}

void braid_link_forget_token(struct braid_link *link)
{
	braid_svc_assert_locked();
	braid_secret_free(link->dial.token);
	link->dial.token = NULL;
}

void braid_link_forget_keys(struct braid_link *link)
{
	braid_link_forget_token(link);
	braid_secret_free(link->setup.session);
	link->setup.session = NULL;
}

unsigned braid_links_devices(const struct braid_dev **ret, unsigned max)
{
	unsigned n;

	braid_lock_wait(&table.lock);
	n = table.ndevices < max ? table.ndevices : max;
	memcpy(ret, table.device, n * sizeof(*ret));
	braid_unlock(&table.lock);
	return n;
}

struct braid_link *braid_links_next(struct braid_link *link)
{
	struct braid_link *other;

	braid_lock_wait(&table.lock);
	other = after(link);
	if (link)
		link->table.refs--;
	if (other)
		other->table.refs++;
	braid_unlock(&table.lock);
	return other;
}

struct braid_link *braid_links_turn(struct braid_link *link)
{
	struct braid_link *other;

	braid_lock_wait(&table.lock);
	other = table.other ? table.other : after(NULL);
	if (link)
		link->table.refs--;
	if (other) {
		other->table.refs++;
		table.other = after(other);
	}
	braid_unlock(&table.lock);
	return other;
}

unsigned braid_links_count(void)
{
	return atomic_load_explicit(&table.n, memory_order_relaxed);
}

void braid_links_leave(struct braid_link *link)
{
	if (!link)
		return;
	braid_lock_wait(&table.lock);
	link->table.refs--;
	braid_unlock(&table.lock);
}
