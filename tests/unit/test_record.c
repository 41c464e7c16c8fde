/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_record.c - a lane's bytes as TLS 1.3 records: what was sealed is opened, in order and once,
 * nothing else is, and keys change on time.  BRAID_TEST_FLIPS=1000000 makes more random changes.
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
#include "core/proto/keys.h"
#include "core/proto/record.h"
#include "tests/lib/hex.h"

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
uint8_t *__wrap_braid_secret_new(void);
uint8_t *__real_braid_secret_new(void);

enum { EXTRA = BRAID_RECORD_EXTRA, MAX = BRAID_RECORD_DATA_MAX, UPDATE = BRAID_RECORD_UPDATE };

static const uint8_t secret[BRAID_TRAFFIC_SIZE] = { 1, 2, 3 };
static uint8_t cipher;			/* of the test that runs */
static uint8_t plain[4 * MAX], wire[8 * (MAX + EXTRA)], opened[4 * MAX + 64];
static unsigned fail_at, calls;
static uint64_t rnd_state = 0x9e3779b97f4a7c15u;

void *__wrap_calloc(size_t n, size_t size)
{
	return ++calls == fail_at ? NULL : __real_calloc(n, size);
}

uint8_t *__wrap_braid_secret_new(void)
{
	return ++calls == fail_at ? NULL : __real_braid_secret_new();
}

static size_t rnd_below(size_t n)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return (size_t)(rnd_state % n);
}

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i * 7 + i / 256 + 1);
	braid_aead_init();
	return 0;
}

static struct braid_records *make(bool seal)
{
	struct braid_records *r = braid_records_new(cipher, secret, seal);

	assert_non_null(r);
	return r;
}

static ssize_t seal_at(struct braid_records *r, size_t skip, size_t len, uint8_t *out)
{
	const struct iovec iov[2] = { { plain, MAX / 2 }, { plain + MAX / 2, sizeof(plain) - MAX / 2 } };

	return braid_records_seal(r, iov, 2, skip, len, out);
}

/* Seal so many bytes of `plain` as one record; returns the record's size. */
static size_t seal(struct braid_records *r, size_t len, uint8_t *out)
{
	ssize_t n = seal_at(r, 0, len, out);

	assert_int_equal(n, len + EXTRA);
	return (size_t)n;
}

static ssize_t open_(struct braid_records *r, const uint8_t *in, size_t n, size_t *used)
{
	return braid_records_open(r, in, n, opened, sizeof(opened), used);
}

static void assert_opens(struct braid_records *r, const uint8_t *in, size_t n, size_t len)
{
	size_t used;

	memset(opened, 0, len);
	assert_int_equal(open_(r, in, n, &used), len);
	assert_int_equal(used, n);
	assert_memory_equal(opened, plain, len);
}

static void assert_refuses(struct braid_records *r, const uint8_t *in, size_t n)
{
	size_t used;

	assert_int_equal(open_(r, in, n, &used), -EILSEQ);
	assert_int_equal(used, 0);
}

/* A record with any content, under the secret's first key. */
static size_t forge(const uint8_t *inner, size_t len, uint64_t seq, uint8_t *out)
{
	uint8_t key[BRAID_AEAD_KEY_MAX], iv[BRAID_AEAD_IV_SIZE];
	const struct iovec iov = { (void *)(uintptr_t)inner, len - 1 };
	struct braid_aead *a;

	braid_keys_expand(secret, cipher, key, iv);
	a = braid_aead_new(cipher, key, iv, true);
	assert_non_null(a);
	memcpy(out, "\x17\3\3", 3);
	out[3] = (uint8_t)((len + 16) >> 8);
	out[4] = (uint8_t)(len + 16);
	assert_int_equal(braid_aead_seal(a, seq, out, 5, &iov, 1, 0, len - 1, inner[len - 1], out + 5),
			 0);
	braid_aead_free(a);
	return len + 5 + 16;
}

/* --- the bytes ------------------------------------------------------------------------------- */

