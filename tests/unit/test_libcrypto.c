/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_libcrypto.c - OpenSSL's ciphers are taken where they are whole, each call may fail, and the
 * process notices nothing of it.  test_aead.c has the numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/lib.h"
#include "core/proto/aead.h"
#include "core/proto/libcrypto.h"

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_dlopen(const char *name, int flags);
void *__real_dlopen(const char *name, int flags);
bool __wrap_braid_lib_find(void *lib, const char *name, void *member);
bool __real_braid_lib_find(void *lib, const char *name, void *member);

enum { LEN = 1000, TAG = 16 };

static const uint8_t all[] = { BRAID_CIPHER_AES256, BRAID_CIPHER_AES128, BRAID_CIPHER_CHACHA20 };
static const uint8_t key[32] = { 1, 2, 3 }, nonce[12] = { 4, 5, 6 };
static uint8_t plain[LEN] = { 7, 8, 9 }, sealed[LEN + TAG], opened[LEN];

/* --- calls that fail ------------------------------------------------------------------------- */

static unsigned fail_at, calls;
static const char *without;		/* a function that the library does not have */
static int without_id;			/* ... that its ciphers do not have */
static bool no_library, no_provider;

static bool fails(void)
{
	return ++calls == fail_at;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_dlopen(const char *name, int flags)
{
	return no_library ? NULL : __real_dlopen(name, flags);
}

/* Each function of a cipher, or of EVP, goes through one of these, which may fail in its place. */
typedef uintptr_t any(void *, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

enum { FUNCTIONS = 12, MORE = 6 };
static any *real[3 * FUNCTIONS + MORE];

#define STUB(i) static uintptr_t stub##i(void *a, uintptr_t b, uintptr_t c, uintptr_t d, \
					 uintptr_t e, uintptr_t f) \
	{ return fails() ? 0 : real[i](a, b, c, d, e, f); }
#define STUBS(m) m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) m(13) m(14) \
	m(15) m(16) m(17) m(18) m(19) m(20) m(21) m(22) m(23) m(24) m(25) m(26) m(27) m(28) m(29) \
	m(30) m(31) m(32) m(33) m(34) m(35) m(36) m(37) m(38) m(39) m(40) m(41)
STUBS(STUB)
#define NAME(i) stub##i,
static any *const stubs[] = { STUBS(NAME) };

struct dispatch {
	int id;
	any *function;
};
struct algorithm {
	const char *names, *properties;
	const struct dispatch *functions;
	const char *description;
};
static const struct algorithm *(*real_query)(const void *, int, int *);
static struct dispatch tables[3][FUNCTIONS + 1];

static const struct algorithm *query(const void *provider, int op, int *no_cache)
{
	static struct algorithm ret[4];
	const struct algorithm *a = real_query(provider, op, no_cache);
	unsigned n = 0;

	for (; a && a->names && n < 3; a++) {
		struct dispatch *to = tables[n];

		if (strncmp(a->names, "AES-256-GCM", 11) && strncmp(a->names, "AES-128-GCM", 11) &&
		    strcmp(a->names, "ChaCha20-Poly1305"))
			continue;
		for (const struct dispatch *d = a->functions; d->id; d++) {
			if (d->id >= FUNCTIONS || d->id == without_id)
				continue;
			real[n * FUNCTIONS + (unsigned)d->id] = d->function;
			/* freeing can't fail */
			*to++ = (struct dispatch){ d->id, d->id == 7 ? d->function :
						   stubs[n * FUNCTIONS + (unsigned)d->id] };
		}
		ret[n] = *a;
		ret[n].functions = tables[n];
		n++;
	}
	return ret;
}

static void *no_load(void *lib_ctx, const char *name)
{
	(void)lib_ctx, (void)name;
	return NULL;
}

bool __wrap_braid_lib_find(void *lib, const char *name, void *member)
{
	static const char *const evp[] = {
		"EVP_CIPHER_CTX_new", "EVP_CipherInit_ex", "EVP_CipherUpdate", "EVP_CipherFinal_ex",
		"EVP_CIPHER_CTX_ctrl",
	};
	void *const ours[] = { (void *)query, (void *)no_load };

	if (without && !strcmp(name, without))
		return false;
	if (!strcmp(name, "OSSL_PROVIDER_query_operation")) {
		memcpy(member, &ours[0], sizeof(ours[0]));
		return __real_braid_lib_find(lib, name, &real_query);
	}
	if (no_provider && !strcmp(name, "OSSL_PROVIDER_load")) {
		memcpy(member, &ours[1], sizeof(ours[1]));
		return true;
	}
	for (unsigned i = 0; i < sizeof(evp) / sizeof(evp[0]); i++) {
		if (!strcmp(name, evp[i])) {
			memcpy(member, &stubs[3 * FUNCTIONS + i], sizeof(stubs[0]));
			return __real_braid_lib_find(lib, name, &real[3 * FUNCTIONS + i]);
		}
	}
	return __real_braid_lib_find(lib, name, member);
}

/* --- a message there and back ---------------------------------------------------------------- */

static bool seal(struct braid_libcrypto *c)
{
	return c && braid_libcrypto_begin(c, nonce, (const uint8_t *)"ad", 2) &&
	       braid_libcrypto_update(c, sealed, plain, 100) &&
	       braid_libcrypto_update(c, sealed + 100, plain, 0) &&
	       braid_libcrypto_update(c, sealed + 100, plain + 100, LEN - 100) &&
	       braid_libcrypto_end(c, sealed + LEN);
}

static bool open_(struct braid_libcrypto *c)
{
	return c && braid_libcrypto_begin(c, nonce, (const uint8_t *)"ad", 2) &&
	       braid_libcrypto_update(c, opened, sealed, LEN) &&
	       braid_libcrypto_end(c, sealed + LEN);
}

static bool there_and_back(uint8_t cipher)
{
	struct braid_libcrypto *s = braid_libcrypto_new(cipher, key, true);
	struct braid_libcrypto *o = s ? braid_libcrypto_new(cipher, key, false) : NULL;
	bool ok = seal(s) && open_(o);

	braid_libcrypto_free(s);
	braid_libcrypto_free(o);
	return ok;
}

/* Each call in turn, until all succeed.  Returns how many calls there are; 0: one was not noticed. */
static unsigned fail_each(uint8_t cipher)
{
	bool ok = false;
	unsigned at;

	for (at = 1; !ok; at++) {
		calls = 0;
		fail_at = at;
		ok = there_and_back(cipher);
		if (ok != (calls < at))
			return 0;
	}
	fail_at = 0;
	return at;
}

/* --- each in a child of its own ------------------------------------------------------------- */

static unsigned ciphers(void)
{
	unsigned n = 0;

	braid_libcrypto_load();
	braid_libcrypto_load();
	for (unsigned i = 0; i < sizeof(all); i++)
		n += braid_libcrypto_has(all[i]);
	return n;
}

/* Whatever is missing, there is no cipher, and nothing else happens. */
static bool none(void)
{
	return !ciphers() && !braid_libcrypto_new(all[0], key, true);
}

static bool each_works(void)
{
	for (unsigned i = 0; i < sizeof(all); i++) {
		struct braid_libcrypto *o = braid_libcrypto_new(all[i], key, false);
		bool ok = there_and_back(all[i]) && !memcmp(opened, plain, LEN);

		sealed[LEN] ^= 1;
		ok = ok && !open_(o) && fail_each(all[i]);
		braid_libcrypto_free(o);
		if (!ok)
			return false;
	}
	return true;
}

/* The configuration has not been read: it is when the process asks for it, as it says. */
static bool unnoticed(void)
{
	void *lib = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
	void *(*settings)(void);
	int (*set_name)(void *, const char *);
	void (*set_flags)(void *, unsigned long);
	int (*init)(uint64_t, const void *);
	void (*free_settings)(void *);
	bool refused;
	void *s;

	if (!ciphers() || !each_works() ||
	    !__real_braid_lib_find(lib, "OPENSSL_INIT_new", &settings) ||
	    !__real_braid_lib_find(lib, "OPENSSL_INIT_set_config_filename", &set_name) ||
	    !__real_braid_lib_find(lib, "OPENSSL_INIT_set_config_file_flags", &set_flags) ||
	    !__real_braid_lib_find(lib, "OPENSSL_INIT_free", &free_settings) ||
	    !__real_braid_lib_find(lib, "OPENSSL_init_crypto", &init))
		return false;
	s = settings();
	set_name(s, "/nowhere/openssl.cnf");
	set_flags(s, 0);
	refused = !init(0x40, s);		/* OPENSSL_INIT_LOAD_CONFIG: there is no such file */
	free_settings(s);
	return refused;
}

static bool run_child(const char *how, const char *arg)
{
	if (!strcmp(how, "before"))
		return !braid_libcrypto_has(all[0]) && !braid_libcrypto_new(all[0], key, true) &&
		       !strcmp(braid_libcrypto_name(), "");
	if (!strcmp(how, "no library")) {
		no_library = true;
		return none() && !strcmp(braid_libcrypto_name(), "");
	}
	if (!strcmp(how, "no provider")) {
		no_provider = true;
		return none();
	}
	if (!strcmp(how, "without id")) {
		without_id = atoi(arg);
		return none();
	}
	if (!strcmp(how, "without")) {
		without = arg;
		return none();
	}
	if (!strcmp(how, "evp")) {
		without = "OSSL_LIB_CTX_new";
		return ciphers() == 3 && each_works();
	}
	if (!strcmp(how, "refuses")) {
		fail_at = 2;			/* the first cipher's context */
		return ciphers() == 2 && !braid_libcrypto_has(all[0]);
	}
	return unnoticed();
}

/* This process loads the library in its last tests only, so a child begins anew. */
static void begin_anew(const char *how, const char *arg)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(!run_child(how, arg));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void want_openssl_3(void)
{
	if (!__real_dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL)) {
		print_message("skip: there is no libcrypto.so.3 (Debian: libssl3)\n");
		skip();
	}
}

