/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * secret.c - see secret.h.
 *
 * A free place holds the address of the next free one.  The pages go back to the kernel when no key
 * is left, so that a plugin that is unloaded leaves nothing behind.
 */
#include "core/base/secret.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/os.h"

enum { PAGES_MAX = 1024 };		/* for 131,072 keys at least */

struct place {
	struct place *next;
};

static struct braid_lock lock;		/* guards the rest, except in a forked child */
static _Atomic(uint8_t *) pages[PAGES_MAX];
static atomic_uint npages;
static struct place *unused;
static unsigned used;

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static bool add_page(void)
{
	size_t size = page_size();
	unsigned n = atomic_load(&npages);
	uint8_t *page;

	if (n == PAGES_MAX)
		return false;
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return false;
	/* Keys are as good without these: an old kernel or a low limit refuses some. */
	(void)madvise(page, size, MADV_DONTDUMP);
	(void)madvise(page, size, MADV_WIPEONFORK);
	(void)mlock(page, size);
	for (size_t at = size; at > 0; ) {	/* taken in the order of their addresses */
		struct place *p;

		at -= BRAID_SECRET_SIZE;
		p = (struct place *)(void *)(page + at);
		p->next = unused;
		unused = p;
	}
	atomic_store(&pages[n], page);
	atomic_store(&npages, n + 1);
	return true;
}

/* A process that forks meanwhile has only zeros to lose. */
static void remove_pages(void)
{
	unsigned n = atomic_exchange(&npages, 0);

	unused = NULL;
	for (unsigned i = 0; i < n; i++)
		munmap(atomic_load(&pages[i]), page_size());
}

uint8_t *braid_secret_new(void)
{
	struct place *p = NULL;

	braid_lock_wait(&lock);
	if (unused || add_page()) {
		p = unused;
		unused = p->next;
		used++;
		memset(p, 0, BRAID_SECRET_SIZE);
	}
	braid_unlock(&lock);
	return (uint8_t *)p;
}

void braid_secret_free(uint8_t *key)
{
	struct place *p = (struct place *)(void *)key;

	if (!key)
		return;
	explicit_bzero(key, BRAID_SECRET_SIZE);
	braid_lock_wait(&lock);
	p->next = unused;
	unused = p;
	if (!--used)
		remove_pages();
	braid_unlock(&lock);
}

void braid_secrets_wipe(void)
{
	unsigned n = atomic_load(&npages);

	for (unsigned i = 0; i < n; i++)
		explicit_bzero(atomic_load(&pages[i]), page_size());
}
