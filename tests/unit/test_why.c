/* SPDX-License-Identifier: BSD-3-Clause */
/* test_why.c - the WARN for each way in which a dial can fail. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/param.h"
#include "core/setup/addr.h"
#include "core/setup/conn.h"
#include "core/setup/why.h"
#include "tests/lib/pair.h"
#include "topo/neigh.h"

static enum braid_neigh neigh;

enum braid_neigh __wrap_braid_neigh_get(const struct sockaddr *to, unsigned ifindex);
enum braid_neigh __wrap_braid_neigh_get(const struct sockaddr *to, unsigned ifindex)
{
	(void)to;
	(void)ifindex;
	return neigh;
}

#define H BRAID_DIAL_HERE
#define T BRAID_DIAL_TCP
#define P BRAID_DIAL_PEER

static const struct {
	enum braid_dial_stage stage;
	int err, ret;			/* errnos; ret is what the link fails with */
	enum braid_neigh neigh;
	uint8_t status;			/* of the peer's hello */
	const char *says, *not;
} rows[] = {
	{ H, EAFNOSUPPORT, EPROTONOSUPPORT, 0, 0, "[no-ip-version]", "route" },
	{ H, EADDRINUSE, EADDRINUSE, 0, 0, "[no-local-port]", "another interface" },
	{ H, EADDRINUSE, EADDRINUSE, 0, 0, "net.ipv4.ip_local_port_range", "route" },
	{ H, EADDRNOTAVAIL, EADDRNOTAVAIL, 0, 0, "[address-gone]", "route" },
	{ H, EACCES, EPERM, 0, 0, "[forbidden-here]", "token" },
	{ H, EPERM, EPERM, 0, 0, "[forbidden-here]", "token" },
	{ H, ENOMEM, ENOMEM, 0, 0, "[cannot-connect]", "route" },
	{ H, EMFILE, EMFILE, 0, 0, "ulimit -n [cannot-connect]", "route" },
	{ H, ENOSPC, ENOSPC, 0, 0, "fs.epoll.max_user_watches [cannot-connect]", "No space" },
	{ H, ENETUNREACH, EREMOTEIO, 0, 0, "check the route", "firewall" },
	{ H, EINVAL, EREMOTEIO, 0, 0, "[no-route]", "firewall" },

	{ T, ECONNREFUSED, EREMOTEIO, 0, 0, "[connection-refused]", "BRAID_CONNECT_TIMEOUT" },
	{ T, ECONNREFUSED, EREMOTEIO, 0, 0, "or a firewall or NAT answers", "nobody" },
	{ T, ETIMEDOUT, EREMOTEIO, BRAID_NEIGH_UNKNOWN, 0, "is there a firewall", "stopped" },
	{ T, ETIMEDOUT, EREMOTEIO, BRAID_NEIGH_ANSWERS, 0, "a firewall drops it", "stopped" },
	{ T, EHOSTUNREACH, EREMOTEIO, BRAID_NEIGH_ANSWERS, 0, "[firewall-rejects]", "check the route" },
	{ T, EHOSTUNREACH, EREMOTEIO, BRAID_NEIGH_UNKNOWN, 0, "or the gateway is down", "token" },
	{ T, EHOSTUNREACH, EREMOTEIO, BRAID_NEIGH_SILENT, 0, "no host has the address", "firewall" },
	{ T, EACCES, EREMOTEIO, BRAID_NEIGH_ANSWERS, 0, "[firewall-rejects]", "token" },
	{ T, ENETUNREACH, EREMOTEIO, 0, 0, "[no-route]", "firewall" },

	{ P, EPROTONOSUPPORT, EPROTONOSUPPORT, 0, 0, "[wire-version]", NULL },
	{ P, EPROTO, EPROTONOSUPPORT, 0, 0, "[not-braid]", NULL },
	{ P, EBADMSG, EPROTONOSUPPORT, 0, 0, "[not-braid]", "route" },
	{ P, EACCES, EACCES, 0, 0, "[wrong-token]", NULL },
	{ P, EKEYREJECTED, EACCES, 0, BRAID_HELLO_SECRET, "has no secret", "token" },
	{ P, EKEYREJECTED, EACCES, 0, 0, "or none: every process", NULL },
	{ P, EREMOTEIO, EREMOTEIO, 0, BRAID_HELLO_NO_LISTEN, "no longer listens", NULL },
	{ P, EREMOTEIO, EREMOTEIO, 0, BRAID_HELLO_NO_TRANSPORT, "BRAID_TRANSPORTS", NULL },
	{ P, EREMOTEIO, EREMOTEIO, 0, BRAID_HELLO_NO_LINK, "it refused [peer-refused]", NULL },
	{ P, ETIMEDOUT, EREMOTEIO, 0, 0, "[no-answer]", "firewall" },
	{ P, ENOTCONN, EREMOTEIO, 0, 0, "[peer-hangs-up]", "route" },
	{ P, ECONNRESET, EREMOTEIO, 0, 0, "[peer-hangs-up]", "route" },
	{ P, ENOMEM, ENOMEM, 0, 0, "[cannot-connect]", "route" },
};

static void a_dial_that_fails_names_its_cause_and_no_other(void **state)
{
	struct null_config config = { 0 };
	struct null_pair p;

	(void)state;
	null_pair_init(&p, &config);
	p.dev[0].net.addr.in = (struct sockaddr_in){ .sin_family = AF_INET };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_link_key key = { .dev = &p.dev[0] };
		struct braid_link *link = braid_link_new(&key);
		struct braid_conn c = {
			.dialler = true, .met = &p.dev[0], .theirs.status = rows[i].status,
		};
		struct sockaddr_in *to = (struct sockaddr_in *)&c.to;

		assert_non_null(link);
		to->sin_family = AF_INET;
		to->sin_addr.s_addr = htonl(0xc6336401);	/* 198.51.100.1, nobody's */
		to->sin_port = htons(4711);
		link->npaths = 1;
		link->setup.path[0].dev = &p.dev[0];
		link->setup.path[0].to = braid_addr_of((struct sockaddr *)to);
		neigh = rows[i].neigh;
		warns_clear();
		braid_why_dial(link, rows[i].stage == BRAID_DIAL_HERE ? NULL : &c, rows[i].stage,
			       -rows[i].err);
		assert_int_equal(warn_count, 1);
		assert_int_equal(atomic_load(&link->err), -rows[i].ret);
		if (!strstr(warn_text, rows[i].says))
			fail_msg("row %zu: no \"%s\" in: %s", i, rows[i].says, warn_text);
		if (rows[i].not && strstr(warn_text, rows[i].not))
			fail_msg("row %zu: \"%s\" in: %s", i, rows[i].not, warn_text);
		braid_link_free(link);
	}
	null_pair_fini(&p);
}

static void how_far_a_dial_came_decides_what_an_errno_means(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_CONNECT };

	(void)state;
	assert_int_equal(braid_dial_stage(NULL, -EACCES), BRAID_DIAL_HERE);
	assert_int_equal(braid_dial_stage(NULL, -ECONNREFUSED), BRAID_DIAL_TCP);
	assert_int_equal(braid_dial_stage(&c, -EACCES), BRAID_DIAL_TCP);
	c.state = BRAID_CONN_RX_ANSWER;
	assert_int_equal(braid_dial_stage(&c, -EACCES), BRAID_DIAL_PEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dial_that_fails_names_its_cause_and_no_other),
		cmocka_unit_test(how_far_a_dial_came_decides_what_an_errno_means),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
