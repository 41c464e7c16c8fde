/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.h - what the files of the fake driver share. */
#ifndef BRAID_TESTS_FAKECUDA_FAKE_H
#define BRAID_TESTS_FAKECUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Not on the heap, where LeakSanitizer looks for it when a process ends with threads, and falls. */
#define PER_THREAD __thread __attribute__((tls_model("initial-exec")))

enum { CAPTURING = 900, RELAXED = 2 };
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400,
       NOT_READY = 600, NOT_SUPPORTED = 801, UNKNOWN = 999 };

/* Each call is between these two, which hold a lock; the CUresult that it is to fail with, or 0. */
int fake_begin(const char *name);
int fake_end(int code);
/* For the engine, which is no call. */
void fake_lock(void);
void fake_unlock(void);

/* What may go wrong, if `code` says that nothing has yet; the new code. */
int fake_context(int code);		/* none is current */
int fake_capture(int code);		/* a graph is captured, and this is not in the relaxed mode */
int fake_wait(int code);		/* a call that waits for what runs on the GPU: counted if it does */

/* Where those bytes are, and of which allocation; NULL: they are not the GPU's. */
uint8_t *fake_bytes(uint64_t at, size_t size, uint64_t *ret_id);

/* Of fake.c's commands, those of stream.c: false: not among them. */
bool stream_command(char **w, unsigned n, long *ret);

#endif
