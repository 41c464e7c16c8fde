/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aead.c - see aead.h.
 *
 * A raw key lies in core/base/secret.h's pages.  What the libraries make of it, the key schedule,
 * does not: libcrypto keeps it in its heap, and that of libsodium's AES is allocated here.  Both
 * are wiped when the key is freed, but a core dump and a forked child have them until then.
 */
#include "core/proto/aead.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "core/base/secret.h"
#include "core/proto/libcrypto.h"

enum { GATHER_MAX = 512 };		/* up to here a copy is cheaper than more calls */

static const struct {
	uint8_t bit, key_size;
	const char *name;
} ciphers[] = {
	{ BRAID_CIPHER_AES256, 32, "AES-256-GCM" },
	{ BRAID_CIPHER_AES128, 16, "AES-128-GCM" },
	{ BRAID_CIPHER_CHACHA20, 32, "ChaCha20-Poly1305" },
};
enum { CIPHERS = sizeof(ciphers) / sizeof(ciphers[0]) };

static bool inited, use_libcrypto = true;

struct braid_aead {
	uint8_t cipher;
	uint8_t iv[BRAID_AEAD_IV_SIZE];
	struct braid_libcrypto *theirs;	/* the rest is NULL then */
	uint8_t *key;			/* libsodium: ChaCha20's */
	crypto_aead_aes256gcm_state *aes;	/* libsodium: AES' schedule */
};

/* --- which ciphers there are ----------------------------------------------------------------- */

void braid_aead_init(void)
{
	if (inited || sodium_init() < 0)
		return;
	if (use_libcrypto)
		braid_libcrypto_load();
	inited = true;
}

void braid_aead_use_libcrypto(bool use)
{
	use_libcrypto = use;
}

static bool cpu_has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return sodium_runtime_has_aesni() && sodium_runtime_has_pclmul();
#elif defined(__aarch64__)
	enum { AES = 1 << 3, PMULL = 1 << 4 };	/* HWCAP_AES, HWCAP_PMULL */

	return (getauxval(AT_HWCAP) & (AES | PMULL)) == (AES | PMULL);
#elif defined(__powerpc64__)
	return getauxval(AT_HWCAP2) & 0x02000000;	/* PPC_FEATURE2_VEC_CRYPTO */
#else
	return false;
#endif
}

static int index_of(uint8_t cipher)
{
	for (int i = 0; i < CIPHERS; i++) {
		if (ciphers[i].bit == cipher)
			return i;
	}
	return -1;
}

static bool libcrypto_has(uint8_t cipher)
{
	return use_libcrypto && braid_libcrypto_has(cipher);
}

static bool libsodium_has(uint8_t cipher)
{
	if (cipher == BRAID_CIPHER_AES256)
		return inited && crypto_aead_aes256gcm_is_available();
	return inited && cipher == BRAID_CIPHER_CHACHA20;
}

uint8_t braid_aead_ciphers(void)
{
	uint8_t ret = 0;

	for (unsigned i = 0; i < CIPHERS; i++) {
		uint8_t bit = ciphers[i].bit;

		if ((libcrypto_has(bit) || libsodium_has(bit)) &&
		    (bit == BRAID_CIPHER_CHACHA20 || cpu_has_aes()))
			ret |= bit;
	}
	return ret;
}

const char *braid_aead_name(uint8_t cipher)
{
	int i = index_of(cipher);

	return i < 0 ? "none" : ciphers[i].name;
}

const char *braid_aead_library(uint8_t cipher)
{
	return libcrypto_has(cipher) ? braid_libcrypto_name() :
	       libsodium_has(cipher) ? "libsodium" : "none";
}

size_t braid_aead_key_size(uint8_t cipher)
{
	int i = index_of(cipher);

	return i < 0 ? 0 : ciphers[i].key_size;
}

/* --- keys ------------------------------------------------------------------------------------ */

static bool sodium_new(struct braid_aead *a, const uint8_t *key)
{
	if (a->cipher == BRAID_CIPHER_AES256) {
		a->aes = calloc(1, sizeof(*a->aes));	/* aligned to 16 bytes, as it must be */
		return a->aes && !crypto_aead_aes256gcm_beforenm(a->aes, key);
	}
	a->key = braid_secret_new();
	if (a->key)
		memcpy(a->key, key, crypto_aead_chacha20poly1305_ietf_KEYBYTES);
	return a->key;
}

struct braid_aead *braid_aead_new(uint8_t cipher, const uint8_t *key, const uint8_t *iv, bool seal)
{
	bool theirs = libcrypto_has(cipher);
	struct braid_aead *a;
	bool made;

	if (!theirs && !libsodium_has(cipher))
		return NULL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->cipher = cipher;
	memcpy(a->iv, iv, sizeof(a->iv));
	if (theirs)
		made = (a->theirs = braid_libcrypto_new(cipher, key, seal));
	else
		made = sodium_new(a, key);
	if (!made) {
		braid_aead_free(a);
		return NULL;
	}
	return a;
}