/* RFC 8448, 3: the client's application data, 00 to 31 hex. */
static void a_record_has_the_bytes_of_rfc_8448(void **state)
{
	uint8_t s[32], data[50], want[128], got[128 + UPDATE];
	const struct iovec iov = { data, sizeof(data) };
	size_t n, used;
	struct braid_records *r;

	(void)state;
	braid_aead_use_libcrypto(true);
	if (!strcmp(braid_aead_library(BRAID_CIPHER_AES128), "none"))
		skip();
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	unhex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5", s);
	n = unhex("1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f"
		  "2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae6"
		  "3aeebb21694915e4", want);
	r = braid_records_new(BRAID_CIPHER_AES128, s, true);
	assert_non_null(r);
	assert_int_equal(braid_records_seal(r, &iov, 1, 0, sizeof(data), got), n);
	assert_memory_equal(got, want, n);
	braid_records_free(r);
	r = braid_records_new(BRAID_CIPHER_AES128, s, false);
	assert_int_equal(braid_records_open(r, want, n, opened, sizeof(opened), &used), 50);
	assert_memory_equal(opened, data, 50);
	braid_records_free(r);
}

static void what_was_sealed_is_opened(void **state)
{
	static const size_t lens[] = { 1, 8, 56, 500, 1000, MAX - 1, MAX };
	struct braid_records *s = make(true), *o = make(false);

	(void)state;
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		assert_opens(o, wire, seal(s, lens[i], wire), lens[i]);
	braid_records_free(s);
	braid_records_free(o);
}

static void records_are_opened_back_to_back(void **state)
{
	struct braid_records *s = make(true), *o = make(false);
	size_t n = 0, at = 0, len;

	(void)state;
	for (unsigned i = 0; i < 300; i++, at += len) {
		len = 1 + rnd_below(i % 10 ? 100 : 3000);
		n += (size_t)seal_at(s, at, len, wire + n);
	}
	assert_opens(o, wire, n, at);
	braid_records_free(s);
	braid_records_free(o);
}

/* The bytes come as they like. */
static void a_part_of_a_record_waits_for_the_rest(void **state)
{
	struct braid_records *s = make(true), *o = make(false);
	size_t n = seal(s, 100, wire), used;

	(void)state;
	for (size_t have = 0; have < n; have++) {
		assert_int_equal(open_(o, wire, have, &used), 0);
		assert_int_equal(used, 0);
	}
	for (size_t more = 1; more < 100 + EXTRA; more++) {
		ssize_t next = seal_at(s, 0, 100, wire + n);

		memset(opened, 0, 100);
		assert_int_equal(open_(o, wire, n + more, &used), 100);
		assert_int_equal(used, n);
		assert_memory_equal(opened, plain, 100);
		memmove(wire, wire + n, (size_t)next);
	}
	braid_records_free(s);
	braid_records_free(o);
}

static void a_record_that_does_not_fit_waits_for_room(void **state)
{
	struct braid_records *s = make(true), *o = make(false);
	size_t one = seal(s, 100, wire), n = one + seal(s, 100, wire + one), used;

	(void)state;
	memset(opened, 0xaa, sizeof(opened));
	assert_int_equal(braid_records_open(o, wire, n, opened, 100, &used), -ENOBUFS);
	assert_int_equal(opened[0], 0xaa);
	assert_int_equal(braid_records_open(o, wire, n, opened, 200, &used), 100);
	assert_int_equal(used, one);
	assert_memory_equal(opened, plain, 100);
	for (unsigned i = 101; i < 300; i++)
		assert_int_equal(opened[i], 0xaa);
	assert_int_equal(braid_records_open(o, wire + used, n - used, opened, 101, &used), 100);
	assert_int_equal(used, one);
	assert_int_equal(opened[101], 0xaa);
	braid_records_free(s);
	braid_records_free(o);
}

/* --- false records --------------------------------------------------------------------------- */

static void every_flipped_bit_is_found(void **state)
{
	struct braid_records *s = make(true);
	size_t n = seal(s, 60, wire);

	(void)state;
	for (unsigned bit = 0; bit < n * 8; bit++) {
		struct braid_records *o = make(false);
		size_t used;
		ssize_t got;

		wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
		got = open_(o, wire, n, &used);
		wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
		/* One that has become longer is not here whole. */
		assert_true(got == -EILSEQ || (!got && !used && (bit / 8 == 3 || bit / 8 == 4)));
		braid_records_free(o);
	}
	braid_records_free(s);
}

