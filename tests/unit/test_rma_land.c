/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rma_land.c - puts into memory of a GPU: signals wait until the GPU has the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fakegpu.h"

enum { SIZE = 64 * K, D = BRAID_RMA_DATA, BU = BRAID_RMA_BULK, S = BRAID_RMA_SIGNAL,
       O = BRAID_RMA_ORDERED };

static struct win *mem, *words;		/* windows 0, of a GPU, and 1 */
static char bytes[SIZE];
static unsigned no_memory;		/* callocs that fail */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory && no_memory-- ? NULL : __real_calloc(n, size);
}

static int setup_windows(void **state)
{
	setup_gpu(state);
	mem = win_gpu(SIZE, false);
	words = win_here(64);
	return 0;
}

#define LAND(f) cmocka_unit_test_setup_teardown(f, setup_windows, teardown_gpu)

static int put(unsigned what, const char *text)
{
	return forge_op((struct braid_rma_hdr){
		.what = (uint8_t)(D | what), .offset = 5, .size = strlen(text), .signal_window = 1,
		.value = 1 }, text);
}

static int signal_of(unsigned what, uint8_t context, unsigned i)
{
	return forge_op((struct braid_rma_hdr){
		.what = (uint8_t)(S | what), .context = context, .signal_window = 1,
		.signal_offset = 8 * i, .value = 1 }, NULL);
}

static void move(void)
{
	braid_link_progress(pair.end[B], NULL, NULL);
}

static void a_weak_signal_waits_for_the_bytes_of_its_put(void **state)
{
	char text[] = "hello";

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(put(S, text), 0);
	memset(text, 0, sizeof(text));
	move();
	assert_int_equal(word_at(words, 0), 0);
	assert_int_equal(mem->bytes[5], 0);
	gpu.answer = 0;
	move();
	assert_memory_equal(mem->bytes + 5, "hello", 6);
	assert_int_equal(word_at(words, 0), 1);
	move();
	assert_int_equal(word_at(words, 0), 1);		/* once */
	assert_int_equal(gpu.written, 1);
}

static void a_strong_signal_waits_for_all_bytes_of_its_context(void **state)
{
	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(put(0, "one"), 0);
	assert_int_equal(signal_of(O, 0, 0), 0);
	assert_int_equal(put(O | S, "two"), 0);		/* of the next epoch; word 0, too */
	assert_int_equal(signal_of(O, 1, 1), 0);	/* another context */
	assert_int_equal(signal_of(0, 0, 2), 0);	/* a weak one waits for nothing */
	move();
	assert_int_equal(word_at(words, 0), 0);
	assert_int_equal(word_at(words, 8), 1);
	assert_int_equal(word_at(words, 16), 1);
	gpu.answer = 0;
	move();
	assert_int_equal(word_at(words, 0), 2);
	assert_memory_equal(mem->bytes + 5, "two", 3);
}

static void a_landing_is_moved_by_the_service_thread_too(void **state)
{
	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(put(S, "x"), 0);
	assert_false(braid_list_empty(&cr->deliver_node));
	gpu.answer = 0;
	braid_link_move(pair.end[B]);
	assert_int_equal(word_at(words, 0), 1);
	assert_true(braid_list_empty(&cr->deliver_node));
}

static int bulk(uint32_t size)
{
	return forge_op((struct braid_rma_hdr){ .what = BU | S | O, .size = size, .signal_window = 1,
						.value = 1 }, NULL);
}

static void a_chunk_from_a_socket_is_copied_through_the_host(void **state)
{
	(void)state;
	memset(bytes, 9, sizeof(bytes));
	assert_int_equal(bulk(100), 0);
	assert_true(cb->spread);
	gpu.slow = 3;
	assert_int_equal(forge_chunk(1, 0, 20, 100, 0, 0, bytes), -EAGAIN);
	null_of(pair.end[B]->lane[1])->err = 0;
	assert_int_equal(word_at(words, 0), 0);
	for (int i = 0; i < 5 && !word_at(words, 0); i++) {
		null_deliver_some(&pair, A, 1, 0);
		size_t done;

		braid_lock_wait(&pair.end[B]->lock);
		braid_rx_bytes(pair.end[B]->lane[1], NULL, 0, &done);
		braid_unlock(&pair.end[B]->lock);
	}
	assert_int_equal(word_at(words, 0), 1);
	assert_memory_equal(mem->bytes + 20, bytes, 100);
	assert_int_equal(mem->bytes[120], 0);
	assert_false(cb->spread);
	assert_int_equal(gpu.flushes, 0);
}

/* The signal's writer is the CPU: it must not pass what the NIC has written. */
static void a_chunk_that_a_nic_wrote_is_flushed_before_its_signal(void **state)
{
	(void)state;
	pair.end[B]->lane[1]->gpu = true;
	memset(bytes, 9, sizeof(bytes));
	assert_int_equal(bulk(100), 0);
	gpu.flush_answer = -EAGAIN;
	assert_int_equal(forge_chunk(1, 0, 20, 100, 0, 0, bytes), 0);
	move();
	assert_int_equal(word_at(words, 0), 0);
	gpu.flush_answer = 0;
	move();
	assert_int_equal(word_at(words, 0), 1);
	assert_int_equal(gpu.flushes, 1);
	assert_int_equal(cb->due, 0);
	assert_false(cb->spread);		/* no chunk is awaited on other lanes any more */
}

