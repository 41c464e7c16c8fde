/* SPDX-License-Identifier: BSD-3-Clause */
/* job_key.c - see job_key.h. */
#include "core/setup/job_key.h"

#include <errno.h>
#include <string.h>

#include "core/base/job_secret.h"
#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/secret.h"
#include "core/proto/auth.h"
#include "core/setup/conn.h"

static uint8_t *secret;			/* made of the text, core/base/secret.h; NULL: none */

/* The text itself is not kept. */
static int load(void)
{
	struct braid_job_secret s;
	char why[BRAID_JOB_SECRET_WHY];
	int rc = braid_job_secret_read(&s, why);

	if (rc < 0)
		braid_error(rc, "the secret of this job can't be used: %s [bad-secret]", why);
	if (rc > 0) {
		secret = braid_secret_new();
		if (secret)
			braid_auth_job(s.text, s.len, secret);
		else
			rc = braid_no_memory("the secret of this job");
	}
	braid_auth_wipe(&s, sizeof(s));
	if (rc >= 0)
		braid_info("secret: %s", !rc ? "none" : !braid_param.secret_file[0] ?
			   "from BRAID_SECRET" : braid_param.secret_file);
	return rc < 0 ? rc : 0;
}

int braid_job_key_load(void)
{
	static bool done;
	static int result;

	if (!done)
		result = load();
	done = true;
	return result;
}

bool braid_job_key_is_set(void)
{
	return secret;
}

static bool is_for_link(const struct braid_conn *c)
{
	return (c->dialler ? c->mine.kind : c->theirs.kind) == BRAID_HELLO_LINK;
}

void braid_job_key_mix(const struct braid_conn *c)
{
	if (secret && is_for_link(c))
		braid_auth_mix(secret, c->key);
}

void braid_job_key_sign(struct braid_conn *c)
{
	uint8_t token[BRAID_KEY_SIZE];

	memcpy(token, c->key, sizeof(token));
	if (secret && is_for_link(c)) {
		c->mine.options |= BRAID_OPTION_SECRET;
		braid_hello_pack(&c->mine, c->m1);
		c->mine.hint = braid_auth_hint(token, c->m1);
	}
	braid_hello_pack(&c->mine, c->m1);
	braid_job_key_mix(c);
	braid_auth_hello(c->key, c->m1, c->mine.mac);
	braid_hello_pack(&c->mine, c->m1);
	memcpy(c->key, token, sizeof(token));
	braid_auth_wipe(token, sizeof(token));
}

/* M1's MAC is not right under our key: has its sender the token all the same? */
static bool knows_token(const struct braid_conn *c, const uint8_t *token)
{
	uint8_t mac[BRAID_MAC_SIZE];

	if (c->theirs.options & BRAID_OPTION_SECRET)
		return c->theirs.hint == braid_auth_hint(token, c->m1);
	braid_auth_hello(token, c->m1, mac);
	return braid_auth_equal(mac, c->theirs.mac);
}

/* A refusal tells a holder of the token whether we have a secret, and nothing else of us. */
static void refuse(struct braid_conn *c)
{
	/* Builds of wire version 1 do not know that status. */
	c->mine.status = c->theirs.most < 2 ? BRAID_HELLO_NO_ROOM : BRAID_HELLO_SECRET;
	c->mine.options = secret ? BRAID_OPTION_SECRET : 0;
	c->mine.ciphers = 0;
	c->mine.port = 0;
	memset(c->mine.more, 0, sizeof(c->mine.more));
	memset(c->mine.transports, 0, sizeof(c->mine.transports));
}

int braid_job_key_check(struct braid_conn *c)
{
	uint8_t token[BRAID_KEY_SIZE], mac[BRAID_MAC_SIZE];
	int err = 0;

	memcpy(token, c->key, sizeof(token));
	braid_job_key_mix(c);
	braid_auth_hello(c->key, c->m1, mac);
	if (!braid_auth_equal(mac, c->theirs.mac)) {
		if (is_for_link(c) && knows_token(c, token)) {
			memcpy(c->key, token, sizeof(token));
			refuse(c);
		} else {
			err = -EACCES;
		}
	}
	braid_auth_wipe(token, sizeof(token));
	return err;
}

const char *braid_job_key_differs(const struct braid_conn *c)
{
	uint8_t status = c->dialler ? c->theirs.status : c->mine.status;

	if (status != BRAID_HELLO_SECRET &&
	    (c->dialler || c->known || status != BRAID_HELLO_NO_ROOM))
		return NULL;
	if (!(c->theirs.options & BRAID_OPTION_SECRET))
		return "has no secret of the job, and this process has one";
	return secret ? "has another secret of the job than this process" :
			"has a secret of the job, and this process has none";
}