static void each_record_is_opened_in_its_place_alone(void **state)
{
	struct braid_records *s = make(true), *o;
	size_t n = seal(s, 60, wire);

	(void)state;
	seal(s, 60, wire + n);
	o = make(false);
	assert_refuses(o, wire + n, n);			/* reordered */
	braid_records_free(o);
	o = make(false);
	assert_opens(o, wire, n, 60);
	assert_refuses(o, wire, n);			/* replayed */
	braid_records_free(o);
	o = make(false);
	wire[4]--;					/* cut */
	assert_refuses(o, wire, n - 1);
	braid_records_free(o);
	braid_records_free(s);
}

static void a_record_of_another_secret_or_cipher_is_refused(void **state)
{
	struct braid_records *s = make(true), *o;
	uint8_t other[sizeof(secret)];
	size_t n = seal(s, 60, wire);

	(void)state;
	for (unsigned bit = 0; bit < sizeof(secret) * 8; bit++) {
		memcpy(other, secret, sizeof(secret));
		other[bit / 8] ^= (uint8_t)(1u << bit % 8);
		o = braid_records_new(cipher, other, false);
		assert_refuses(o, wire, n);
		braid_records_free(o);
	}
	for (uint8_t c = 1; c <= BRAID_CIPHER_CHACHA20; c = (uint8_t)(2 * c)) {
		o = c == cipher ? NULL : braid_records_new(c, secret, false);
		if (o)
			assert_refuses(o, wire, n);
		braid_records_free(o);
	}
	braid_records_free(s);
}

static void a_false_header_is_refused_at_once(void **state)
{
	static const char *const bad[] = {
		"1603030020", "1503030020", "1803030020", "0003030020", "1702030020", "1704030020",
		"1703010020", "1703040020", "1703030000", "1703030010", "1703034012", "170303ffff",
	};
	uint8_t hdr[5];

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct braid_records *o = make(false);

		unhex(bad[i], hdr);
		assert_refuses(o, hdr, sizeof(hdr));
		braid_records_free(o);
	}
}

static void assert_inner(const void *inner, size_t len, ssize_t want)
{
	struct braid_records *o = make(false);
	size_t n = forge(inner, len, 0, wire), used;

	assert_int_equal(open_(o, wire, n, &used), want);
	assert_int_equal(used, want < 0 ? 0 : n);
	braid_records_free(o);
}

static void only_data_and_key_updates_are_taken(void **state)
{
	(void)state;
	for (unsigned type = 0; type < 256; type++) {
		uint8_t inner[2] = { 5, (uint8_t)type };

		/* type 0 is padding behind a type 5 */
		assert_inner(inner, 2, type == 23 ? 1 : -EILSEQ);
	}
	assert_inner("\x18\0\0\1\0\x16", 6, 0);
	assert_inner("\x18\0\0\1\1\x16", 6, -EILSEQ);	/* asks for one of ours */
	assert_inner("\x18\0\0\1\2\x16", 6, -EILSEQ);
	assert_inner("\x18\0\0\1\x16", 5, -EILSEQ);	/* in parts */
	assert_inner("\x18\0\0\1\0\x18\0\0\1\0\x16", 11, -EILSEQ);	/* not alone */
	assert_inner("\x04\0\0\1\0\x16", 6, -EILSEQ);
	assert_inner("\x16", 1, -EILSEQ);
	assert_inner("\x18\0\0\1\0\x17", 6, 5);
}

static void padding_is_no_data(void **state)
{
	uint8_t inner[BRAID_RECORD_INNER_MAX] = { 1, 2, 3, 23 };

	(void)state;
	assert_inner(inner, 4, 3);
	assert_inner(inner, 100, 3);
	assert_inner(inner, sizeof(inner), 3);
	inner[3] = 0;
	assert_inner(inner, 100, -EILSEQ);		/* 3 is no type */
	memset(inner, 0, 4);
	assert_inner(inner, 1, -EILSEQ);
	assert_inner(inner, 100, -EILSEQ);
	inner[0] = 23;
	assert_inner(inner, 100, 0);
}

