/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_aead.c - both libraries give the published numbers, one opens what the other has sealed, and
 * nothing else is opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/secret.h"
#include "core/proto/aead.h"
#include "core/proto/libcrypto.h"
#include "tests/lib/hex.h"

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
uint8_t *__wrap_braid_secret_new(void);
uint8_t *__real_braid_secret_new(void);
struct braid_libcrypto *__wrap_braid_libcrypto_new(uint8_t c, const uint8_t *k, bool s);
struct braid_libcrypto *__real_braid_libcrypto_new(uint8_t c, const uint8_t *k, bool s);
bool __wrap_braid_libcrypto_begin(struct braid_libcrypto *c, const uint8_t *nonce, const uint8_t *ad,
				  size_t adlen);
bool __real_braid_libcrypto_begin(struct braid_libcrypto *c, const uint8_t *nonce, const uint8_t *ad,
				  size_t adlen);
bool __wrap_braid_libcrypto_update(struct braid_libcrypto *c, uint8_t *out, const uint8_t *in, size_t n);
bool __real_braid_libcrypto_update(struct braid_libcrypto *c, uint8_t *out, const uint8_t *in, size_t n);
bool __wrap_braid_libcrypto_end(struct braid_libcrypto *c, uint8_t *tag);
bool __real_braid_libcrypto_end(struct braid_libcrypto *c, uint8_t *tag);
bool __wrap_braid_libcrypto_has(uint8_t c);
bool __real_braid_libcrypto_has(uint8_t c);
int __wrap_sodium_runtime_has_aesni(void);
int __real_sodium_runtime_has_aesni(void);

static const uint8_t all[] = { BRAID_CIPHER_AES256, BRAID_CIPHER_AES128, BRAID_CIPHER_CHACHA20 };
enum { CIPHERS = 3, LEN_MAX = 16384, TAG = BRAID_AEAD_TAG_SIZE };

static const uint8_t key[BRAID_AEAD_KEY_MAX] = { 1, 2, 3 };
static const uint8_t iv[BRAID_AEAD_IV_SIZE] = { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 254 };
static uint8_t plain[LEN_MAX], sealed[LEN_MAX + 1 + TAG], other[LEN_MAX + 1 + TAG];
static uint8_t opened[LEN_MAX + 1];

/* --- calls that fail ------------------------------------------------------------------------- */

static unsigned fail_at;		/* the n-th call of all these, from 1 on; 0: none */
static unsigned calls;

static bool fails(void)
{
	return ++calls == fail_at;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return fails() ? NULL : __real_aligned_alloc(align, size);
}

uint8_t *__wrap_braid_secret_new(void)
{
	return fails() ? NULL : __real_braid_secret_new();
}

struct braid_libcrypto *__wrap_braid_libcrypto_new(uint8_t c, const uint8_t *k, bool s)
{
	return fails() ? NULL : __real_braid_libcrypto_new(c, k, s);
}

bool __wrap_braid_libcrypto_begin(struct braid_libcrypto *c, const uint8_t *nonce, const uint8_t *ad,
				  size_t adlen)
{
	return !fails() && __real_braid_libcrypto_begin(c, nonce, ad, adlen);
}

bool __wrap_braid_libcrypto_update(struct braid_libcrypto *c, uint8_t *out, const uint8_t *in, size_t n)
{
	return !fails() && __real_braid_libcrypto_update(c, out, in, n);
}

bool __wrap_braid_libcrypto_end(struct braid_libcrypto *c, uint8_t *tag)
{
	return !fails() && __real_braid_libcrypto_end(c, tag);
}

static bool no_aes;			/* of the CPU */

int __wrap_sodium_runtime_has_aesni(void)
{
	return !no_aes && __real_sodium_runtime_has_aesni();
}

static bool no_libcrypto;

bool __wrap_braid_libcrypto_has(uint8_t c)
{
	return !no_libcrypto && __real_braid_libcrypto_has(c);
}

/* --- helpers --------------------------------------------------------------------------------- */

/* Is the cipher there, of libcrypto (1) or of libsodium (0)?  Further keys are made of it. */
static bool have(uint8_t cipher, int libcrypto)
{
	const char *lib;

	braid_aead_use_libcrypto(libcrypto);
	lib = braid_aead_library(cipher);
	return strcmp(lib, "none") && !strcmp(lib, "libsodium") == !libcrypto;
}

