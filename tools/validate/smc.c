/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smc.c - SMC: is it there, does it carry the data, and do peers without it work?
 *
 * The kernel falls back to TCP silently.  The plugin asks the kernel whether it did, and logs the
 * answer (BRAID_DEBUG=info).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/validate/far.h"
#include "tools/validate/path.h"

#ifndef AF_SMC
#define AF_SMC 43
#endif

static void kernel(struct validate *v)
{
	int fd = socket(AF_SMC, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		skip(v, "the kernel has no SMC: %s", strerror(errno));
	close(fd);
	saw(v, "the kernel has SMC");
}

static void needs_smc(struct validate *v)
{
	if (!carried_by(v, "smc"))
		skip(v, "SMC does not carry the device: --transport smc,tcp asks for it");
}

/* How many connected SMC sockets this process has. */
static unsigned smc_sockets(void)
{
	unsigned n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		int domain = 0, listens = 0;
		socklen_t a = sizeof(domain), b = sizeof(listens);

		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &a) == 0 && domain == AF_SMC &&
		    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &b) == 0 && !listens)
			n++;
	}
	return n;
}

static void carries(struct validate *v)
{
	struct msg m[2] = { { .size = 1 << 20 }, { .size = 100 } };
	struct conn conn;
	unsigned n;

	both_up(v);
	needs_smc(v);
	conn = conn_open(v, true);
	move(v, &conn, m, 2, 1, NULL, 0);
	n = smc_sockets();
	conn_close(v, &conn);
	if (!n && getenv("FAKE_SMC"))
		note(v, "a fake kernel's sockets are TCP's");
	else if (!n)
		FAIL("no connection is a socket of SMC");
	saw(v, "%u connections are sockets of SMC", n);
}

static void data(struct validate *v)
{
	struct msg m[16];

	both_up(v);
	needs_smc(v);
	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = (size_t)1 << i, .room = 70000 };
	for (int out = 0; out < 2; out++) {
		struct conn conn = conn_open(v, out);

		move(v, &conn, m, 16, 1, NULL, 0);
		conn_close(v, &conn);
	}
}

static void mixed(struct validate *v)
{
	both_up_as(v, FAR_TCP);
	needs_smc(v);
	move_one(v, 300000);
	saw(v, "the other end had TCP alone");
}

static bool smc_carries(struct validate *v)
{
	net_up(v);
	return carried_by(v, "smc");
}

static void forced(struct validate *v)
{
	if (!beforehand(v, smc_carries))
		skip(v, "SMC does not carry the device: --transport smc,tcp asks for it");
	setenv("BRAID_TRANSPORTS", "tcp", 1);
	both_up(v);
	if (carried_by(v, "smc"))
		FAIL("BRAID_TRANSPORTS=tcp, and SMC carries");
	move_one(v, 300000);
}

static const char setup[] = "braid smc says what this host lacks, and braid smc setup adds it";

const struct vcheck validate_smc[] = {
	{ "smc-kernel", "The kernel has SMC", setup, kernel, V_HERE, 0 },
	{ "smc-carries", "Connections are sockets of SMC", setup, carries, 0, 0 },
	{ "smc-data", "Data over SMC", setup, data, V_SOAK, 0 },
	{ "smc-mixed", "A peer that has no SMC is reached over TCP", setup, mixed, 0, 0 },
	{ "smc-without", "Without SMC, where it is not asked for", setup, forced, 0, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
