/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aead.c - see aead.h.
 *
 * A raw key lies in core/base/secret.h's pages.  What the libraries make of it, the key schedule,
 * does not: libcrypto keeps it in its heap, and that of libsodium's AES is allocated here.  Both
 * are wiped when the key is freed, but a core dump and a forked child have them until then.
 */
#include "core/proto/aead.h"

#include <dlfcn.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "core/base/lib.h"
#include "core/base/secret.h"

enum { GATHER_MAX = 512 };		/* up to here one call for all bytes is cheaper than a copy */

/* --- libcrypto, by its documented signatures ------------------------------------------------- */

enum { CTRL_GET_TAG = 0x10, CTRL_SET_TAG = 0x11 };	/* EVP_CTRL_AEAD_* */

static struct {
	void *(*ctx_new)(void);
	void (*ctx_free)(void *ctx);
	int (*init)(void *ctx, const void *cipher, void *engine, const uint8_t *key,
		    const uint8_t *iv, int enc);
	int (*update)(void *ctx, uint8_t *out, int *outl, const uint8_t *in, int inl);
	int (*final)(void *ctx, uint8_t *out, int *outl);
	int (*ctrl)(void *ctx, int type, int arg, void *ptr);
	const char *(*version)(int type);
	int (*mark)(void);		/* the error queue: forget what comes from here on */
	int (*unmark)(void);
	void *(*lib_ctx)(void);		/* OpenSSL 3 */
	void *(*fetch)(void *lib_ctx, const char *name, const char *query);
} evp;

static struct {
	uint8_t bit, key_size;
	const char *name, *fetch, *get;
	const void *evp;		/* libcrypto's, if it works */
} ciphers[] = {
	{ BRAID_CIPHER_AES256, 32, "AES-256-GCM", "AES-256-GCM", "EVP_aes_256_gcm", NULL },
	{ BRAID_CIPHER_AES128, 16, "AES-128-GCM", "AES-128-GCM", "EVP_aes_128_gcm", NULL },
	{ BRAID_CIPHER_CHACHA20, 32, "ChaCha20-Poly1305", "ChaCha20-Poly1305",
	  "EVP_chacha20_poly1305", NULL },
};
enum { CIPHERS = sizeof(ciphers) / sizeof(ciphers[0]) };

static bool inited, use_libcrypto = true;
static char library[32];		/* "OpenSSL 3.0.15" */

struct braid_aead {
	uint8_t cipher;
	bool seal;
	uint8_t iv[BRAID_AEAD_IV_SIZE];
	void *evp;			/* libcrypto's context; the rest is NULL then */
	uint8_t *key;			/* libsodium: ChaCha20's */
	crypto_aead_aes256gcm_state *aes;	/* libsodium: AES' schedule */
};

/* --- which ciphers there are ----------------------------------------------------------------- */

