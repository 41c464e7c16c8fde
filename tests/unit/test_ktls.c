/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ktls.c - what is asked of a kernel that has TLS, parts of it or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/proto/aead.h"
#include "core/proto/keys.h"
#include "socket/ktls.h"

enum { PROBE = 70, LANE = 71, ULP = 31, SOL_OF_TLS = 282, SEND = 1, RECEIVE = 2 };

static const uint8_t secret[BRAID_TRAFFIC_SIZE] = "a secret of one direction, of 32";
static const struct braid_os *real_os;
static struct braid_os os;
static struct braid_params saved;

static struct {				/* the kernel */
	int err_ulp, err[3];		/* by direction */
	unsigned ulps, sets, open;
	uint8_t info[3][64];
	socklen_t size[3];
} k;

static int fake_socket(int family, int protocol)
{
	assert_int_equal(family, AF_INET);
	assert_int_equal(protocol, IPPROTO_TCP);
	k.open++;
	return PROBE;
}

static int fake_close(int fd)
{
	assert_int_equal(fd, PROBE);
	k.open--;
	return 0;
}

static int fails(int err)
{
	errno = err;
	return err ? -1 : 0;
}

static int fake_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	if (level == IPPROTO_TCP && name == ULP) {
		assert_int_equal(len, 3);
		assert_memory_equal(val, "tls", 3);
		k.ulps++;
		if (k.err_ulp)
			return fails(k.err_ulp);
		return fails(fd == PROBE ? ENOTCONN : k.sets ? EEXIST : 0);
	}
	assert_int_equal(level, SOL_OF_TLS);
	assert_int_equal(fd, LANE);
	assert_true(name == SEND || name == RECEIVE);
	assert_true(len <= sizeof(k.info[0]));
	k.sets++;
	memcpy(k.info[name], val, len);
	k.size[name] = len;
	return fails(k.err[name]);
}

static int setup(void **state)
{
	(void)state;
	real_os = braid_os;
	os = *real_os;
	os.socket = fake_socket;
	os.close = fake_close;
	os.setsockopt = fake_setsockopt;
	braid_os = &os;
	saved = braid_param;
	strcpy(braid_param.encrypt, "require");
	strcpy(braid_param.encrypt_by, "kernel");
	memset(&k, 0, sizeof(k));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(k.open, 0);
	braid_os = real_os;
	braid_param = saved;
	return 0;
}

static bool take(bool rx)
{
	return braid_ktls_take(LANE, BRAID_CIPHER_AES256, secret, rx);
}

static void the_kernel_gets_key_and_nonce_of_each_direction(void **state)
{
	static const struct {
		uint8_t cipher, number;
		unsigned iv, key, salt, size;
	} layout[] = {
		{ BRAID_CIPHER_AES256, 52, 8, 32, 4, 56 },
		{ BRAID_CIPHER_AES128, 51, 8, 16, 4, 40 },
		{ BRAID_CIPHER_CHACHA20, 54, 12, 32, 0, 56 },
	};
	static const uint8_t zeros[8];

	(void)state;
	braid_ktls_init();
	for (unsigned i = 0; i < sizeof(layout) / sizeof(layout[0]); i++) {
		uint8_t key[BRAID_AEAD_KEY_MAX], iv[BRAID_AEAD_IV_SIZE];
		const uint8_t head[] = { 4, 3, layout[i].number, 0 }, *p = k.info[SEND];

		braid_keys_expand(secret, layout[i].cipher, key, iv);
		assert_true(braid_ktls_take(LANE, layout[i].cipher, secret, false));
		assert_true(braid_ktls_take(LANE, layout[i].cipher, secret, true));
		assert_int_equal(k.size[SEND], layout[i].size);
		assert_int_equal(k.size[RECEIVE], layout[i].size);
		assert_memory_equal(k.info[RECEIVE], p, layout[i].size);
		assert_memory_equal(p, head, sizeof(head));
		p += sizeof(head);
		assert_memory_equal(p, iv + layout[i].salt, layout[i].iv);
		p += layout[i].iv;
		assert_memory_equal(p, key, layout[i].key);
		p += layout[i].key;
		assert_memory_equal(p, iv, layout[i].salt);
		assert_memory_equal(p + layout[i].salt, zeros, sizeof(zeros));
	}
}

