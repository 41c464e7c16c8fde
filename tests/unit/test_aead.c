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
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/lib.h"
#include "core/base/secret.h"
#include "core/proto/aead.h"
#include "tests/lib/hex.h"

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
uint8_t *__wrap_braid_secret_new(void);
uint8_t *__real_braid_secret_new(void);
void *__wrap_dlopen(const char *name, int flags);
void *__real_dlopen(const char *name, int flags);
bool __wrap_braid_lib_find(void *lib, const char *name, void *member);
bool __real_braid_lib_find(void *lib, const char *name, void *member);

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

static bool no_library;
static const char *without;		/* a function that libcrypto does not have */

void *__wrap_dlopen(const char *name, int flags)
{
	return no_library ? NULL : __real_dlopen(name, flags);
}

/* libcrypto's functions, each of which may fail. */
static void *(*real_ctx_new)(void);
static int (*real_init)(void *, const void *, void *, const uint8_t *, const uint8_t *, int);
static int (*real_update)(void *, uint8_t *, int *, const uint8_t *, int);
static int (*real_final)(void *, uint8_t *, int *);
static int (*real_ctrl)(void *, int, int, void *);

static void *ctx_new(void)
{
	return fails() ? NULL : real_ctx_new();
}

static int init(void *c, const void *cipher, void *e, const uint8_t *k, const uint8_t *i, int enc)
{
	return fails() ? 0 : real_init(c, cipher, e, k, i, enc);
}

static int update(void *c, uint8_t *out, int *outl, const uint8_t *in, int inl)
{
	return fails() ? 0 : real_update(c, out, outl, in, inl);
}

static int final(void *c, uint8_t *out, int *outl)
{
	return fails() ? 0 : real_final(c, out, outl);
}

static int ctrl(void *c, int type, int arg, void *ptr)
{
	return fails() ? 0 : real_ctrl(c, type, arg, ptr);
}

bool __wrap_braid_lib_find(void *lib, const char *name, void *member)
{
	void *ours[][3] = {
		{ "EVP_CIPHER_CTX_new", &real_ctx_new, (void *)ctx_new },
		{ "EVP_CipherInit_ex", &real_init, (void *)init },
		{ "EVP_CipherUpdate", &real_update, (void *)update },
		{ "EVP_CipherFinal_ex", &real_final, (void *)final },
		{ "EVP_CIPHER_CTX_ctrl", &real_ctrl, (void *)ctrl },
	};

	if (without && !strcmp(name, without))
		return false;
	for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		if (!strcmp(name, ours[i][0])) {
			memcpy(member, &ours[i][2], sizeof(void *));
			return __real_braid_lib_find(lib, name, ours[i][1]);
		}
	}
	return __real_braid_lib_find(lib, name, member);
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
	braid_aead_init();
	braid_aead_init();
	return 0;
}

