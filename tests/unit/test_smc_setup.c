/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_smc_setup.c - the end of an SMC lane that listens takes the connection that shows the ticket
 * of the handshake, and no other.  Its sockets are TCP's here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/os.h"
#include "smc/conn.h"

static struct braid_dev dev;
static struct braid_os os;
static uint8_t mine[BRAID_BLOB_SIZE];

static int tcp_socket(int family, int protocol)
{
	(void)family, (void)protocol;
	return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static struct braid_setup accepter(bool has_ticket)
{
	static const uint8_t theirs[BRAID_BLOB_SIZE];
	struct braid_setup s = { .dev = &dev, .to = &dev.net.addr.sa, .has_ticket = has_ticket };

	memset(s.ticket, 0xa5, sizeof(s.ticket));
	assert_int_equal(braid_smc_setup(&s, theirs, mine), 0);
	return s;
}

/* Connect to the port that the accepter has sent, and show that nonce. */
static int show(const uint8_t *nonce)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)(mine[0] | mine[1] << 8));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, nonce, BRAID_SMC_NONCE, MSG_NOSIGNAL), BRAID_SMC_NONCE);
	return fd;
}

/* Is the connection taken within a moment? */
static bool is_taken(struct braid_setup *s)
{
	for (int i = 0; i < 50; i++) {
		if (braid_smc_setup_ready(s) != -EAGAIN)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return false;
}

static int setup(void **state)
{
	(void)state;
	os = *braid_os;
	os.socket = tcp_socket;
	braid_os = &os;
	dev.net.addr.in = (struct sockaddr_in){ .sin_family = AF_INET,
						.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	return 0;
}

static void the_ticket_opens_the_lane_and_does_not_cross_in_advance(void **state)
{
	struct braid_setup s = accepter(true);
	static const uint8_t zero[BRAID_SMC_NONCE];
	int tap, peer;

	(void)state;
	assert_memory_equal(mine + 2, zero, sizeof(zero));
	tap = show(mine + 2);		/* all that somebody who reads the handshake can show */
	assert_false(is_taken(&s));
	peer = show(s.ticket);
	assert_true(is_taken(&s));
	braid_smc_setup_drop(&s);
	close(tap);
	close(peer);
}

static void a_peer_of_version_1_shows_the_nonce_of_the_answer(void **state)
{
	struct braid_setup s = accepter(false);
	int other, peer;

	(void)state;
	other = show(s.ticket);
	assert_false(is_taken(&s));
	peer = show(mine + 2);
	assert_true(is_taken(&s));
	braid_smc_setup_drop(&s);
	close(other);
	close(peer);
}

static struct braid_setup reversed_dialler(void)
{
	struct braid_setup s = { .dev = &dev, .to = &dev.net.addr.sa, .has_ticket = true,
				 .dialler = true, .reversed = true };

	memset(s.ticket, 0xa5, sizeof(s.ticket));
	assert_int_equal(braid_smc_setup(&s, NULL, mine), 0);
	assert_true(mine[0] || mine[1]);
	return s;
}

static void an_older_accepter_listens_so_the_dialler_connects(void **state)
{
	struct braid_setup dialler = reversed_dialler(), s = accepter(true);
	const struct smc_conn *w = dialler.priv;

	(void)state;
	assert_int_equal(braid_smc_setup_peer(&dialler, mine), 0);
	assert_true(w->dial && w->listen_fd < 0);
	assert_true(is_taken(&s));
	braid_smc_setup_drop(&dialler);
	braid_smc_setup_drop(&s);
}

/*
 * Sockets of TCP are unknown to smc_diag, so this dialler gives SMC up with that peer in the end.
 * tests/net/oneway.sh shows a lane that is up.
 */
static void where_only_the_accepter_can_it_connects(void **state)
{
	struct braid_setup dialler = reversed_dialler();
	struct braid_setup s = { .dev = &dev, .to = &dev.net.addr.sa, .has_ticket = true };
	const struct smc_conn *w;
	uint8_t answer[BRAID_BLOB_SIZE];

	(void)state;
	memcpy(s.ticket, dialler.ticket, sizeof(s.ticket));
	assert_int_equal(braid_smc_setup(&s, mine, answer), 0);
	w = s.priv;
	assert_true(w->dial && w->listen_fd < 0);
	assert_false(answer[0] || answer[1]);
	assert_int_equal(braid_smc_setup_peer(&dialler, answer), 0);
	w = dialler.priv;
	assert_true(!w->dial && w->listen_fd >= 0);
	assert_true(is_taken(&dialler));
	assert_true(w->listen_fd < 0);
	braid_smc_setup_drop(&dialler);
	braid_smc_setup_drop(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_ticket_opens_the_lane_and_does_not_cross_in_advance),
		cmocka_unit_test(a_peer_of_version_1_shows_the_nonce_of_the_answer),
		cmocka_unit_test(an_older_accepter_listens_so_the_dialler_connects),
		cmocka_unit_test(where_only_the_accepter_can_it_connects),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