static struct braid_aead *make(uint8_t cipher, int libcrypto, bool seal)
{
	struct braid_aead *a;

	assert_true(have(cipher, libcrypto));
	a = braid_aead_new(cipher, key, iv, seal);
	assert_non_null(a);
	return a;
}

static void seal(struct braid_aead *a, uint64_t seq, const void *bytes, size_t len, uint8_t *out)
{
	const struct iovec iov = { (void *)(uintptr_t)bytes, len };

	assert_int_equal(braid_aead_seal(a, seq, (const uint8_t *)"ad", 2, &iov, 1, 0, len, 23,
					 out), 0);
}

static int open_(struct braid_aead *a, uint64_t seq, const uint8_t *in, size_t len)
{
	return braid_aead_open(a, seq, (const uint8_t *)"ad", 2, in, len, opened);
}

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < LEN_MAX; i++)
		plain[i] = (uint8_t)(i * 7 + i / 256);
	if (braid_aead_ciphers() || braid_aead_new(BRAID_CIPHER_CHACHA20, key, iv, true))
		return 1;			/* not before init */
	braid_aead_init();
	braid_aead_init();
	return 0;
}

static int begin(void **state)
{
	(void)state;
	fail_at = 0;
	no_aes = no_libcrypto = false;
	braid_aead_use_libcrypto(true);
	return 0;
}

/* --- tests ----------------------------------------------------------------------------------- */

/* GCM: test cases 16 and 4 of its specification; RFC 8439, 2.8.2. */
static const struct vector {
	uint8_t cipher;
	const char *key, *iv, *ad, *plain, *sealed;
} vectors[] = {
	{ BRAID_CIPHER_AES256, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
	  "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
	  "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
	  "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
	  "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
	  "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
	  "76fc6ece0f4e1768cddf8853bb2d551b" },
	{ BRAID_CIPHER_AES128, "feffe9928665731c6d6a8f9467308308",
	  "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
	  "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
	  "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
	  "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
	  "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
	  "5bc94fbc3221a5db94fae95ae7121a47" },
	{ BRAID_CIPHER_CHACHA20, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
	  "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
	  "4c616469657320616e642047656e746c656d656e206f662074686520636c6173"
	  "73206f66202739393a204966204920636f756c64206f6666657220796f75206f"
	  "6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73"
	  "637265656e20776f756c642062652069742e",
	  "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
	  "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
	  "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
	  "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691" },
};

static void check_vector(const struct vector *v, uint64_t seq)
{
	uint8_t k[32], nonce[12], ad[32], want[256], text[256];
	size_t nad = unhex(v->ad, ad), n = unhex(v->plain, text);
	const struct iovec iov = { text, n - 1 };
	struct braid_aead *a;

	unhex(v->key, k);
	unhex(v->iv, nonce);
	assert_int_equal(unhex(v->sealed, want), n + TAG);
	for (unsigned i = 0; i < 8; i++)
		nonce[11 - i] ^= (uint8_t)(seq >> 8 * i);
	a = braid_aead_new(v->cipher, k, nonce, true);
	assert_non_null(a);
	assert_int_equal(braid_aead_seal(a, seq, ad, nad, &iov, 1, 0, n - 1, text[n - 1], sealed),
			 0);
	assert_memory_equal(sealed, want, n + TAG);
	braid_aead_free(a);
	a = braid_aead_new(v->cipher, k, nonce, false);
	assert_int_equal(braid_aead_open(a, seq, ad, nad, want, n, opened), 0);
	assert_memory_equal(opened, text, n);
	braid_aead_free(a);
}

static void each_library_gives_the_published_numbers(void **state)
{
	unsigned n = 0;

	(void)state;
	for (unsigned i = 0; i < CIPHERS; i++) {
		for (int lib = 0; lib < 2; lib++) {
			if (!have(vectors[i].cipher, lib))
				continue;
			n++;
			check_vector(&vectors[i], 0);
			check_vector(&vectors[i], 1);
			check_vector(&vectors[i], 0x0123456789abcdef);
		}
	}
	assert_true(n);
}

