/* SPDX-License-Identifier: BSD-3-Clause */
/* libcrypto.c - see libcrypto.h.  Functions are declared by their documented signatures. */
#include "core/proto/libcrypto.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/lib.h"
#include "core/proto/aead.h"

enum { TAG_SIZE = BRAID_AEAD_TAG_SIZE, NONCE_SIZE = BRAID_AEAD_IV_SIZE, CIPHERS = 3 };

/* --- OpenSSL 3: the default provider --------------------------------------------------------- */

struct ossl_param {
	const char *key;
	unsigned type;
	void *data;
	size_t size, ret_size;
};

struct ossl_dispatch {
	int id;
	void (*function)(void);
};

struct ossl_algorithm {
	const char *names, *properties;
	const struct ossl_dispatch *functions;
	const char *description;
};

enum { OP_CIPHER = 2, TYPE_BYTES = 5 };	/* OSSL_OP_CIPHER, OSSL_PARAM_OCTET_STRING */

typedef int ossl_init(void *ctx, const uint8_t *key, size_t nkey, const uint8_t *iv, size_t niv,
		      const struct ossl_param *params);

struct functions {			/* OSSL_FUNC_CIPHER_* */
	void *(*newctx)(void *provider_ctx);
	void (*freectx)(void *ctx);
	ossl_init *init[2];		/* to open, to seal */
	int (*update)(void *ctx, uint8_t *out, size_t *outl, size_t room, const uint8_t *in,
		      size_t inl);
	int (*final)(void *ctx, uint8_t *out, size_t *outl, size_t room);
	int (*get)(void *ctx, struct ossl_param *params);
	int (*set)(void *ctx, const struct ossl_param *params);
};

static void *provider_ctx;

/* --- OpenSSL 1.1: EVP ------------------------------------------------------------------------ */

enum { CTRL_GET_TAG = 0x10, CTRL_SET_TAG = 0x11 };	/* EVP_CTRL_AEAD_* */

static struct {
	void *(*newctx)(void);
	void (*freectx)(void *ctx);
	int (*init)(void *ctx, const void *cipher, void *engine, const uint8_t *key,
		    const uint8_t *iv, int enc);
	int (*update)(void *ctx, uint8_t *out, int *outl, const uint8_t *in, int inl);
	int (*final)(void *ctx, uint8_t *out, int *outl);
	int (*ctrl)(void *ctx, int type, int arg, void *ptr);
} evp;

/* --------------------------------------------------------------------------------------------- */

static struct row {			/* by the bit of enum braid_cipher */
	size_t key_size;
	const char *name, *getter;
	struct functions f;		/* with newctx: OpenSSL 3 has it */
	const void *evp;		/* not NULL: OpenSSL 1.1 has it */
} rows[CIPHERS] = {
	{ .key_size = 32, .name = "AES-256-GCM", .getter = "EVP_aes_256_gcm" },
	{ .key_size = 16, .name = "AES-128-GCM", .getter = "EVP_aes_128_gcm" },
	{ .key_size = 32, .name = "ChaCha20-Poly1305", .getter = "EVP_chacha20_poly1305" },
};

struct braid_libcrypto {
	const struct row *row;
	void *ctx;
	bool seal;
};

static bool loaded;
static char version[32];

static void take_functions(const struct ossl_dispatch *d, struct functions *ret)
{
	void *const places[] = {	/* by OSSL_FUNC_CIPHER_* */
		[1] = &ret->newctx, [2] = &ret->init[1], [3] = &ret->init[0], [4] = &ret->update,
		[5] = &ret->final, [7] = &ret->freectx, [10] = &ret->get, [11] = &ret->set,
	};

	for (; d->id; d++) {
		if (d->id > 0 && (size_t)d->id < sizeof(places) / sizeof(places[0]) &&
		    places[d->id])
			memcpy(places[d->id], &d->function, sizeof(d->function));
	}
	if (!ret->init[0] || !ret->init[1] || !ret->update || !ret->final || !ret->freectx ||
	    !ret->get || !ret->set)
		ret->newctx = NULL;
}

