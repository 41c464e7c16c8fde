/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.h - shared by the files of the fake driver. */
#ifndef BRAID_TESTS_FAKECUDA_FAKE_H
#define BRAID_TESTS_FAKECUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Not on the heap: LeakSanitizer crashes on it there when a process exits with live threads. */
#define PER_THREAD __thread __attribute__((tls_model("initial-exec")))

enum { CAPTURING = 900, RELAXED = 2 };
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400,
       NOT_READY = 600, NOT_SUPPORTED = 801, UNKNOWN = 999 };

/* Each call is between these two, with a lock held.  The CUresult to fail with, or 0. */
int fake_begin(const char *name);
int fake_end(int code);
/* For the engine, which is not inside a call. */
void fake_lock(void);
void fake_unlock(void);

/* Each checks for one error, unless `code` is one already; returns the new code. */
int fake_context(int code);		/* no context is current */
int fake_capture(int code);		/* a graph is captured, and this thread is not relaxed */
int fake_wait(int code);		/* no check: counts a call that waits for the GPU */

/* The CPU's address of those bytes, and the id of their allocation; NULL: not a GPU's. */
uint8_t *fake_bytes(uint64_t at, size_t size, uint64_t *ret_id);

/* Runs a test's command, if it is one of stream.c's; false: it is not. */
bool stream_command(char **w, unsigned n, long *ret);

#endif