/* --- tests ----------------------------------------------------------------------------------- */

static void before_it_is_loaded_it_has_no_cipher(void **state)
{
	(void)state;
	begin_anew("before", NULL);
}

static void without_the_library_there_is_no_cipher(void **state)
{
	(void)state;
	begin_anew("no library", NULL);
}

static void a_library_that_lacks_something_is_not_used(void **state)
{
	static const char *const ids[] = { "1", "2", "3", "4", "5", "7", "10", "11" };

	(void)state;
	begin_anew("without", "OpenSSL_version");
	want_openssl_3();
	begin_anew("no provider", NULL);
	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		begin_anew("without id", ids[i]);
}

static void a_cipher_that_it_refuses_is_not_its(void **state)
{
	(void)state;
	want_openssl_3();
	begin_anew("refuses", NULL);
}

static void a_library_without_providers_is_used_by_evp(void **state)
{
	(void)state;
	want_openssl_3();
	begin_anew("evp", NULL);
}

static void the_process_can_still_read_its_configuration(void **state)
{
	(void)state;
	want_openssl_3();
	begin_anew("unnoticed", NULL);
}

static void each_call_that_fails_is_noticed(void **state)
{
	(void)state;
	want_openssl_3();
	assert_int_equal(ciphers(), 3);
	assert_true(each_works());
	assert_null(braid_libcrypto_new(0, key, true));
	assert_null(braid_libcrypto_new(3, key, true));
	assert_null(braid_libcrypto_new(8, key, true));
	braid_libcrypto_free(NULL);
}

static void it_is_named_with_its_version(void **state)
{
	(void)state;
	if (!ciphers())
		skip();
	assert_int_equal(strncmp(braid_libcrypto_name(), "OpenSSL ", 8), 0);
	assert_null(strchr(braid_libcrypto_name() + 8, ' '));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(before_it_is_loaded_it_has_no_cipher),
		cmocka_unit_test(without_the_library_there_is_no_cipher),
		cmocka_unit_test(a_library_that_lacks_something_is_not_used),
		cmocka_unit_test(a_cipher_that_it_refuses_is_not_its),
		cmocka_unit_test(a_library_without_providers_is_used_by_evp),
		cmocka_unit_test(the_process_can_still_read_its_configuration),
		cmocka_unit_test(each_call_that_fails_is_noticed),
		cmocka_unit_test(it_is_named_with_its_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