/* The first of an algorithm's names, which colons part. */
static bool is_named(const struct ossl_algorithm *a, const char *name)
{
	size_t n = strcspn(a->names, ":");

	return n == strlen(name) && !strncasecmp(a->names, name, n);
}

/* False: this is not OpenSSL 3. */
static bool load_provider(void *lib)
{
	void *(*new_lib_ctx)(void);
	void (*free_lib_ctx)(void *lib_ctx);
	void *(*load)(void *lib_ctx, const char *name);
	void *(*ctx_of)(const void *provider);
	const struct ossl_algorithm *(*query)(const void *provider, int operation, int *no_cache);
	const struct ossl_algorithm *a = NULL;
	void *lib_ctx, *provider;
	int no_cache;

	if (!braid_lib_find(lib, "OSSL_LIB_CTX_new", &new_lib_ctx) ||
	    !braid_lib_find(lib, "OSSL_LIB_CTX_free", &free_lib_ctx) ||
	    !braid_lib_find(lib, "OSSL_PROVIDER_load", &load) ||
	    !braid_lib_find(lib, "OSSL_PROVIDER_get0_provider_ctx", &ctx_of) ||
	    !braid_lib_find(lib, "OSSL_PROVIDER_query_operation", &query))
		return false;
	lib_ctx = new_lib_ctx();
	provider = lib_ctx ? load(lib_ctx, "default") : NULL;
	if (provider) {
		provider_ctx = ctx_of(provider);
		a = query(provider, OP_CIPHER, &no_cache);
	} else if (lib_ctx) {
		free_lib_ctx(lib_ctx);
	}
	for (; a && a->names; a++) {
		for (unsigned i = 0; i < CIPHERS; i++) {
			if (is_named(a, rows[i].name))
				take_functions(a->functions, &rows[i].f);
		}
	}
	return true;
}

static void load_evp(void *lib)
{
	if (!braid_lib_find(lib, "EVP_CIPHER_CTX_new", &evp.newctx) ||
	    !braid_lib_find(lib, "EVP_CIPHER_CTX_free", &evp.freectx) ||
	    !braid_lib_find(lib, "EVP_CipherInit_ex", &evp.init) ||
	    !braid_lib_find(lib, "EVP_CipherUpdate", &evp.update) ||
	    !braid_lib_find(lib, "EVP_CipherFinal_ex", &evp.final) ||
	    !braid_lib_find(lib, "EVP_CIPHER_CTX_ctrl", &evp.ctrl))
		return;
	for (unsigned i = 0; i < CIPHERS; i++) {
		const void *(*get)(void);

		if (braid_lib_find(lib, rows[i].getter, &get))
			rows[i].evp = get();
	}
}

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

/* A library that may not use a cipher (FIPS) refuses the first key. */
static void try_ciphers(void)
{
	static const uint8_t key[32];

	for (unsigned i = 0; i < CIPHERS; i++) {
		struct braid_libcrypto *c = braid_libcrypto_new((uint8_t)(1u << i), key, true);

		if (!c) {
			rows[i].f.newctx = NULL;
			rows[i].evp = NULL;
		}
		braid_libcrypto_free(c);
	}
}

void braid_libcrypto_load(void)
{
	const char *(*get_version)(int type);
	char *word;
	void *lib;

	if (loaded)
		return;
	loaded = true;
	lib = open_library();
	if (!lib || !braid_lib_find(lib, "OpenSSL_version", &get_version))
		return;
	/* "OpenSSL 3.0.15 3 Sep 2024": the first two words, if there are two. */
	snprintf(version, sizeof(version), "%s", get_version(0));
	word = version + strcspn(version, " ");
	word += strspn(word, " ");
	word[strcspn(word, " ")] = '\0';
	if (!load_provider(lib))
		load_evp(lib);
	try_ciphers();
}

