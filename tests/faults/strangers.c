/* SPDX-License-Identifier: BSD-3-Clause */
/* strangers.c - F01 to F05: connections from programs other than the plugin; see play.h. */
#include "tests/faults/play.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *const probes[] = {
	"GET / HTTP/1.0\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x16\x03\x01\x02\x00\x01\xfc\x03\x03",
};

static int stranger(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof(*to))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void say(int fd, const void *data, size_t len)
{
	if (fd >= 0)
		(void)!send(fd, data, len, MSG_NOSIGNAL);
}

static void stranger_speaks(const struct run *r, int fd, int how, unsigned i)
{
	uint64_t noise[512];

	if (how == THREE_BYTES)
		say(fd, "abc", 3);
	if (how == COME_AND_GO)
		close(fd);
	if (how != GARBAGE)
		return;
	if (i % 4 < 3) {
		say(fd, probes[i % 4], strlen(probes[i % 4]));
		return;
	}
	for (unsigned w = 0; w < 512; w++)
		noise[w] = mix(r->seed, i * 512 + w);
	say(fd, noise, sizeof(noise));
}

/* Connects from the network between the hosts to every listening port, as long as the run lives. */
static _Noreturn void strangers_live(const struct run *r, int how, unsigned n,
				     const struct sockaddr_in *ports, unsigned n_ports, int ready)
{
	static int fds[20000];

	signal(SIGPIPE, SIG_IGN);
	for (unsigned i = 0; i < n; i++) {
		fds[i] = stranger(&ports[i % n_ports]);
		stranger_speaks(r, fds[i], how, i);
	}
	say(ready, "r", 1);
	for (unsigned i = 0;; i++) {		/* half of the crowd sends a byte a second */
		struct timespec ts = { .tv_nsec = 1000000000 / (n > 1000 ? n : 1000) };

		nanosleep(&ts, NULL);
		if (how == CROWD && i % 2)
			say(fds[i % n], "x", 1);
		if (how == COME_AND_GO)
			close(stranger(&ports[i % n_ports]));
	}
}

static unsigned ports_of(struct run *r, struct sockaddr_in *ret, unsigned room)
{
	static struct inet_diag_sockid ids[256];
	unsigned n = 0;

	for (int host = HOST_A; host <= HOST_B; host++) {
		unsigned found = host_sockets(&r->hosts, host, 1U << TCP_LISTEN, ids, 256);

		for (unsigned i = 0; i < found && n < room; i++, n++) {
			ret[n] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = ids[i].idiag_sport };
			inet_pton(AF_INET, host_address(&r->hosts, host, 0), &ret[n].sin_addr);
		}
	}
	return n;
}

void play_strangers(struct run *r)
{
	struct sockaddr_in ports[64];
	int how = r->row->arg[0], fds[2];
	unsigned n = (unsigned)r->row->arg[1], n_ports;
	pid_t pid;
	char byte;

	run_starts(r);
	n_ports = ports_of(r, ports, 64);
	if (!n_ports)
		run_fails(r, "nobody listens");
	if (r->o->soak && r->row->arg[2])
		n = (unsigned)r->row->arg[2];
	must(r, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	run_faults(r);
	pid = run_helper(r);
	if (pid == 0) {
		close(fds[0]);
		if (!host_enter(&r->hosts, HOST_M))
			_exit(1);
		strangers_live(r, how, n, ports, n_ports, fds[1]);
	}
	close(fds[1]);
	if (read(fds[0], &byte, 1) != 1)
		run_fails(r, "the strangers are gone");
	run_note(r, "%u of them, %u ports", n, n_ports);
	run_opens(r);
	if (r->setup_s > 10.0 * r->o->slow)
		run_fails(r, "the real peer was accepted after %.1f s", r->setup_s);
	run_talks(r);
	run_helper_ends(pid);
	run_healed(r);
	run_recovers(r);
}
