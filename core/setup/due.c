/* SPDX-License-Identifier: BSD-3-Clause */
/* due.c - see due.h. */
#include "core/setup/due.h"

#include "core/base/units.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/setup/links.h"

enum {
	SLOTS = 512, SLOT_MS = 8,	/* the whole wheel is longer than BRAID_DUE_MAX_MS */
	TOGETHER = 16,			/* long rests end at multiples of so many slots */
};

struct braid_list braid_due_busy = { &braid_due_busy, &braid_due_busy };

static struct braid_list slot[SLOTS];
static uint64_t done;			/* the last slot emptied; slots are counted since time 0 */
static unsigned nresting;

void braid_due_reset(void)
{
	braid_list_init(&braid_due_busy);
	for (unsigned i = 0; i < SLOTS; i++)
		braid_list_init(&slot[i]);
	nresting = 0;
}

void braid_due_add(struct braid_link *link)
{
	braid_svc_assert_locked();
	link->tick.rests = false;
	braid_list_add_tail(&braid_due_busy, &link->tick.node);
}

void braid_due_forget(struct braid_link *link)
{
	braid_svc_assert_locked();
	if (!link->tick.node.next)	/* it was never added */
		return;
	nresting -= link->tick.rests;
	braid_list_del(&link->tick.node);
	link->tick.node.next = NULL;
	link->tick.rests = false;
}

void braid_due_now(struct braid_link *link)
{
	braid_svc_assert_locked();
	if (!link->tick.rests)
		return;
	nresting--;
	braid_list_del(&link->tick.node);
	braid_due_add(link);
}

static void empty(struct braid_list *s)
{
	while (!braid_list_empty(s))
		braid_due_now(braid_list_entry(s->next, struct braid_link, tick.node));
}

void braid_due_all(void)
{
	for (unsigned i = 0; nresting && i < SLOTS; i++)
		empty(&slot[i]);
}

void braid_due_rest(struct braid_link *link, unsigned ms)
{
	uint64_t at = done + 1 + (ms < BRAID_DUE_MAX_MS ? ms : BRAID_DUE_MAX_MS) / SLOT_MS;

	braid_svc_assert_locked();
	if (link->tick.rests)
		return;
	if (ms >= 2 * TOGETHER * SLOT_MS)
		at = (at + TOGETHER - 1) / TOGETHER * TOGETHER;
	braid_list_del(&link->tick.node);
	braid_list_add_tail(&slot[at % SLOTS], &link->tick.node);
	link->tick.rests = true;
	nresting++;
}

void braid_due_tick(uint64_t now)
{
	uint64_t upto = now / (SLOT_MS * MS);
	struct braid_link *link;

	braid_svc_assert_locked();
	while ((link = braid_link_woken()))
		braid_due_now(link);
	if (!nresting || upto - done >= SLOTS) {
		braid_due_all();
		done = upto;
	}
	while (done < upto)
		empty(&slot[++done % SLOTS]);
}

int braid_due_wait(uint64_t now)
{
	uint64_t at = done + 1;

	braid_svc_assert_locked();
	if (!nresting)
		return -1;
	while (at < done + SLOTS - 1 && braid_list_empty(&slot[at % SLOTS]))
		at++;
	at *= SLOT_MS * MS;
	return at > now ? (int)((at - now + MS - 1) / MS) : 0;
}