static void a_kernel_without_tls_is_asked_once(void **state)
{
	(void)state;
	k.err_ulp = ENOENT;
	braid_ktls_init();
	assert_false(take(false));
	assert_false(take(true));
	assert_true(braid_ktls_keeps_key());
	assert_int_equal(k.ulps, 1);
	assert_int_equal(k.sets, 0);
}

static void a_direction_that_the_kernel_refuses_is_left_to_user_space(void **state)
{
	(void)state;
	k.err[RECEIVE] = EOPNOTSUPP;
	braid_ktls_init();
	assert_true(take(false));
	assert_false(take(true));
	assert_false(take(true));
	assert_true(take(false));
	assert_int_equal(k.sets, 3);		/* what was refused is not asked again */
	assert_true(braid_ktls_take(LANE, BRAID_CIPHER_AES256, secret, false));
	k.err[RECEIVE] = 0;
	assert_true(braid_ktls_take(LANE, BRAID_CIPHER_AES128, secret, true));
}

static void a_connection_that_has_ended_says_nothing_of_the_kernel(void **state)
{
	(void)state;
	braid_ktls_init();
	k.err_ulp = ENOTCONN;
	assert_false(take(false));
	k.err_ulp = 0;
	assert_true(take(false));
}

static void the_kernel_does_what_it_is_asked_for(void **state)
{
	static const struct {
		const char *encrypt, *by;
		bool sends, receives;
	} settings[] = {
		{ "require", "kernel", true, true },
		{ "prefer", "kernel-send", true, false },
		{ "require", "kernel-receive", false, true },
		{ "require", "user", false, false },
		{ "require", "auto", false, false },
		{ "off", "kernel", false, false },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		strcpy(braid_param.encrypt, settings[i].encrypt);
		strcpy(braid_param.encrypt_by, settings[i].by);
		k.ulps = 0;
		braid_ktls_init();
		assert_int_equal(k.ulps, settings[i].sends || settings[i].receives);
		assert_int_equal(braid_ktls_keeps_key(),
				 settings[i].receives || !strcmp(settings[i].encrypt, "off"));
		assert_int_equal(take(false), settings[i].sends);
		assert_int_equal(take(true), settings[i].receives);
	}
}

static void a_false_record_is_told_from_a_lost_connection(void **state)
{
	(void)state;
	assert_int_equal(braid_ktls_error(EBADMSG), -EILSEQ);
	assert_int_equal(braid_ktls_error(EINVAL), -EILSEQ);
	assert_int_equal(braid_ktls_error(EMSGSIZE), -EILSEQ);
	assert_int_equal(braid_ktls_error(EIO), -EILSEQ);
	assert_int_equal(braid_ktls_error(EAGAIN), -EAGAIN);
	assert_int_equal(braid_ktls_error(ECONNRESET), -ECONNRESET);
}

static void no_send_makes_more_records_than_are_counted(void **state)
{
	(void)state;
	assert_true(braid_ktls_records(1) >= 1);
	assert_true(braid_ktls_records(16384) >= 2);
	assert_true(braid_ktls_records(1 << 20) >= 65);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_kernel_gets_key_and_nonce_of_each_direction),
		CASE(a_kernel_without_tls_is_asked_once),
		CASE(a_direction_that_the_kernel_refuses_is_left_to_user_space),
		CASE(a_connection_that_has_ended_says_nothing_of_the_kernel),
		CASE(the_kernel_does_what_it_is_asked_for),
		CASE(a_false_record_is_told_from_a_lost_connection),
		CASE(no_send_makes_more_records_than_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
