/* SPDX-License-Identifier: BSD-3-Clause */
/* test_sealed.c - records that are opened as they come, and one that never ends: socket/sealed.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/proto/aead.h"
#include "socket/sealed.h"

enum { MS = 1000000 };

static const uint8_t secret[BRAID_KEY_SIZE] = { 1, 2, 3 };
static struct braid_os os;
static uint64_t now = 1000000000;
static struct braid_records *sender;
static struct braid_unseal receiver;
static int fd[2];

static uint64_t now_ns(void)
{
	return now;
}

static int setup(void **state)
{
	(void)state;
	braid_aead_init();
	os = *braid_os;
	os.now_ns = now_ns;
	braid_os = &os;
	sender = braid_records_new(BRAID_CIPHER_CHACHA20, secret, true);
	assert_non_null(sender);
	memset(&receiver, 0, sizeof(receiver));
	assert_int_equal(braid_unseal_init(&receiver, BRAID_CIPHER_CHACHA20, secret), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(fd[0]);
	close(fd[1]);
	braid_unseal_fini(&receiver);
	braid_records_free(sender);
	return 0;
}

/* Seals 48 bytes; `longer` is added to the length that the record says. */
static size_t seal(uint8_t *out, unsigned longer)
{
	char frame[48] = "frame";
	struct iovec iov = { frame, sizeof(frame) };
	ssize_t n = braid_records_seal(sender, &iov, 1, 0, sizeof(frame), out);

	assert_int_equal(n, sizeof(frame) + BRAID_RECORD_EXTRA);
	out[3] = (uint8_t)(out[3] + (longer >> 8));
	return (size_t)n;
}

static ssize_t receive(void)
{
	static char to[BRAID_SEALED_ROOM];
	bool dry = false;

	return braid_unseal_read(&receiver, fd[1], to, &dry);
}

static void send_some(const uint8_t *p, size_t n)
{
	assert_int_equal(write(fd[0], p, n), n);
}

static void a_record_may_come_in_pieces_and_late(void **state)
{
	uint8_t out[256];
	size_t n = seal(out, 0);

	(void)state;
	send_some(out, 10);
	assert_int_equal(receive(), -EAGAIN);
	now += (uint64_t)60000 * MS;		/* its sender was stopped meanwhile */
	assert_int_equal(receive(), -EAGAIN);
	send_some(out + 10, 1);
	assert_int_equal(receive(), -EAGAIN);
	send_some(out + 11, n - 11);
	assert_int_equal(receive(), 48);
}

static void a_record_that_is_not_complete_after_many_others_ends_the_lane(void **state)
{
	uint8_t out[256];
	unsigned i = 0;
	ssize_t n;

	(void)state;
	send_some(out, seal(out, 16 << 8));
	while ((n = receive()) == -EAGAIN && i < 100) {
		i++;
		now += (uint64_t)256 * MS;	/* as ALIVE frames come */
		send_some(out, seal(out, 0));
	}
	assert_int_equal(n, -ETIMEDOUT);
	assert_in_range(i, 5, 12);		/* within some seconds */
}

static void each_record_that_is_opened_begins_the_count_anew(void **state)
{
	uint8_t out[256];

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		size_t n = seal(out, 0);

		send_some(out, 20);
		assert_int_equal(receive(), -EAGAIN);
		now += (uint64_t)1000 * MS;
		send_some(out + 20, n - 20);
		assert_int_equal(receive(), 48);
	}
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_record_may_come_in_pieces_and_late),
		CASE(a_record_that_is_not_complete_after_many_others_ends_the_lane),
		CASE(each_record_that_is_opened_begins_the_count_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
