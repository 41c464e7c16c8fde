/* SPDX-License-Identifier: BSD-3-Clause */
/* key.c - see key.h: where a key comes from, and the dialler's proof. */
#include "tools/perf/key.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/opt.h"
#include "tools/perf/ctl.h"
#include "tools/perf/key_int.h"

enum { TEXT_LEAST = 16, TEXT_MOST = 200 };	/* of a key that a user makes */

static const char env_name[] = "BRAID_PERF_KEY";

_Static_assert(PERF_KEY == crypto_generichash_BYTES, "a MAC is as long as a key");

/* -- keys --------------------------------------------------------------------------------- */

void perf_key_of(struct perf_key *ret, const char *text)
{
	if (sodium_init() < 0)
		abort();
	crypto_generichash(ret->bytes, PERF_KEY, (const uint8_t *)text, strlen(text), NULL, 0);
	ret->set = true;
}

void perf_key_new(struct perf_key *ret, char text[PERF_KEY_TEXT])
{
	uint8_t raw[(PERF_KEY_TEXT - 1) / 2];

	if (sodium_init() < 0)
		abort();
	randombytes_buf(raw, sizeof(raw));
	sodium_bin2hex(text, PERF_KEY_TEXT, raw, sizeof(raw));
	perf_key_of(ret, text);
}

const char *perf_key_made(struct perf_key *key, char text[PERF_KEY_TEXT])
{
	if (key->set)
		return NULL;
	perf_key_new(key, text);
	return text;
}

static int parse_key(const char *prog, const char *from, const char *text, struct perf_key *ret)
{
	size_t n = strlen(text);

	if (n < TEXT_LEAST || n > TEXT_MOST)
		return opt_error(prog, "the key in %s has %s%zu characters, not %d to %d: without "
				 "it --listen makes and prints one, which --connect needs", from,
				 n > TEXT_MOST ? "at least " : "", n, TEXT_LEAST, TEXT_MOST);
	perf_key_of(ret, text);
	return 0;
}

/* Reads single bytes: in a pipe, the data after this line is for another reader. */
static int read_line(FILE *f, char *text, size_t n)
{
	size_t have = 0;
	int c;

	setvbuf(f, NULL, _IONBF, 0);
	while ((c = getc(f)) != EOF && c != '\n' && have < n - 1)
		text[have++] = (char)c;
	while (have && strchr(" \t\r", text[have - 1]))
		have--;
	text[have] = 0;
	return ferror(f) ? -errno : 0;
}

/* A pipe's mode says nothing: no other user reads what a shell makes for <(COMMAND). */
static bool others_may_read(FILE *f, unsigned *ret_mode)
{
	struct stat sb;

	if (fstat(fileno(f), &sb) || !S_ISREG(sb.st_mode))
		return false;
	*ret_mode = sb.st_mode & 07777;
	return sb.st_mode & 077;
}

static int read_key_file(const char *prog, const char *file, struct perf_key *ret)
{
	FILE *f = strcmp(file, "-") ? fopen(file, "re") : stdin;
	char text[TEXT_MOST + 2];
	unsigned mode = 0;
	bool open_to_all = f && f != stdin && others_may_read(f, &mode);
	int rc = f ? read_line(f, text, sizeof(text)) : -errno;

	if (f && f != stdin)
		fclose(f);
	if (open_to_all) {
		sodium_memzero(text, sizeof(text));
		return opt_error(prog, "--key-file %s: its mode is %04o, so that other users may "
				 "have read the key: make another one, in a file of mode 0600 "
				 "[open-key]", file, mode);
	}
	if (rc)
		return opt_error(prog, "--key-file %s: %s", file, strerror(-rc));
	rc = parse_key(prog, file, text, ret);
	sodium_memzero(text, sizeof(text));
	return rc;
}

int perf_key_read(const char *prog, const char *file, struct perf_key *ret)
{
	const char *text = getenv(env_name);
	int rc;

	if (sodium_init() < 0)
		abort();
	ret->set = false;
	if (file)
		rc = read_key_file(prog, file, ret);
	else
		rc = text && *text ? parse_key(prog, env_name, text, ret) : 0;
	unsetenv(env_name);
	return rc;
}