static void empty_records_are_borne_for_a_while(void **state)
{
	struct braid_records *o = make(false);
	size_t used;

	(void)state;
	for (unsigned k = 0, seq = 0; k < 2; k++) {
		for (unsigned i = 0; i < BRAID_RECORDS_EMPTY_MAX; i++) {
			size_t n = forge((const uint8_t *)"\x17\0", 2, seq++, wire);

			assert_int_equal(open_(o, wire, n, &used), 0);
			assert_int_equal(used, n);
		}
		if (!k)
			assert_int_equal(open_(o, wire, forge((const uint8_t *)"x\x17", 2, seq++, wire),
					       &used), 1);
		else
			assert_refuses(o, wire, forge((const uint8_t *)"\x17", 1, seq++, wire));
	}
	braid_records_free(o);
}

/* --- keys ------------------------------------------------------------------------------------ */

static void the_key_changes_at_the_limit(void **state)
{
	struct braid_records *s = make(true), *o = make(false);

	(void)state;
	braid_records_limit(s, 3);
	for (unsigned i = 0; i < 30; i++) {
		ssize_t n = seal_at(s, 0, 60, wire);

		assert_int_equal(n, 60 + EXTRA + (i && i % 3 == 0 ? UPDATE : 0));
		assert_false(braid_records_due(s));
		assert_opens(o, wire, (size_t)n, 60);
	}
	braid_records_free(s);
	braid_records_free(o);
}

/* The old key opens nothing after it, and the new one nothing before it. */
static void a_key_update_ends_the_old_key(void **state)
{
	struct braid_records *s = make(true), *o = make(false), *late = make(false);
	uint8_t next[BRAID_TRAFFIC_SIZE];
	struct braid_records *fresh;
	size_t used;

	(void)state;
	braid_records_limit(s, 1);
	assert_opens(o, wire, seal(s, 60, wire), 60);
	assert_int_equal(seal_at(s, 0, 60, wire), UPDATE + 60 + EXTRA);
	assert_refuses(late, wire + UPDATE, 60 + EXTRA);
	memcpy(next, secret, sizeof(next));
	braid_keys_next(next);
	fresh = braid_records_new(cipher, next, false);
	assert_opens(fresh, wire + UPDATE, 60 + EXTRA, 60);
	assert_int_equal(open_(o, wire, UPDATE, &used), 0);
	assert_int_equal(used, UPDATE);
	assert_opens(o, wire + UPDATE, 60 + EXTRA, 60);
	braid_records_free(s);
	braid_records_free(o);
	braid_records_free(late);
	braid_records_free(fresh);
}

static void a_key_that_is_kept_wears_out(void **state)
{
	struct braid_records *s = make(true), *o = make(false);

	(void)state;
	braid_records_limit(s, 5);
	braid_records_keep_key(s);
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(braid_records_due(s), i >= 5);
		assert_opens(o, wire, seal(s, 60, wire), 60);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(seal_at(s, 0, 60, wire), -EKEYEXPIRED);
		assert_true(braid_records_due(s));
	}
	braid_records_free(s);
	braid_records_free(o);
}

/* Each allocation in turn, with a key update on the way. */
static void without_memory_nothing_is_sealed_or_opened(void **state)
{
	bool whole = false;

	(void)state;
	for (unsigned at = 1; !whole; at++) {
		struct braid_records *s, *o;
		ssize_t n, m = 0;
		size_t used;

		calls = 0;
		fail_at = at;
		s = braid_records_new(cipher, secret, true);
		o = s ? braid_records_new(cipher, secret, false) : NULL;
		if (o) {
			braid_records_limit(s, 0);
			n = seal_at(s, 0, 60, wire);
			assert_true(n == 60 + EXTRA + UPDATE || n == -ENOMEM);
			if (n > 0)
				m = open_(o, wire, (size_t)n, &used);
			assert_true(m == 60 || m == -ENOMEM || n == -ENOMEM);
			whole = m == 60;
		}
		assert_true(whole == (calls < at));
		fail_at = 0;
		braid_records_free(s);
		braid_records_free(o);
	}
	braid_records_free(NULL);
}

/* --- chance ---------------------------------------------------------------------------------- */

