/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log.h - write one line to NCCL's logger, or to stderr before there is one.
 *
 * A WARN is what PyTorch prints as "Last error": it names device, peer, cause and remedy in one
 * line of at most BRAID_LOG_MAX bytes (longer ones are cut), and is written once, where the error
 * occurs.  It ends in its id, "[wire-version]", which has a heading in docs/user/messages.md.  All
 * calls keep errno, wait for nothing but the logger, and may be used from any thread.  Nothing is
 * ever written to stdout.
 */
#ifndef BRAID_BASE_LOG_H
#define BRAID_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

enum { BRAID_LOG_MAX = 900 };

enum braid_log_level { BRAID_LOG_WARN, BRAID_LOG_INFO, BRAID_LOG_TRACE };

/* Takes a finished line without a newline. */
typedef void (*braid_log_sink)(enum braid_log_level level, const char *file, int line,
			       const char *text);

/* Where lines go from now on; NULL: stderr, WARN only (INFO too if BRAID_DEBUG=info). */
void braid_log_to(braid_log_sink sink);

/* Whether INFO goes to stderr too. */
void braid_log_info_to_stderr(bool on);

void braid_log(enum braid_log_level level, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* As braid_log(WARN), and returns err (a negative errno): return braid_error(err, "..."); */
int braid_error_at(const char *file, int line, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#define braid_warn(...) braid_log(BRAID_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define braid_info(...) braid_log(BRAID_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define braid_error(err, ...) braid_error_at(__FILE__, __LINE__, err, __VA_ARGS__)
#define braid_no_memory(what) \
	braid_error(-ENOMEM, "out of memory: no room for " what " [no-memory]")
#define braid_no_random(err) \
	braid_error(err, "no random numbers: getrandom() and /dev/urandom are both refused: %s " \
		    "[no-start]", strerror(-(err)))

/* A gate for lines that a stranger or a storm could repeat: true at most once per 10 s. */
struct braid_log_gate {
	_Atomic uint64_t next_ns;
};
bool braid_log_gate_open(struct braid_log_gate *gate, uint64_t now_ns);

#endif