static int begin(void **state)
{
	(void)state;
	fail_at = 0;
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
		size_t rest = len - at;

		iov[n++] = (struct iovec){ plain + at, n < 40 && rest > piece ? piece : rest };
		if (rest <= iov[n - 1].iov_len)
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

/* --- which library --------------------------------------------------------------------------- */

extern char **environ;

/* In a process that begins anew, for the library is looked for once. */
static void begin_anew(const char *how)
{
	char *argv[] = { "test_aead", (char *)(uintptr_t)how, NULL };
	pid_t pid = fork();
	int status;

	if (!pid) {
		execve("/proc/self/exe", argv, environ);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* libsodium alone serves: ChaCha20, and AES-256 where the CPU has AES; never AES-128. */
static int only_libsodium(void)
{
	uint8_t c = braid_aead_ciphers();
	struct braid_aead *a = braid_aead_new(BRAID_CIPHER_CHACHA20, key, iv, true);
	bool ok = a && c & BRAID_CIPHER_CHACHA20 && !(c & BRAID_CIPHER_AES128) &&
		  !strcmp(braid_aead_library(BRAID_CIPHER_CHACHA20), "libsodium") &&
		  !braid_aead_new(BRAID_CIPHER_AES128, key, iv, true);

	braid_aead_free(a);
	return !ok;
}

static int anew(const char *how)
{
	if (!strcmp(how, "uninitialized"))
		return braid_aead_ciphers() || braid_aead_new(BRAID_CIPHER_CHACHA20, key, iv, true);
	if (!strcmp(how, "no library"))
		no_library = true;
	else if (!strcmp(how, "no OSSL_LIB_CTX_new"))
		without = how + 3;
	else if (!strcmp(how, "refuses"))
		fail_at = 2;		/* the first key of AES-256 */
	else
		without = how;
	braid_aead_init();
	fail_at = 0;
	if (!strcmp(how, "no OSSL_LIB_CTX_new"))
		return braid_aead_ciphers() & BRAID_CIPHER_CHACHA20 ? 0 : 1;
	if (!strcmp(how, "refuses"))
		return strcmp(braid_aead_library(BRAID_CIPHER_AES256), "libsodium") &&
		       strcmp(braid_aead_library(BRAID_CIPHER_AES256), "none");
	return only_libsodium();
}

static void before_init_there_is_no_cipher(void **state)
{
	(void)state;
	begin_anew("uninitialized");
}

static void without_libcrypto_libsodium_serves(void **state)
{
	(void)state;
	begin_anew("no library");
}

static void a_libcrypto_that_lacks_a_function_is_not_used(void **state)
{
	static const char *const names[] = {
		"EVP_CIPHER_CTX_new", "EVP_CIPHER_CTX_free", "EVP_CipherInit_ex",
		"EVP_CipherUpdate", "EVP_CipherFinal_ex", "EVP_CIPHER_CTX_ctrl",
		"OpenSSL_version", "ERR_set_mark", "ERR_pop_to_mark",
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		begin_anew(names[i]);
}

static void a_libcrypto_without_contexts_is_used_too(void **state)
{
	(void)state;
	begin_anew("no OSSL_LIB_CTX_new");
}

static void a_cipher_that_libcrypto_refuses_is_not_its(void **state)
{
	(void)state;
	begin_anew("refuses");
}

static void libcrypto_is_named_with_its_version(void **state)
{
	(void)state;
	if (!have(BRAID_CIPHER_AES128, 1))
		skip();
	assert_int_equal(strncmp(braid_aead_library(BRAID_CIPHER_AES128), "OpenSSL ", 8), 0);
	assert_null(strchr(braid_aead_library(BRAID_CIPHER_AES128) + 8, ' '));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_library_gives_the_published_numbers, begin),
		cmocka_unit_test_setup(one_library_opens_what_another_sealed, begin),
		cmocka_unit_test_setup(whatever_was_changed_is_refused_and_wiped, begin),
		cmocka_unit_test_setup(bytes_that_an_iovec_does_not_have_are_not_sealed, begin),
		cmocka_unit_test_setup(a_call_that_fails_seals_and_opens_nothing, begin),
		cmocka_unit_test_setup(a_cipher_that_is_none_makes_no_key, begin),
		cmocka_unit_test_setup(each_cipher_has_its_name_and_key_size, begin),
		cmocka_unit_test_setup(before_init_there_is_no_cipher, begin),
		cmocka_unit_test_setup(without_libcrypto_libsodium_serves, begin),
		cmocka_unit_test_setup(a_libcrypto_that_lacks_a_function_is_not_used, begin),
		cmocka_unit_test_setup(a_libcrypto_without_contexts_is_used_too, begin),
		cmocka_unit_test_setup(a_cipher_that_libcrypto_refuses_is_not_its, begin),
		cmocka_unit_test_setup(libcrypto_is_named_with_its_version, begin),
	};

	if (argc > 1)
		return anew(argv[1]);
	return cmocka_run_group_tests(tests, setup, NULL);
}
