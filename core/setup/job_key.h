/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job_key.h - the secret of the job in the handshake of a new link.
 *
 * With a secret, the key of that handshake is a MAC of the token under the secret, so that the
 * token alone opens nothing.  Two ends with different secrets, or of which one has none, tell each
 * other, since each has shown that it knows the token.
 */
#ifndef BRAID_SETUP_JOB_KEY_H
#define BRAID_SETUP_JOB_KEY_H

#include <stdbool.h>

struct braid_conn;

/* Read the secret, if the environment asks for one; once per process.  0 or an error, logged. */
int braid_job_key_load(void);
bool braid_job_key_is_set(void);

/* Dialler: pack and sign M1.  c->key remains the token, until braid_job_key_mix(). */
void braid_job_key_sign(struct braid_conn *c);
/* Turn the token in c->key into the key of a new link's handshake.  Other hellos keep their key. */
void braid_job_key_mix(const struct braid_conn *c);
/*
 * Accepter: is M1's MAC right?  0: c->key is mixed, or c->mine.status is a refusal, because the
 * peer knows the token and not the secret.  -EACCES: a stranger.
 */
int braid_job_key_check(struct braid_conn *c);
/* How the peer's secret differs from ours, as a part of a sentence; NULL: it does not. */
const char *braid_job_key_differs(const struct braid_conn *c);

#endif
