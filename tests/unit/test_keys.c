/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_keys.c - the derivation of keys gives the published numbers of RFC 5869 and RFC 8448, and for
 * Braid's own labels those that other programs computed from the formulas of keys.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/proto/aead.h"
#include "core/proto/hello.h"
#include "core/proto/keys.h"
#include "tests/lib/hex.h"

/* RFC 5869, A.1 to A.3: the first is of common size, the second long, the third without info. */
static void hkdf_gives_the_numbers_of_rfc_5869(void **state)
{
	static const struct {
		const char *prk, *info, *okm;
	} rows[] = {
		{ "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
		  "f0f1f2f3f4f5f6f7f8f9",
		  "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
		  "34007208d5b887185865" },
		{ "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
		  "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
		  "d0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeef"
		  "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
		  "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
		  "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
		  "cc30c58179ec3e87c14c01d5c1f3434f1d87" },
		{ "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04", "",
		  "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
		  "9d201395faa4b61a96c8" },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t prk[32], info[128], want[128], got[128];
		size_t n = unhex(rows[i].info, info), len = unhex(rows[i].okm, want);

		assert_int_equal(unhex(rows[i].prk, prk), 32);
		braid_keys_hkdf(prk, info, n, got, len);
		assert_memory_equal(got, want, len);
	}
}

/* RFC 8448, 3: the secrets of application data, and the keys and ivs made of them. */
static void expand_gives_the_numbers_of_rfc_8448(void **state)
{
	static const struct {
		const char *secret, *key, *iv;
	} rows[] = {
		{ "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
		  "17422dda596ed5d9acd890e3c63f5051", "5b78923dee08579033e523d9" },
		{ "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
		  "9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984" },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t secret[32], want[16], key[BRAID_AEAD_KEY_MAX], iv[BRAID_AEAD_IV_SIZE];

		unhex(rows[i].secret, secret);
		braid_keys_expand(secret, BRAID_CIPHER_AES128, key, iv);
		unhex(rows[i].key, want);
		assert_memory_equal(key, want, 16);
		unhex(rows[i].iv, want);
		assert_memory_equal(iv, want, 12);
	}
}

static void assert_bytes(const uint8_t *got, const char *hex)
{
	uint8_t want[64];
	size_t n = unhex(hex, want);

	assert_memory_equal(got, want, n);
}

static const uint8_t e[BRAID_KEY_SIZE] = { 1, 2, 3, 4, 5, 6, 7, 8 };
static uint8_t m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE];

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < BRAID_HELLO_SIZE; i++) {
		m1[i] = (uint8_t)i;
		m2[i] = (uint8_t)(i * 3);
	}
	braid_aead_init();
	return 0;
}

static void traffic_secrets_are_what_the_formula_says(void **state)
{
	uint8_t s[BRAID_TRAFFIC_SIZE];

	(void)state;
	braid_keys_traffic(e, m1, m2, true, s);
	assert_bytes(s, "c29cd429c603581af5739ee06a7f16c416bfc8984b30d5274cf1fbcb1cf37726");
	braid_keys_traffic(e, m1, m2, false, s);
	assert_bytes(s, "7bb4db1583fe9c33084b45af62b4bb0d17b796abf741f2ca5b246a5a0bd6756c");
}

static void the_next_secret_is_what_the_formula_says(void **state)
{
	uint8_t s[BRAID_TRAFFIC_SIZE];

	(void)state;
	unhex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5", s);
	braid_keys_next(s);
	assert_bytes(s, "fcdfcc72725aaee48bf64e4fd8b749cdbdbab39d90da0b26e2245ca6ea167207");
	braid_keys_next(s);
	assert_bytes(s, "68474fe58c172143d0a009a76edd231b0d934f3058588ea0852662279e54a573");
}

static void keys_have_the_size_of_their_cipher(void **state)
{
	uint8_t key[BRAID_AEAD_KEY_MAX + 1], iv[BRAID_AEAD_IV_SIZE + 1];

	(void)state;
	key[32] = iv[12] = 0x5a;
	key[16] = 0x5a;
	braid_keys_expand(e, BRAID_CIPHER_AES128, key, iv);
	assert_bytes(key, "13a22308fbb4c7475e9ade1fc9e3bb745a");
	assert_bytes(iv, "3569cfad5a69a24300b974f75a");
	braid_keys_expand(e, BRAID_CIPHER_AES256, key, iv);
	assert_bytes(key, "3f7df4b45935b7fe30190b99dc2ddf4feefb726f290991220998bc1ae258dbdb5a");
	braid_keys_expand(e, BRAID_CIPHER_CHACHA20, key, iv);
	assert_bytes(key, "3f7df4b45935b7fe30190b99dc2ddf4feefb726f290991220998bc1ae258dbdb5a");
}

static void each_bit_of_key_and_hellos_changes_the_secret(void **state)
{
	uint8_t was[BRAID_TRAFFIC_SIZE], is[BRAID_TRAFFIC_SIZE], k[BRAID_KEY_SIZE];

	(void)state;
	memcpy(k, e, sizeof(k));
	braid_keys_traffic(k, m1, m2, true, was);
	for (unsigned bit = 0; bit < BRAID_HELLO_SIGNED * 8; bit++) {
		uint8_t *at[] = { m1, m2, bit < BRAID_KEY_SIZE * 8 ? k : m1 };

		for (unsigned i = 0; i < 3; i++) {
			at[i][bit / 8] ^= (uint8_t)(1u << bit % 8);
			braid_keys_traffic(k, m1, m2, true, is);
			assert_memory_not_equal(is, was, sizeof(is));
			at[i][bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
	m1[BRAID_HELLO_SIGNED] ^= 1;		/* the MAC itself is not under it */
	braid_keys_traffic(k, m1, m2, true, is);
	m1[BRAID_HELLO_SIGNED] ^= 1;
	assert_memory_equal(is, was, sizeof(is));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hkdf_gives_the_numbers_of_rfc_5869),
		cmocka_unit_test(expand_gives_the_numbers_of_rfc_8448),
		cmocka_unit_test(traffic_secrets_are_what_the_formula_says),
		cmocka_unit_test(the_next_secret_is_what_the_formula_says),
		cmocka_unit_test(keys_have_the_size_of_their_cipher),
		cmocka_unit_test(each_bit_of_key_and_hellos_changes_the_secret),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
