/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * outage.c - links that lose packets or go down, with --faults.
 *
 * Links go down in a network of the check's own, which takes root or a user namespace; a real port
 * goes down only by the user's own commands.
 */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/validate/far.h"
#include "tools/validate/outage.h"

static void lo_set(struct validate *v, bool up)
{
	struct ifreq r = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
		skip(v, "the network of its own has no lo: %s", strerror(errno));
	r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		skip(v, "lo can't be set: %s", strerror(errno));
	close(fd);
}

void own_network(struct validate *v)
{
	static struct options w;

	if (v->w->connect)
		skip(v, "it breaks a network of its own, on this host alone");
	if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		skip(v, "there can be no network of its own: %s", strerror(errno));
	w = *v->w;
	w.dev = NULL;
	v->w = &w;
	lo_set(v, true);
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	setenv("BRAID_TRANSPORTS", "tcp", 1);
}

bool command(const char *text)
{
	char line[512];
	int status;

	snprintf(line, sizeof(line), "{ %s; } >/dev/null 2>&1 </dev/null", text);
	status = system(line);
	return status == 0;
}

static void traffic(struct validate *v, int rounds)
{
	struct msg m[4] = { { .size = 200000 }, { .size = 100 }, { .size = 1 << 20 },
			    { .size = 5000 } };

	both_up(v);
	for (int i = 0; i < 2; i++) {
		struct conn conn = conn_open(v, i == 0);

		for (int k = 0; k < rounds; k++)
			move(v, &conn, m, 4, 1, NULL, 0);
		conn_close(v, &conn);
	}
	saw(v, "all data came");
}

static void netem(struct validate *v, const char *what)
{
	char line[128];

	own_network(v);
	snprintf(line, sizeof(line), "tc qdisc add dev lo root netem %s", what);
	if (!command(line))
		skip(v, "'%s' does not work here", line);
	step(v, "messages with %s", what);
	traffic(v, 3);
}

static void loss(struct validate *v)
{
	netem(v, "loss 1%");
}

static void delay(struct validate *v)
{
	netem(v, "delay 5ms 2ms");
}

static void reorder(struct validate *v)
{
	netem(v, "delay 2ms reorder 75%");
}

static void duplicate(struct validate *v)
{
	netem(v, "duplicate 5%");
}

/* Take the path down and up again while messages are under way. */
static void outage(struct validate *v, bool (*down)(struct validate *v),
		   bool (*up)(struct validate *v))
{
	struct msg m[4] = { { .size = 4 << 20 }, { .size = 100 }, { .size = 4 << 20 },
			    { .size = 4096 } };
	const char *what;
	struct conn conn;
	pid_t pid;

	both_up(v);
	conn = conn_open(v, true);
	move(v, &conn, m, 4, 1, NULL, 0);
	if (!down(v))
		skip(v, "it can't be taken down");
	pid = fork();
	TRUE(pid >= 0);
	if (pid == 0) {
		nap_ms(1000);
		_exit(up(v) ? 0 : 1);
	}
	step(v, "messages while it is down for a second");
	what = move(v, &conn, m, 4, 1, NULL, MOVE_ERROR_OK);
	waitpid(pid, NULL, 0);
	if (!*what) {
		step(v, "messages after that");
		move(v, &conn, m, 4, 1, NULL, 0);
		conn_close(v, &conn);
	}
	saw(v, "%s", *what ? what : "all data came");
}

bool lo_down(struct validate *v)
{
	lo_set(v, false);
	return true;
}

bool lo_up(struct validate *v)
{
	lo_set(v, true);
	return true;
}

static void link_down(struct validate *v)
{
	own_network(v);
	outage(v, lo_down, lo_up);
}

bool port_down(struct validate *v)
{
	return command(v->w->port_down);
}

bool port_up(struct validate *v)
{
	return command(v->w->port_up);
}

void needs_port(struct validate *v)
{
	if (!v->w->port_down || !v->w->port_up)
		skip(v, "no --port-down CMD and --port-up CMD");
}

static void port(struct validate *v)
{
	needs_port(v);
	outage(v, port_down, port_up);
}

const struct vcheck validate_outage[] = {
	{ "fault-link", "A link that is down for a second: the data, or an error", HANGS, link_down,
	  V_FAULT | V_HERE, 40 },
	{ "fault-loss", "All data, with packets lost", HANGS, loss, V_FAULT | V_HERE, 60 },
	{ "fault-delay", "All data, with packets late", HANGS, delay, V_FAULT | V_HERE, 60 },
	{ "fault-reorder", "All data, with packets in any order", HANGS, reorder, V_FAULT | V_HERE,
	  60 },
	{ "fault-duplicate", "All data, with packets twice", HANGS, duplicate, V_FAULT | V_HERE,
	  60 },
	{ "fault-port", "A port that is down for a second: the data, or an error", HANGS, port,
	  V_FAULT, 60 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