static void a_copy_that_fails_fails_the_channel(void **state)
{
	(void)state;
	gpu.answer = -EIO;
	assert_int_equal(put(S, "x"), 0);
	assert_int_equal(put(S, "y"), 0);
	move();
	assert_int_equal(word_at(words, 0), 0);
	assert_int_equal(atomic_load(&cr->err), -EIO);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[gpu-copy-failed]"));
	assert_true(braid_list_empty(&cb->landings));
	null_settle(&pair);
	assert_int_equal(atomic_load(&cs->err), -EREMOTEIO);
}

static void a_flush_that_fails_fails_the_channel(void **state)
{
	(void)state;
	pair.end[B]->lane[1]->gpu = true;
	assert_int_equal(bulk(100), 0);
	gpu.flush_answer = -EIO;
	assert_int_equal(forge_chunk(1, 0, 20, 100, 0, 0, bytes), 0);
	move();
	assert_int_equal(word_at(words, 0), 0);
	assert_int_equal(atomic_load(&cr->err), -EIO);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[flush-failed]"));
	null_settle(&pair);
	assert_int_equal(atomic_load(&cs->err), -EREMOTEIO);
}

static void a_window_closed_under_landings_is_written_no_more(void **state)
{
	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(put(S, "one"), 0);
	assert_int_equal(put(S | O, "two"), 0);
	move();
	assert_int_equal(gpu.begun, 2);
	win_close(mem);
	assert_int_equal(gpu.ended, 2);
	assert_int_equal(word_at(words, 0), 2);		/* their signals are not lost */
	assert_true(braid_list_empty(&cb->landings));
	gpu.answer = 0;
	move();
	assert_int_equal(gpu.written, 0);
	assert_int_equal(signal_of(O, 0, 1), 0);	/* the epochs have ended */
	assert_int_equal(word_at(words, 8), 1);
	assert_int_equal(atomic_load(&cr->err), 0);
}

static void a_channel_closed_under_landings_moves_them_no_more(void **state)
{
	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(put(S, "one"), 0);
	move();
	braid_comm_close(cr);
	assert_int_equal(gpu.ended, 1);
	gpu.answer = 0;
	for (int i = 0; i < 3; i++)
		move();
	null_settle(&pair);
	assert_int_equal(gpu.written, 0);
	assert_int_equal(word_at(words, 0), 0);
	assert_int_equal(atomic_load(braid_link_copies(pair.end[B])), 0);
}

/* A frame that is here whole: false, and it is applied from the start later. */
static bool fast(struct braid_rma_hdr op)
{
	char payload[BRAID_RMA_HDR_SIZE + 3] = { 0 };
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .seq = cb->next_seq, .len = BRAID_RMA_HDR_SIZE + (uint32_t)op.size,
	};
	bool ret;

	braid_rma_pack(&op, payload);
	braid_lock_wait(&pair.end[B]->lock);
	ret = cr->kind->rx_fast(cr, &h, payload);
	braid_unlock(&pair.end[B]->lock);
	return ret;
}

static void without_memory_for_a_landing_its_bytes_are_not_awaited(void **state)
{
	const struct braid_rma_hdr three = { .what = D, .size = 3 };

	(void)state;
	gpu.answer = -EAGAIN;
	assert_true(fast(three));		/* so that there is an epoch */
	no_memory = 1;
	assert_false(fast(three));
	assert_int_equal(no_memory, 0);
	assert_true(fast(three));
	gpu.answer = 0;
	move();
	assert_int_equal(gpu.written, 2);
	assert_int_equal(signal_of(O, 0, 0), 0);
	assert_int_equal(word_at(words, 0), 1);
}

/* A signal to a word of the GPU's needs memory, too. */
static void without_memory_for_a_signal_its_epoch_goes_on(void **state)
{
	const struct braid_rma_hdr s = { .what = S | O, .value = 1 };

	(void)state;
	assert_true(fast(s));
	no_memory = 1;
	assert_false(fast(s));
	assert_int_equal(no_memory, 0);
	assert_true(fast(s));
	assert_int_equal(word_at(mem, 0), 2);
	assert_int_equal(braid_rma_epoch(braid_rma_order_of(cb, 0)), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LAND(a_weak_signal_waits_for_the_bytes_of_its_put),
		LAND(a_strong_signal_waits_for_all_bytes_of_its_context),
		LAND(a_landing_is_moved_by_the_service_thread_too),
		LAND(a_chunk_from_a_socket_is_copied_through_the_host),
		LAND(a_chunk_that_a_nic_wrote_is_flushed_before_its_signal),
		LAND(a_copy_that_fails_fails_the_channel),
		LAND(a_flush_that_fails_fails_the_channel),
		LAND(a_window_closed_under_landings_is_written_no_more),
		LAND(a_channel_closed_under_landings_moves_them_no_more),
		LAND(without_memory_for_a_landing_its_bytes_are_not_awaited),
		LAND(without_memory_for_a_signal_its_epoch_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
