/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_copy.c - what copy.h promises: exact bytes, in address order, aligned 8-byte words whole.
 *
 * The order is watched from outside: a child copies while its parent lets it take one machine
 * instruction at a time, and looks at the destination after each.  Whatever a GPU could see, it
 * sees.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/copy.h"

enum { ROOM = 448, SMALL = 40, GUARD = 16, UNTOUCHED = 0xee };

/* The same address in parent and child. */
static _Alignas(BRAID_LINE) uint64_t dst_words[(ROOM + 2 * GUARD) / 8];
static uint64_t src_words[(ROOM + 2 * GUARD) / 8];

static uint8_t source(size_t i)
{
	return (uint8_t)(i % 197 + 1);		/* never UNTOUCHED */
}

static void fill(void)
{
	memset(dst_words, UNTOUCHED, sizeof(dst_words));
	for (size_t i = 0; i < sizeof(src_words); i++)
		((uint8_t *)src_words)[i] = source(i);
}

static void every_byte_arrives_and_no_other_is_touched(void **state)
{
	const uint8_t *src = (uint8_t *)src_words, *dst = (uint8_t *)dst_words;

	(void)state;
	for (size_t to = 0; to < 8; to++) {
		for (size_t from = 0; from < 8; from++) {
			for (size_t n = 0; n <= ROOM - 8; n += n < SMALL ? 1 : 13) {
				fill();
				braid_copy_up((uint8_t *)dst_words + GUARD + to, src + from, n);
				for (size_t i = 0; i < sizeof(dst_words); i++) {
					bool in = i >= GUARD + to && i < GUARD + to + n;

					assert_int_equal(dst[i], in ? src[from + i - GUARD - to] :
									  UNTOUCHED);
				}
			}
		}
	}
}

static void a_long_copy_is_exact(void **state)
{
	size_t n = 300001;
	uint8_t *src = malloc(n + 8), *dst = malloc(n + 8);

	(void)state;
	for (size_t i = 0; i < n + 8; i++)
		src[i] = (uint8_t)(i ^ i >> 8);
	braid_copy_up(NULL, NULL, 0);
	for (size_t off = 0; off < 8; off += 3) {
		braid_copy_up(dst + off, src + 8 - off, n);
		assert_memory_equal(dst + off, src + 8 - off, n);
	}
	free(src);
	free(dst);
}

/* --- one instruction at a time ------------------------------------------------------------- */

/* The child: stop, copy, stop. */
_Noreturn static void copier(size_t to, size_t from, size_t n)
{
	uint8_t *dst = (uint8_t *)dst_words + GUARD + to;
	const uint8_t *src = (uint8_t *)src_words + from;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(77);
	raise(SIGSTOP);
	braid_copy_up(dst, src, n);
	raise(SIGSTOP);
	_exit(0);
}

static bool look(pid_t pid, uint64_t *ret)
{
	for (size_t i = 0; i < sizeof(dst_words) / 8; i++) {
		errno = 0;
		ret[i] = (uint64_t)ptrace(PTRACE_PEEKDATA, pid, &dst_words[i], NULL);
		if (errno)
			return false;
	}
	return true;
}

/* Is a first part copied, the rest untouched, and no aligned word half written? */
static const char *judge(const uint64_t *words, size_t to, size_t from, size_t n, size_t *seen)
{
	const uint8_t *b = (const uint8_t *)words + GUARD + to;
	size_t done = 0, off;

	while (done < n && b[done] == source(from + done))
		done++;
	for (size_t i = done; i < n; i++) {
		if (b[i] != UNTOUCHED)
			return "a byte came before one with a lower address";
	}
	if (done < *seen)
		return "a byte went away again";
	*seen = done;
	off = (to + done) % 8;
	/* Stopped inside an aligned word: fine only if the copy does not cover all of it. */
	if (done < n && off && done >= off && n - done >= 8 - off)
		return "an aligned word was half written";
	return NULL;
}

/* NULL, or what was seen; "skip" if nobody may trace here. */
static const char *watch(size_t to, size_t from, size_t n)
{
	uint64_t words[sizeof(dst_words) / 8];
	const char *why = NULL;
	size_t seen = 0;
	int status;
	pid_t pid;

	fill();
	pid = fork();
	if (!pid)
		copier(to, from, n);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return "fork";
	if (!WIFSTOPPED(status))
		return "skip";
	while (!why) {
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid) {
			why = "skip";
			break;
		}
		if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
			break;
		why = look(pid, words) ? judge(words, to, from, n, &seen) : "skip";
		if (seen == n && n)
			break;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (!why && seen != n)
		why = "the copy ended early";
	return why;
}

static void bytes_appear_in_address_order_and_aligned_words_whole(void **state)
{
	static const size_t sizes[] = { 1, 7, 8, 9, 16, 23, 27, 2 * BRAID_LINE + 123 };

	(void)state;
	for (size_t to = 0; to < 8; to++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size_t from = (to * 3 + i) % 8;
			const char *why = watch(to, from, sizes[i]);

			if (why && strcmp(why, "skip") == 0) {
				print_message("skip: ptrace does not work here\n");
				skip();
			}
			if (why)
				fail_msg("%s: to %zu, from %zu, %zu bytes", why, to, from,
					 sizes[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_arrives_and_no_other_is_touched),
		cmocka_unit_test(a_long_copy_is_exact),
		cmocka_unit_test(bytes_appear_in_address_order_and_aligned_words_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