/* The same one that the process uses, whichever that is; else the newest. */
static void *open_library(void)
{
	static const char *const names[] = { "libcrypto.so.3", "libcrypto.so.1.1" };
	char why[200];
	void *lib = NULL;

	for (unsigned i = 0; i < 2 && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	for (unsigned i = 0; i < 2 && !lib; i++)
		lib = braid_lib_open(names[i], "libssl3", why, sizeof(why));
	return lib;
}

static bool find_functions(void *lib)
{
	return braid_lib_find(lib, "EVP_CIPHER_CTX_new", &evp.ctx_new) &&
	       braid_lib_find(lib, "EVP_CIPHER_CTX_free", &evp.ctx_free) &&
	       braid_lib_find(lib, "EVP_CipherInit_ex", &evp.init) &&
	       braid_lib_find(lib, "EVP_CipherUpdate", &evp.update) &&
	       braid_lib_find(lib, "EVP_CipherFinal_ex", &evp.final) &&
	       braid_lib_find(lib, "EVP_CIPHER_CTX_ctrl", &evp.ctrl) &&
	       braid_lib_find(lib, "OpenSSL_version", &evp.version) &&
	       braid_lib_find(lib, "ERR_set_mark", &evp.mark) &&
	       braid_lib_find(lib, "ERR_pop_to_mark", &evp.unmark);
}

static void *evp_new(const void *cipher, const uint8_t *key, bool seal)
{
	void *ctx = evp.ctx_new();

	if (!ctx)
		return NULL;
	evp.mark();
	if (evp.init(ctx, cipher, NULL, key, NULL, seal) != 1) {
		evp.ctx_free(ctx);
		ctx = NULL;
	}
	evp.unmark();
	return ctx;
}

/* A library that may not use a cipher (FIPS) refuses the first key. */
static bool works(const void *cipher)
{
	static const uint8_t key[BRAID_AEAD_KEY_MAX];
	void *ctx = cipher ? evp_new(cipher, key, true) : NULL;

	if (ctx)
		evp.ctx_free(ctx);
	return ctx;
}

static void find_ciphers(void *lib)
{
	void *lib_ctx = NULL;

	evp.mark();
	if (braid_lib_find(lib, "OSSL_LIB_CTX_new", &evp.lib_ctx) &&
	    braid_lib_find(lib, "EVP_CIPHER_fetch", &evp.fetch))
		lib_ctx = evp.lib_ctx();
	for (unsigned i = 0; i < CIPHERS; i++) {
		const void *(*get)(void);
		const void *c = NULL;

		if (lib_ctx)
			c = evp.fetch(lib_ctx, ciphers[i].fetch, NULL);
		else if (braid_lib_find(lib, ciphers[i].get, &get))
			c = get();
		if (works(c))
			ciphers[i].evp = c;
	}
	evp.unmark();
}

/* The first two words: the rest is a date. */
static void name_library(void)
{
	char *at;

	snprintf(library, sizeof(library), "%s", evp.version(0));
	at = strchr(library, ' ');
	at = at ? strchr(at + 1, ' ') : NULL;
	if (at)
		*at = '\0';
}

void braid_aead_init(void)
{
	void *lib;

	if (inited || sodium_init() < 0)
		return;
	inited = true;
	lib = open_library();
	if (!lib || !find_functions(lib))
		return;
	name_library();
	find_ciphers(lib);
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

static const void *libcrypto_has(uint8_t cipher)
{
	int i = index_of(cipher);

	return use_libcrypto && i >= 0 ? ciphers[i].evp : NULL;
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
	return libcrypto_has(cipher) ? library : libsodium_has(cipher) ? "libsodium" : "none";
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
		a->aes = aligned_alloc(16, sizeof(*a->aes));
		return a->aes && !crypto_aead_aes256gcm_beforenm(a->aes, key);
	}
	a->key = braid_secret_new();
	if (a->key)
		memcpy(a->key, key, crypto_aead_chacha20poly1305_ietf_KEYBYTES);
	return a->key;
}

struct braid_aead *braid_aead_new(uint8_t cipher, const uint8_t *key, const uint8_t *iv, bool seal)
{
	const void *theirs = libcrypto_has(cipher);
	struct braid_aead *a;
	bool made;

	if (!theirs && !libsodium_has(cipher))
		return NULL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->cipher = cipher;
	a->seal = seal;
	memcpy(a->iv, iv, sizeof(a->iv));
	if (theirs)
		made = (a->evp = evp_new(theirs, key, seal));
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
	if (a->evp)
		evp.ctx_free(a->evp);	/* wipes what it frees */
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

/* Set the nonce and take in the additional data. */
static bool evp_begin(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen)
{
	uint8_t nonce[BRAID_AEAD_IV_SIZE];
	int n;

	make_nonce(a, seq, nonce);
	return evp.init(a->evp, NULL, NULL, NULL, nonce, -1) == 1 &&
	       evp.update(a->evp, NULL, &n, ad, (int)adlen) == 1;
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

static bool evp_seal(struct braid_aead *a, struct walk *w, uint8_t last, uint8_t *out)
{
	const uint8_t *at;
	size_t len = w->len;
	int n;

	if (len <= GATHER_MAX) {
		if (!gather(w, last, out) ||
		    evp.update(a->evp, out, &n, out, (int)len + 1) != 1)
			return false;
		out += len + 1;
	} else {
		while (walk_on(w, &at, &len)) {
			if (evp.update(a->evp, out, &n, at, (int)len) != 1)
				return false;
			out += len;
		}
		if (w->len || evp.update(a->evp, out++, &n, &last, 1) != 1)
			return false;
	}
	return evp.final(a->evp, out, &n) == 1 &&
	       evp.ctrl(a->evp, CTRL_GET_TAG, BRAID_AEAD_TAG_SIZE, out) == 1;
}

static void sodium_seal(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen,
			uint8_t *out, size_t len)
{
	uint8_t nonce[BRAID_AEAD_IV_SIZE];

	make_nonce(a, seq, nonce);
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

	if (a->evp)
		return evp_begin(a, seq, ad, adlen) && evp_seal(a, &w, last, out) ? 0 : -EIO;
	if (!gather(&w, last, out))
		return -EIO;
	sodium_seal(a, seq, ad, adlen, out, len + 1);
	return 0;
}

static bool evp_open(struct braid_aead *a, const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t tag[BRAID_AEAD_TAG_SIZE];
	int n;

	memcpy(tag, in + len, sizeof(tag));
	return (!len || evp.update(a->evp, out, &n, in, (int)len) == 1) &&
	       evp.ctrl(a->evp, CTRL_SET_TAG, sizeof(tag), tag) == 1 &&
	       evp.final(a->evp, out + len, &n) == 1;
}

static bool sodium_open(struct braid_aead *a, uint64_t seq, const uint8_t *ad, size_t adlen,
			const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t nonce[BRAID_AEAD_IV_SIZE];

	make_nonce(a, seq, nonce);
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
	bool ok;

	if (a->evp)
		ok = evp_begin(a, seq, ad, adlen) && evp_open(a, in, len, out);
	else
		ok = sodium_open(a, seq, ad, adlen, in, len, out);
	if (ok)
		return 0;
	sodium_memzero(out, len);
	return -EILSEQ;
}
