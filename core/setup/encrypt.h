/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * encrypt.h - what the two hellos say about encryption, and what follows from that.
 *
 * Each end offers the ciphers that BRAID_ENCRYPT and BRAID_CIPHER let it use.  The accepting end
 * chooses the first that both have, in the order AES-256-GCM, AES-128-GCM, ChaCha20-Poly1305.  The
 * choice is under the MACs of the handshake, so nobody between the ends can change it.
 */
#ifndef BRAID_SETUP_ENCRYPT_H
#define BRAID_SETUP_ENCRYPT_H

#include <stdbool.h>
#include <stddef.h>

struct braid_conn;
struct braid_hello;
struct braid_lane_keys;

/* Once, before the first device: find the ciphers, and log what is used. */
void braid_encrypt_start(void);

/* May a lane that this transport carries be set up, or must it be one that is encrypted? */
bool braid_encrypt_allows(unsigned transport);

/* Fill in the ciphers that this end offers, and whether it refuses a link without. */
void braid_encrypt_offer(struct braid_hello *h);
/*
 * Accepting end, once the peer's hello is known to be genuine: put the choice into c->mine.  If
 * there is none and one end requires one, c->mine gets a status that refuses the peer.
 */
void braid_encrypt_choose(struct braid_conn *c);
/* Dialling end: 0, or -ENOKEY: the peer's answer is not what we require or offered. */
int braid_encrypt_check(const struct braid_conn *c);
/* Why the ends do not agree, for people, after the peer's name: "PEER ...". */
void braid_encrypt_why(const struct braid_conn *c, char *ret, size_t len);

/* The cipher agreed on, "not encrypted" if there is none: for people. */
const char *braid_encrypt_name(const struct braid_conn *c);

/* The keys of a lane that the handshake has agreed to encrypt.  False: it is not encrypted. */
bool braid_encrypt_keys(const struct braid_conn *c, struct braid_lane_keys *ret);

#endif