const char *braid_libcrypto_name(void)
{
	return version;
}

static const struct row *row_of(uint8_t cipher)
{
	for (unsigned i = 0; i < CIPHERS; i++) {
		if (cipher == 1u << i)
			return rows[i].f.newctx || rows[i].evp ? &rows[i] : NULL;
	}
	return NULL;
}

bool braid_libcrypto_has(uint8_t cipher)
{
	return row_of(cipher);
}

/* --- keys ------------------------------------------------------------------------------------ */

static bool set_key(struct braid_libcrypto *c, const uint8_t *key)
{
	const struct functions *f = &c->row->f;

	c->ctx = f->newctx ? f->newctx(provider_ctx) : evp.newctx();
	if (!c->ctx)
		return false;
	return (f->newctx ? f->init[c->seal](c->ctx, key, c->row->key_size, NULL, 0, NULL) :
		evp.init(c->ctx, c->row->evp, NULL, key, NULL, c->seal)) == 1;
}

struct braid_libcrypto *braid_libcrypto_new(uint8_t cipher, const uint8_t *key, bool seal)
{
	const struct row *row = row_of(cipher);
	struct braid_libcrypto *c = row ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return NULL;
	c->row = row;
	c->seal = seal;
	if (!set_key(c, key)) {
		braid_libcrypto_free(c);
		return NULL;
	}
	return c;
}

void braid_libcrypto_free(struct braid_libcrypto *c)
{
	if (c && c->ctx)
		(c->row->f.newctx ? c->row->f.freectx : evp.freectx)(c->ctx);
	free(c);
}

/* --- messages -------------------------------------------------------------------------------- */

bool braid_libcrypto_begin(struct braid_libcrypto *c, const uint8_t *nonce, const uint8_t *ad,
			   size_t adlen)
{
	const struct functions *f = &c->row->f;

	return (f->newctx ? f->init[c->seal](c->ctx, NULL, 0, nonce, NONCE_SIZE, NULL) :
		evp.init(c->ctx, NULL, NULL, NULL, nonce, -1)) == 1 &&
	       braid_libcrypto_update(c, NULL, ad, adlen);
}

bool braid_libcrypto_update(struct braid_libcrypto *c, uint8_t *out, const uint8_t *in, size_t n)
{
	size_t put;
	int put_int;

	if (!n)
		return true;
	if (c->row->f.newctx)
		return c->row->f.update(c->ctx, out, &put, n, in, n) == 1;
	return evp.update(c->ctx, out, &put_int, in, (int)n) == 1;
}

static bool provider_end(struct braid_libcrypto *c, uint8_t *tag)
{
	const struct functions *f = &c->row->f;
	struct ossl_param params[] = { { "tag", TYPE_BYTES, tag, TAG_SIZE, (size_t)-1 }, { 0 } };
	uint8_t none[TAG_SIZE];
	size_t put;

	return (c->seal || f->set(c->ctx, params) == 1) &&
	       f->final(c->ctx, none, &put, sizeof(none)) == 1 &&
	       (!c->seal || f->get(c->ctx, params) == 1);
}

static bool evp_end(struct braid_libcrypto *c, uint8_t *tag)
{
	uint8_t none[TAG_SIZE];
	int put;

	return (c->seal || evp.ctrl(c->ctx, CTRL_SET_TAG, TAG_SIZE, tag) == 1) &&
	       evp.final(c->ctx, none, &put) == 1 &&
	       (!c->seal || evp.ctrl(c->ctx, CTRL_GET_TAG, TAG_SIZE, tag) == 1);
}

bool braid_libcrypto_end(struct braid_libcrypto *c, uint8_t *tag)
{
	return c->row->f.newctx ? provider_end(c, tag) : evp_end(c, tag);
}