void braid_aead_free(struct braid_aead *a)
{
	if (!a)
		return;
	braid_libcrypto_free(a->theirs);
	if (a->aes)
		sodium_memzero(a->aes, sizeof(*a->aes));
	free(a->aes);
	braid_secret_free(a->key);
	sodium_memzero(a, sizeof(*a));
	free(a);
}

/* --- sealing and opening --------------------------------------------------------------------- */

static void make_nonce(const struct braid_aead *a, uint64_t seq, uint8_t *nonce)
{
	memcpy(nonce, a->iv, BRAID_AEAD_IV_SIZE);
	for (unsigned i = 0; i < 8; i++)
		nonce[BRAID_AEAD_IV_SIZE - 1 - i] ^= (uint8_t)(seq >> 8 * i);
}

/* A walk over bytes [skip, skip + len) of an iovec. */
struct walk {
	const struct iovec *iov;
	int niov;
	size_t skip, len;
};

/* The next piece; false: there is none. */
static bool walk_on(struct walk *w, const uint8_t **at, size_t *n)
{
	while (w->niov && w->skip >= w->iov->iov_len) {
		w->skip -= w->iov->iov_len;
		w->iov++;
		w->niov--;
	}
	if (!w->niov || !w->len)
		return false;
	*at = (const uint8_t *)w->iov->iov_base + w->skip;
	*n = w->iov->iov_len - w->skip < w->len ? w->iov->iov_len - w->skip : w->len;
	w->skip += *n;
	w->len -= *n;
	return true;
}

static bool gather(struct walk *w, uint8_t last, uint8_t *out)
{
	const uint8_t *at;
	size_t n;

	while (walk_on(w, &at, &n)) {
		memcpy(out, at, n);
		out += n;
	}
	*out = last;
	return !w->len;
}

static bool their_seal(struct braid_libcrypto *c, struct walk *w, uint8_t last, uint8_t *out)
{
	const uint8_t *at;
	size_t len = w->len;

	if (len <= GATHER_MAX)
		return gather(w, last, out) && braid_libcrypto_update(c, out, out, len + 1) &&
		       braid_libcrypto_end(c, out + len + 1);
	while (walk_on(w, &at, &len)) {
		if (!braid_libcrypto_update(c, out, at, len))
			return false;
		out += len;
	}
	return !w->len && braid_libcrypto_update(c, out, &last, 1) &&
	       braid_libcrypto_end(c, out + 1);
}

static void sodium_seal(struct braid_aead *a, const uint8_t *nonce, const uint8_t *ad,
			size_t adlen, uint8_t *out, size_t len)
{
	if (a->aes)
		crypto_aead_aes256gcm_encrypt_afternm(out, NULL, out, len, ad, adlen, NULL, nonce,
						      a->aes);
	else
		crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, out, len, ad, adlen, NULL,
							  nonce, a->key);
}

int braid_aead_seal(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen,
		    const struct iovec *iov, int niov, size_t skip, size_t len, uint8_t last,
		    uint8_t *out)
{
	struct walk w = { .iov = iov, .niov = niov, .skip = skip, .len = len };
	uint8_t nonce[BRAID_AEAD_IV_SIZE];

	make_nonce(a, seq, nonce);
	if (a->theirs)
		return braid_libcrypto_begin(a->theirs, nonce, ad, adlen) &&
		       their_seal(a->theirs, &w, last, out) ? 0 : -EIO;
	if (!gather(&w, last, out))
		return -EIO;
	sodium_seal(a, nonce, ad, adlen, out, len + 1);
	return 0;
}

static bool their_open(struct braid_libcrypto *c, const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t tag[BRAID_AEAD_TAG_SIZE];

	memcpy(tag, in + len, sizeof(tag));
	return braid_libcrypto_update(c, out, in, len) && braid_libcrypto_end(c, tag);
}

static bool sodium_open(struct braid_aead *a, const uint8_t *nonce, const uint8_t *ad,
			size_t adlen, const uint8_t *in, size_t len, uint8_t *out)
{
	len += BRAID_AEAD_TAG_SIZE;
	if (a->aes)
		return !crypto_aead_aes256gcm_decrypt_afternm(out, NULL, NULL, in, len, ad, adlen,
							      nonce, a->aes);
	return !crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, in, len, ad, adlen,
							  nonce, a->key);
}

int braid_aead_open(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen,
		    const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t nonce[BRAID_AEAD_IV_SIZE];
	bool ok;

	make_nonce(a, seq, nonce);
	if (a->theirs)
		ok = braid_libcrypto_begin(a->theirs, nonce, ad, adlen) &&
		     their_open(a->theirs, in, len, out);
	else
		ok = sodium_open(a, nonce, ad, adlen, in, len, out);
	if (ok)
		return 0;
	sodium_memzero(out, len);
	return -EILSEQ;
}
