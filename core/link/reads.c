/* SPDX-License-Identifier: BSD-3-Clause */
/* reads.c - see reads.h. */
#include "core/link/reads.h"

#include <stdatomic.h>

#include "core/link/lane_io.h"
#include "core/link/link.h"

static atomic_bool allowed;

void braid_reads_allow(void)
{
	atomic_store(&allowed, true);
}

bool braid_reads_allowed(void)
{
	return atomic_load(&allowed);
}

void braid_reads_offer(struct braid_lane *lane, unsigned most, uint32_t len)
{
	lane->reads.max = most;
	lane->reads.len_max = len;
}

bool braid_lane_can_read(const struct braid_lane *lane, const struct braid_xfer *x)
{
	return lane->reads.max && !lane->link->checksums && x->mr && x->mr->key[lane->member].mr &&
	       !x->mr->key[lane->member].sealed && lane->peer_member < x->to.nkeys &&
	       (int32_t)(x->to.rkey_epoch - lane->peer_rkey_epoch) >= 0;
}

static bool has_room(const struct braid_lane_reads *r, uint64_t flight_max)
{
	return r->begun - r->over < r->max && (!flight_max || r->bytes < flight_max);
}

uint32_t braid_lane_read(struct braid_lane *lane, struct braid_xfer *x, char *to, uint64_t offset,
			 uint32_t len)
{
	struct braid_lane_reads *r = &lane->reads;
	struct braid_read read = {
		.to = to, .local = x->mr->key[lane->member].local, .from = x->to.addr + offset,
		.remote = x->to.key[lane->peer_member], .len = len < r->len_max ? len : r->len_max,
	};

	braid_assert_locked(&lane->link->lock);
	if (!braid_lane_up(lane) || !has_room(r, lane->flight_max) || lane->tr->read(lane, &read))
		return 0;
	r->of[r->begun++ % BRAID_READS_MAX] = (struct braid_lane_one_read){ x, read.len, read.id };
	r->bytes += read.len;
	return read.len;
}

static void over(struct braid_lane *lane, bool read)
{
	struct braid_lane_reads *r = &lane->reads;
	struct braid_lane_one_read *one = &r->of[r->over++ % BRAID_READS_MAX];

	r->bytes -= one->len;
	if (one->x)
		one->x->ops->read_over(one->x, one->len, read);
}

void braid_reads_over(struct braid_lane *lane, uint32_t id)
{
	const struct braid_lane_reads *r = &lane->reads;

	braid_assert_locked(&lane->link->lock);
	while (r->over != r->begun && (int32_t)(id - r->of[r->over % BRAID_READS_MAX].id) >= 0)
		over(lane, true);
}

void braid_lane_reads_lost(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	while (lane->reads.over != lane->reads.begun)
		over(lane, false);
}

bool braid_lane_is_reading(const struct braid_lane *lane, uint32_t comm)
{
	const struct braid_lane_reads *r = &lane->reads;

	for (uint32_t i = r->over; i != r->begun; i++) {
		const struct braid_xfer *x = r->of[i % BRAID_READS_MAX].x;

		if (x && x->comm == comm)
			return true;
	}
	return false;
}

void braid_link_forget_reads(struct braid_link *link, uint32_t comm)
{
	braid_assert_locked(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane_reads *r = &link->lane[i]->reads;

		for (uint32_t k = r->over; k != r->begun; k++) {
			struct braid_lane_one_read *one = &r->of[k % BRAID_READS_MAX];

			if (one->x && one->x->comm == comm)
				one->x = NULL;
		}
	}
}
