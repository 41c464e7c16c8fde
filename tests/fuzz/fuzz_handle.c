/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_handle.c - 128 bytes that somebody passed to connect().  Input: the handle, and behind it
 * a byte that says whether its check is made right first, so that the fields are reached.
 *
 * What is taken packs to the same bytes again, apart from those that are reserved; what is
 * refused for anything but its versions leaves nothing behind; a dialler's state written into it
 * comes back and changes nothing else.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/proto/handle.h"
#include "tools/handle.h"

enum { STATE = 112, RESERVED = 96 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_taken(const uint8_t *handle, const struct braid_handle *h)
{
	uint8_t again[BRAID_HANDLE_SIZE], changed[BRAID_HANDLE_SIZE];
	struct braid_handle_state st = { .slot = 1, .gen = 2, .nonce = 3 };
	struct braid_handle got;

	braid_handle_pack(h, again);
	assert(memcmp(again, handle, RESERVED) == 0);
	assert(memcmp(again + STATE, handle + STATE, BRAID_HANDLE_SIZE - STATE) == 0);
	assert(h->least <= BRAID_WIRE_MOST && h->most >= BRAID_WIRE_LEAST);

	memcpy(changed, handle, sizeof(changed));
	braid_handle_put_state(changed, &st);
	assert(memcmp(changed, handle, STATE) == 0);
	assert(braid_handle_unpack(changed, &got) == 0);
	assert(got.state.slot == 1 && got.state.gen == 2 && got.state.nonce == 3);
	assert(got.listen_id == h->listen_id && got.port == h->port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t handle[BRAID_HANDLE_SIZE] = { 0 };
	struct braid_handle h, before;
	int err;

	memcpy(handle, data, size < sizeof(handle) ? size : sizeof(handle));
	if (size > sizeof(handle) && data[sizeof(handle)] & 1)
		handle_put_check(handle);
	memset(&h, 0x5a, sizeof(h));
	before = h;
	err = braid_handle_unpack(handle, &h);
	assert(err == 0 || err == -EPROTO || err == -EBADMSG || err == -EPROTONOSUPPORT);
	if (err == -EPROTO || err == -EBADMSG)
		assert(memcmp(&h, &before, sizeof(h)) == 0);
	if (!err)
		check_taken(handle, &h);
	return 0;
}
