/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * key.h - only a client that proves a listener's key may use the listener.
 *
 * The listener speaks first.  With K the key, and both nonces fresh:
 *
 *	listener	magic, nonce L
 *	dialler		magic, nonce D, MAC(K, "dial" | L | D)
 *	listener	magic, status, MAC(K, "serve" | L | D | status)
 *
 * The key itself never crosses the network, and a recorded exchange proves nothing later.
 */
#ifndef BRAID_TOOLS_PERF_KEY_H
#define BRAID_TOOLS_PERF_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { PERF_KEY = 32, PERF_KEY_TEXT = 33 };

#define PERF_KEY_HELP "the key's first line is in there, -: standard input; else in BRAID_PERF_KEY"

struct perf_key {
	uint8_t bytes[PERF_KEY];
	bool set;
};

/*
 * Read a key: the first line of the file ("-": standard input; NULL: none), else BRAID_PERF_KEY,
 * which is removed from the environment.  0, also without a key; 2 after a line that says why.
 */
int perf_key_read(const char *prog, const char *file, struct perf_key *ret);
/* The same for --connect, which needs a key; `at` is the listener's address. */
int perf_key_need(const char *prog, const char *file, const char *at, struct perf_key *ret);
/* For --listen: makes a key if none was given, and returns its `text`; else NULL. */
const char *perf_key_made(struct perf_key *key, char text[PERF_KEY_TEXT]);
/* A new random key, and its text for the user. */
void perf_key_new(struct perf_key *ret, char text[PERF_KEY_TEXT]);
void perf_key_of(struct perf_key *ret, const char *text);

/* MAC of two parts under a key. */
void perf_mac(const uint8_t *key, const char *label, const void *a, size_t a_len, const void *b,
	      size_t b_len, uint8_t ret[PERF_KEY]);
bool perf_mac_equal(const uint8_t *a, const uint8_t *b);

/*
 * The dialler's part.  0; -EACCES: the keys differ; -EBUSY: too many sessions; -EPROTO: the other
 * end is no listener of braid; -EPIPE, -ETIMEDOUT or another -errno.  perf_prove_why() puts it in
 * a sentence.
 */
int perf_prove(int fd, const struct perf_key *key, int timeout_ms);
const char *perf_prove_why(int err);

/* -- the listener's part (gate.c) --------------------------------------------------------- */

struct perf_gate;
struct perf_gate *perf_gate_new(int listen_fd, const struct perf_key *key);
/* The socket of a client that proves the key within timeout_ms, or -1; busy: refuse it. */
int perf_gate_next(struct perf_gate *g, bool busy, int timeout_ms);
void perf_gate_free(struct perf_gate *g);	/* closes its sockets; also in a child */

#endif