/* Seal a stream with key updates in it, change one bit, and open: all before it, nothing after. */
static void a_flip_anywhere_in_a_stream_is_found(void **state)
{
	const char *more = getenv("BRAID_TEST_FLIPS");
	unsigned flips = more ? (unsigned)strtoul(more, NULL, 10) : 5000;
	size_t end[16];

	(void)state;
	for (unsigned i = 0; i < flips; i++) {
		struct braid_records *s = make(true), *o = make(false);
		size_t n = 0, len = 0, used = 0, got = 0, flip, k;
		ssize_t m;

		braid_records_limit(s, 1 + rnd_below(4));
		for (k = 0; k < 8; k++) {
			size_t more_len = 1 + rnd_below(i % 50 ? 80 : 2000);

			n += (size_t)seal_at(s, len, more_len, wire + n);
			end[k] = n;
			len += more_len;
		}
		flip = rnd_below(n);
		wire[flip] ^= (uint8_t)(1u << rnd_below(8));
		for (k = 0; ; k++) {
			m = open_(o, wire + got, end[k] - got, &used);
			if (m < 0 || used < end[k] - got)
				break;
			got += used;
			assert_true(got <= flip);
		}
		assert_true(flip >= got && flip < end[k]);
		braid_records_free(s);
		braid_records_free(o);
	}
}

/* --- each test with each cipher of each library ---------------------------------------------- */

static struct variant {
	uint8_t cipher;
	bool libcrypto;
} variants[] = {
	{ BRAID_CIPHER_AES256, true }, { BRAID_CIPHER_AES128, true }, { BRAID_CIPHER_CHACHA20, true },
	{ BRAID_CIPHER_AES256, false }, { BRAID_CIPHER_CHACHA20, false },
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]), TESTS_MAX = 20 };

static bool there_is(const struct variant *v)
{
	const char *library;

	braid_aead_use_libcrypto(v->libcrypto);
	library = braid_aead_library(v->cipher);
	return strcmp(library, "none") && !strcmp(library, "libsodium") == !v->libcrypto;
}

static int begin(void **state)
{
	const struct variant *v = *state;

	cipher = v->cipher;
	fail_at = 0;
	braid_aead_use_libcrypto(v->libcrypto);
	return 0;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup(f, begin)
	const struct CMUnitTest tests[] = {
		TEST(what_was_sealed_is_opened),
		TEST(records_are_opened_back_to_back),
		TEST(a_part_of_a_record_waits_for_the_rest),
		TEST(a_record_that_does_not_fit_waits_for_room),
		TEST(every_flipped_bit_is_found),
		TEST(each_record_is_opened_in_its_place_alone),
		TEST(a_record_of_another_secret_or_cipher_is_refused),
		TEST(a_false_header_is_refused_at_once),
		TEST(only_data_and_key_updates_are_taken),
		TEST(padding_is_no_data),
		TEST(empty_records_are_borne_for_a_while),
		TEST(the_key_changes_at_the_limit),
		TEST(a_key_update_ends_the_old_key),
		TEST(a_key_that_is_kept_wears_out),
		TEST(without_memory_nothing_is_sealed_or_opened),
		TEST(a_flip_anywhere_in_a_stream_is_found),
	};
	static char names[VARIANTS * TESTS_MAX][100];
	struct CMUnitTest group[VARIANTS * TESTS_MAX + 1] = {
		cmocka_unit_test(a_record_has_the_bytes_of_rfc_8448),
	};
	size_t n = 1;

	braid_aead_init();
	for (unsigned i = 0; i < VARIANTS; i++) {
		for (unsigned k = 0; k < sizeof(tests) / sizeof(tests[0]); k++) {
			if (!there_is(&variants[i]))
				continue;
			snprintf(names[n], sizeof(names[n]), "%s (%s, %s)", tests[k].name,
				 braid_aead_name(variants[i].cipher),
				 variants[i].libcrypto ? "libcrypto" : "libsodium");
			group[n] = tests[k];
			group[n].name = names[n];
			group[n++].initial_state = &variants[i];
		}
	}
	return _cmocka_run_group_tests("records", group, n, setup, NULL);
}