/* Cut the text in pieces, some of them empty, and begin within one. */
static void seal_pieces(struct braid_aead *a, size_t len, size_t piece)
{
	static const uint8_t front[3] = { 1, 1, 1 };
	struct iovec iov[64];
	int n = 0;

	iov[n++] = (struct iovec){ (void *)(uintptr_t)front, 3 };
	for (size_t at = 0; at < len; at += piece) {
		size_t rest = len - at, take = n < 40 && rest > piece ? piece : rest;

		iov[n++] = (struct iovec){ plain + at, take };
		if (take == rest)
			break;
		iov[n++] = (struct iovec){ NULL, 0 };
	}
	assert_int_equal(braid_aead_seal(a, 5, (const uint8_t *)"ad", 2, iov, n, 3, len, 23,
					 sealed), 0);
}

static void one_library_opens_what_another_sealed(void **state)
{
	static const size_t lens[] = { 0, 1, 8, 15, 16, 17, 56, 511, 512, 513, 514, 1000, 4096, LEN_MAX };

	(void)state;
	for (unsigned i = 0; i < CIPHERS * 4; i++) {
		uint8_t c = all[i / 4];
		int from = i & 1, to = i >> 1 & 1;
		struct braid_aead *s, *o;

		if (!have(c, from) || !have(c, to))
			continue;
		s = make(c, from, true);
		o = make(c, to, false);
		for (unsigned k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
			for (size_t piece = 1; piece < 1500; piece = piece * 3 + 4) {
				memset(opened, 0, sizeof(opened));
				seal_pieces(s, lens[k], piece);
				assert_int_equal(open_(o, 5, sealed, lens[k] + 1), 0);
				assert_memory_equal(opened, plain, lens[k]);
				assert_int_equal(opened[lens[k]], 23);
			}
		}
		braid_aead_free(s);
		braid_aead_free(o);
	}
}

static void assert_refused(struct braid_aead *o, uint64_t seq, const uint8_t *in, size_t len)
{
	static const uint8_t zero[LEN_MAX + 1];

	memset(opened, 0xaa, sizeof(opened));
	assert_int_equal(open_(o, seq, in, len), -EILSEQ);
	assert_memory_equal(opened, zero, len);
	assert_int_equal(opened[len], 0xaa);
}

static void whatever_was_changed_is_refused_and_wiped(void **state)
{
	enum { LEN = 40 };
	const struct iovec iov = { plain, LEN };

	(void)state;
	for (unsigned i = 0; i < CIPHERS * 2; i++) {
		struct braid_aead *s, *o;

		if (!have(all[i / 2], i & 1))
			continue;
		s = make(all[i / 2], i & 1, true);
		o = make(all[i / 2], i & 1, false);
		seal(s, 3, plain, LEN, sealed);
		for (unsigned bit = 0; bit < (LEN + 1 + TAG) * 8; bit++) {
			sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_refused(o, 3, sealed, LEN + 1);
			sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		for (unsigned bit = 0; bit < 64; bit++)
			assert_refused(o, 3 ^ (uint64_t)1 << bit, sealed, LEN + 1);
		assert_refused(o, 3, sealed, LEN);
		assert_refused(o, 3, sealed + 1, LEN);
		assert_int_equal(open_(o, 3, sealed, LEN + 1), 0);
		assert_int_equal(braid_aead_seal(s, 3, (const uint8_t *)"Ad", 2, &iov, 1, 0, LEN,
						 23, sealed), 0);
		assert_refused(o, 3, sealed, LEN + 1);
		braid_aead_free(s);
		braid_aead_free(o);
	}
}

static void bytes_that_an_iovec_does_not_have_are_not_sealed(void **state)
{
	const struct iovec iov[2] = { { plain, 600 }, { plain, 100 } };

	(void)state;
	for (unsigned i = 0; i < CIPHERS * 2; i++) {
		struct braid_aead *s;

		if (!have(all[i / 2], i & 1))
			continue;
		s = make(all[i / 2], i & 1, true);
		assert_int_equal(braid_aead_seal(s, 0, NULL, 0, iov, 2, 1, 700, 23, sealed), -EIO);
		assert_int_equal(braid_aead_seal(s, 1, NULL, 0, iov, 2, 601, 100, 23, sealed), -EIO);
		braid_aead_free(s);
	}
}

/* Each call in turn, until all succeed. */
static void a_call_that_fails_seals_and_opens_nothing(void **state)
{
	const struct iovec iov[2] = { { plain, 600 }, { plain + 600, 100 } };

	(void)state;
	for (unsigned i = 0; i < CIPHERS * 4; i++) {
		uint8_t c = all[i / 4];
		size_t len = i & 2 ? 700 : 50;
		struct braid_aead *s, *o;
		bool whole = false;

		if (!have(c, i & 1))
			continue;
		s = make(c, i & 1, true);
		seal(s, 0, plain, len, sealed);
		for (unsigned at = 1; !whole; at++) {
			struct braid_aead *s2;

			calls = 0;
			fail_at = at;
			s2 = braid_aead_new(c, key, iv, true);
			o = s2 ? braid_aead_new(c, key, iv, false) : NULL;
			if (s2 && o) {
				int err = braid_aead_seal(s2, 0, (const uint8_t *)"ad", 2, iov, 2, 0,
							  len, 23, other);

				whole = !err && !open_(o, 0, sealed, len + 1);
				assert_true(!err || err == -EIO);
			}
			assert_true(whole == (calls < at));
			braid_aead_free(s2);
			braid_aead_free(o);
		}
		fail_at = 0;
		assert_memory_equal(sealed, other, len + 1 + TAG);
		assert_memory_equal(opened, plain, len);
		braid_aead_free(s);
	}
	braid_aead_free(NULL);
}

static void a_cipher_that_is_none_makes_no_key(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		if (c == 1 || c == 2 || c == 4)
			continue;
		assert_null(braid_aead_new((uint8_t)c, key, iv, true));
		assert_string_equal(braid_aead_name((uint8_t)c), "none");
		assert_string_equal(braid_aead_library((uint8_t)c), "none");
		assert_int_equal(braid_aead_key_size((uint8_t)c), 0);
	}
}