int perf_key_need(const char *prog, const char *file, const char *at, struct perf_key *ret)
{
	int rc = perf_key_read(prog, file, ret);

	if (rc || ret->set)
		return rc;
	return opt_error(prog, "--connect %s needs the key that the listener there has printed: "
			 "%s=KEY %s --connect %s [no-key]", at, env_name, prog, at);
}

void perf_mac(const uint8_t *key, const char *label, const void *a, size_t a_len, const void *b,
	      size_t b_len, uint8_t ret[PERF_KEY])
{
	crypto_generichash_state st;

	crypto_generichash_init(&st, key, PERF_KEY, PERF_KEY);
	crypto_generichash_update(&st, (const uint8_t *)label, strlen(label) + 1);
	crypto_generichash_update(&st, a, a_len);
	crypto_generichash_update(&st, b, b_len);
	crypto_generichash_final(&st, ret, PERF_KEY);
	sodium_memzero(&st, sizeof(st));
}

bool perf_mac_equal(const uint8_t *a, const uint8_t *b)
{
	return sodium_memcmp(a, b, PERF_KEY) == 0;
}

/* -- the exchange ------------------------------------------------------------------------- */

const char gate_magic[GATE_MAGIC] = "braid k1";

void gate_claim_mac(const uint8_t *key, const uint8_t *nonce, const struct gate_claim *c,
		    uint8_t ret[PERF_KEY])
{
	perf_mac(key, "braid perf dial", nonce, GATE_NONCE, c->nonce, GATE_NONCE, ret);
}

void gate_grant_mac(const uint8_t *key, const uint8_t *nonce, const struct gate_claim *c,
		    const struct gate_grant *g, uint8_t ret[PERF_KEY])
{
	uint8_t both[2 * GATE_NONCE];

	memcpy(both, nonce, GATE_NONCE);
	memcpy(both + GATE_NONCE, c->nonce, GATE_NONCE);
	perf_mac(key, "braid perf serve", both, sizeof(both), g->status, sizeof(g->status), ret);
}

static int granted(const struct perf_key *key, const struct gate_greet *greet,
		   const struct gate_claim *claim, const struct gate_grant *grant)
{
	uint8_t mac[PERF_KEY];

	if (memcmp(grant->magic, gate_magic, GATE_MAGIC) != 0)
		return -EPROTO;
	gate_grant_mac(key->bytes, greet->nonce, claim, grant, mac);
	if (!perf_mac_equal(mac, grant->mac))
		return -EACCES;
	return grant->status[0] == GATE_SERVES ? 0 : -EBUSY;
}

int perf_prove(int fd, const struct perf_key *key, int timeout_ms)
{
	struct gate_greet greet;
	struct gate_claim claim;
	struct gate_grant grant;
	int rc;

	rc = perf_ctl_move(fd, (char *)&greet, sizeof(greet), false, timeout_ms);
	if (!rc && memcmp(greet.magic, gate_magic, GATE_MAGIC) != 0)
		rc = -EPROTO;
	if (rc)
		return rc;
	memcpy(claim.magic, gate_magic, GATE_MAGIC);
	randombytes_buf(claim.nonce, sizeof(claim.nonce));
	gate_claim_mac(key->bytes, greet.nonce, &claim, claim.mac);
	rc = perf_ctl_move(fd, (char *)&claim, sizeof(claim), true, timeout_ms);
	if (!rc)
		rc = perf_ctl_move(fd, (char *)&grant, sizeof(grant), false, timeout_ms);
	return rc ? rc : granted(key, &greet, &claim, &grant);
}

const char *perf_prove_why(int err)
{
	switch (err) {
	case -EACCES:
		return "its key is another one: BRAID_PERF_KEY or --key-file here must give the "
		       "key that it has printed";
	case -EBUSY:
		return "it serves as many sessions as it can";
	case -EPROTO:
	case -EPIPE:
	case -ETIMEDOUT:
		return "it does not answer as a listener of this version of braid does";
	default:
		return strerror(-err);
	}
}
