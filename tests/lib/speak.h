/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * speak.h - a peer made by hand: it speaks Braid's handshake and frames over a plain blocking
 * socket, correctly or with the mistakes that a test wants.
 *
 * It packs and signs with core/proto/, so that nothing is wrong but what the test means to be
 * wrong.  Nothing here fails a test: calls return whether they succeeded, and none waits longer
 * than SPEAK_WAIT_S.
 */
#ifndef BRAID_TESTS_LIB_SPEAK_H
#define BRAID_TESTS_LIB_SPEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/proto/auth.h"
#include "core/proto/frame.h"
#include "core/proto/handle.h"
#include "core/proto/hello.h"

enum { SPEAK_WAIT_S = 5 };

/* How far a handshake has come, seen from the dialler. */
enum speak_step {
	SPEAK_CONNECTED,
	SPEAK_HALF_HELLO,
	SPEAK_HELLO,			/* sent */
	SPEAK_ANSWER,			/* read, and its signature is right */
	SPEAK_HALF_PROOF,
	SPEAK_PROOF,			/* sent: the link is up */
	SPEAK_STEPS,
};

struct speaker {
	int fd;
	enum speak_step step;
	uint8_t key[BRAID_KEY_SIZE];	/* the listen's token, or the link's session */
	uint8_t secret[BRAID_KEY_SIZE];	/* of the public key in mine.nonce */
	uint8_t made[BRAID_KEY_SIZE];	/* by both ends' exchange */
	uint8_t job[BRAID_KEY_SIZE];	/* of the secret of its job */
	bool has_job;
	struct braid_hello mine, theirs;
	uint8_t m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE], proof[BRAID_PROOF_SIZE];
	uint8_t session[BRAID_KEY_SIZE];
	uint32_t sent, got;		/* frames */
};

/* -- sockets on 127.0.0.1 ----------------------------------------------------------------- */

int speak_listen(uint16_t *ret_port);		/* a descriptor or -1, as with those below */
int speak_connect(uint16_t port);
int speak_accept(int listener);
bool speak_write(int fd, const void *data, size_t len);
bool speak_read(int fd, void *data, size_t len);
bool speak_closed(int fd, unsigned ms);		/* the other end closed it; drops what it sent */
void speak_reset(int fd);			/* closes with a RST, as a killed process may */

/* -- handshakes --------------------------------------------------------------------------- */

/* Fills s->mine as an honest dialler of that listen would, of a process not met before. */
void speaker_init(struct speaker *s, const struct braid_handle *to);
void speaker_draw(struct speaker *s);		/* a new secret, and its public key */
void speaker_secret(struct speaker *s, const char *text);	/* the secret of its job */
void speak_sign(struct speaker *s);		/* packs s->mine to s->m1, under s->key */
/* Makes s->key of what an attacker has who knows the token and has read the handshake m1, m2. */
enum { SPEAK_GUESSES = 3 };
void speaker_guess(struct speaker *s, unsigned guess, const struct braid_handle *to,
		   const uint8_t *m1, const uint8_t *m2);
/* Dial; handshake up to that step.  Calls speak_sign(), unless `signed_` says it was called. */
bool speak_dial(struct speaker *s, const struct braid_handle *to);
bool speak_until(struct speaker *s, enum speak_step step, bool signed_);
/* The other end: read M1 as s->m1, answer with s->mine and that status, read the proof. */
bool speak_hear(struct speaker *s);
bool speak_answer(struct speaker *s, uint8_t status);
bool speak_believe(struct speaker *s);
/* Fills s for one more lane of a link that is up; `of` is the link's first lane. */
void speaker_lane(struct speaker *s, const struct speaker *of, unsigned index);

/* -- frames ------------------------------------------------------------------------------- */

/* Fills in numbers and acknowledgement.  Sends len bytes of payload, whatever h->len is. */
void speak_pack(struct speaker *s, const struct braid_hdr *h, uint8_t *to);
bool speak_frame(struct speaker *s, const struct braid_hdr *h, const void *payload, size_t len);
/* The next frame that is no acknowledgement; up to room bytes of payload, the rest is dropped. */
bool speak_hear_frame(struct speaker *s, struct braid_hdr *ret, void *payload, size_t room);
/* Opens a comm with proof that we know that listen's token.  True: the peer has taken it. */
bool speak_open(struct speaker *s, const struct braid_handle *to, uint32_t comm);
/* Answers an OPEN of the peer's, with proof that we know the token. */
bool speak_opened(struct speaker *s, const struct braid_handle *to, uint32_t comm);

#endif