static void each_cipher_has_its_name_and_key_size(void **state)
{
	(void)state;
	assert_string_equal(braid_aead_name(BRAID_CIPHER_AES256), "AES-256-GCM");
	assert_string_equal(braid_aead_name(BRAID_CIPHER_AES128), "AES-128-GCM");
	assert_string_equal(braid_aead_name(BRAID_CIPHER_CHACHA20), "ChaCha20-Poly1305");
	assert_int_equal(braid_aead_key_size(BRAID_CIPHER_AES256), 32);
	assert_int_equal(braid_aead_key_size(BRAID_CIPHER_AES128), 16);
	assert_int_equal(braid_aead_key_size(BRAID_CIPHER_CHACHA20), 32);
}

/* libsodium alone: ChaCha20, and AES-256 where the CPU has AES; never AES-128. */
static void without_libcrypto_libsodium_serves(void **state)
{
	struct braid_aead *a;

	(void)state;
	no_libcrypto = true;
	assert_true(braid_aead_ciphers() & BRAID_CIPHER_CHACHA20);
	assert_false(braid_aead_ciphers() & BRAID_CIPHER_AES128);
	assert_string_equal(braid_aead_library(BRAID_CIPHER_CHACHA20), "libsodium");
	assert_string_equal(braid_aead_library(BRAID_CIPHER_AES128), "none");
	assert_null(braid_aead_new(BRAID_CIPHER_AES128, key, iv, true));
	a = braid_aead_new(BRAID_CIPHER_CHACHA20, key, iv, true);
	assert_non_null(a);
	braid_aead_free(a);
}

static void a_cpu_without_aes_offers_chacha20_alone(void **state)
{
	(void)state;
#if !defined(__x86_64__) && !defined(__i386__)
	skip();
#endif
	no_aes = true;
	assert_int_equal(braid_aead_ciphers(), BRAID_CIPHER_CHACHA20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_library_gives_the_published_numbers, begin),
		cmocka_unit_test_setup(one_library_opens_what_another_sealed, begin),
		cmocka_unit_test_setup(whatever_was_changed_is_refused_and_wiped, begin),
		cmocka_unit_test_setup(bytes_that_an_iovec_does_not_have_are_not_sealed, begin),
		cmocka_unit_test_setup(a_call_that_fails_seals_and_opens_nothing, begin),
		cmocka_unit_test_setup(a_cipher_that_is_none_makes_no_key, begin),
		cmocka_unit_test_setup(each_cipher_has_its_name_and_key_size, begin),
		cmocka_unit_test_setup(without_libcrypto_libsodium_serves, begin),
		cmocka_unit_test_setup(a_cpu_without_aes_offers_chacha20_alone, begin),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
