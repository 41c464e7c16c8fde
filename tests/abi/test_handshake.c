/* SPDX-License-Identifier: BSD-3-Clause */
/* test_handshake.c - failed handshakes: a wrong version, a false peer, no answer, a death. */
#include "tests/lib/hostile.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LATE_MS = 20000 };		/* ten times the BRAID_CONNECT_TIMEOUT of those cases */

/* -- versions --------------------------------------------------------------------------------- */

static void other_versions(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct stage s;

	friend_ready(&friend);
	stage_up(t, &s);
	for (int i = 0; i < 100; i++) {
		struct braid_hello answer;
		uint8_t m2[BRAID_HELLO_SIZE];
		struct speaker sp;

		speaker_init(&sp, &s.to);
		sp.mine.least = 7;
		sp.mine.most = 9;
		TRUE(speak_dial(&sp, &s.to));
		TRUE(speak_until(&sp, SPEAK_HELLO, false));
		TRUE(speak_read(sp.fd, m2, sizeof(m2)));
		EQ(0, braid_hello_unpack(m2, &answer));
		EQ(BRAID_HELLO_VERSION, answer.status);
		EQ(BRAID_WIRE_LEAST, answer.least);
		EQ(BRAID_WIRE_MOST, answer.most);
		TRUE(speak_closed(sp.fd, 1000));
		close(sp.fd);
	}
	warned("7 to 9", "1 to 2", "127.0.0.1", NULL);
	stage_empty(&s);
	friend_served(t, s.net, s.listen, s.handle, &friend, "others spoke another version");
	stage_quiet(&s, 1);
	stage_down(&s);
}

enum answer { ANSWER_STATUS, ANSWER_HELLO, ANSWER_HTTP, ANSWER_SSH, ANSWER_KEY, ANSWER_REFLECTED };

static void answer_once(struct abi *t, int listener, const struct braid_handle *to, enum answer how)
{
	static const char http[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
	static const char ssh[] = "SSH-2.0-OpenSSH_9.2p1\r\n";
	struct speaker sp;

	speaker_init(&sp, to);
	TRUE((sp.fd = speak_accept(listener)) >= 0);
	if (how == ANSWER_SSH)
		TRUE(speak_write(sp.fd, ssh, sizeof(ssh) - 1));
	TRUE(speak_hear(&sp));
	if (how == ANSWER_STATUS || how == ANSWER_HELLO)
		sp.mine.least = 7, sp.mine.most = 9;
	if (how == ANSWER_KEY)
		fill(sp.key, sizeof(sp.key), rnd(t));
	if (how == ANSWER_HTTP)
		TRUE(speak_write(sp.fd, http, sizeof(http) - 1));
	else if (how == ANSWER_REFLECTED)
		TRUE(speak_write(sp.fd, sp.m1, sizeof(sp.m1)));
	else if (how != ANSWER_SSH)
		TRUE(speak_answer(&sp, how == ANSWER_STATUS ? BRAID_HELLO_VERSION : BRAID_HELLO_OK));
	speak_closed(sp.fd, 1000);
	close(sp.fd);
}

/* Dials a listener that answers like that each time; returns connect()'s result, and how long it took. */
static ncclResult_t answered(struct abi *t, struct net *net, enum answer how, unsigned *ret_ms)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	ncclResult_t res = ncclSuccess;
	uint16_t port;
	struct pollfd pfd = { .fd = speak_listen(&port), .events = POLLIN };
	uint64_t from = now_us(), end = deadline_ms(10000);
	void *send = NULL;

	TRUE(pfd.fd >= 0);
	handle_forge(handle, port, &to);
	while (res == ncclSuccess && !send) {
		if (poll(&pfd, 1, 0) > 0)
			answer_once(t, pfd.fd, &to, how);
		res = TIMED(SETUP_MS, net_connect(net, 0, handle, &send));
		wait_tick(end, __FILE__, __LINE__, "what connect() has to say");
	}
	*ret_ms = (unsigned)((now_us() - from) / 1000);
	close(pfd.fd);
	return res;
}

static void wrong_answers(struct abi *t)
{
	static const struct {
		const char *what;
		enum answer how;
		const char *words[2];
	} rows[] = {
		{ "a version refused", ANSWER_STATUS, { "7 to 9", "1 to 2" } },
		{ "another version", ANSWER_HELLO, { "7 to 9", "1 to 2" } },
		{ "a web server", ANSWER_HTTP, { "not Braid", "version 2" } },
		{ "an SSH server", ANSWER_SSH, { "not Braid", "version 2" } },
		{ "another token", ANSWER_KEY, { "token", "127.0.0.1" } },
		{ "our own words", ANSWER_REFLECTED, { "token", "127.0.0.1" } },
	};
	struct net *net = hostile_up(t);
	struct pair p;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned before = warns(), ms;

		RES(ncclInvalidUsage, answered(t, net, rows[i].how, &ms));
		printf("v%d: %s: said after %u ms\n", t->abi, rows[i].what, ms);
		if (warns() != before + 1)
			FAIL("%s: %u WARN, not one", rows[i].what, warns() - before);
		warned(rows[i].words[0], rows[i].words[1], NULL);
	}
	laps_say(t, "wrong answers");
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

static void handle_versions(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net = hostile_up(t);
	struct braid_handle to;
	void *send;
	unsigned ms;

	handle_forge(handle, 9, &to);
	to.least = 7;
	to.most = 9;
	braid_handle_pack(&to, handle);
	RES(ncclInvalidUsage, connect_for(net, handle, 1000, &send, &ms));
	warned("7 to 9", "1 to 2", NULL);
	EQ(1, warns());
	abi_down(net);
}

/* -- a peer that dies during the handshake ----------------------------------------------------- */

static void died_dialling(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct stage s;

	friend_ready(&friend);
	stage_up(t, &s);
	for (int round = 0; round < 20 * SPEAK_STEPS; round++) {
		enum speak_step last = (enum speak_step)(round % SPEAK_STEPS);
		struct speaker sp;

		speaker_init(&sp, &s.to);
		TRUE(speak_dial(&sp, &s.to));
		TRUE(speak_until(&sp, last, false));
		if (round / SPEAK_STEPS % 2)
			speak_reset(sp.fd);
		else
			close(sp.fd);
	}
	stage_empty(&s);
	friend_served(t, s.net, s.listen, s.handle, &friend, "peers died at each step");
	stage_down(&s);
}

/* Connects again and again, until it is killed at any point of a handshake. */
static void victim_body(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net = abi_up(t);

	meet(fd);
	for (;;) {
		void *send = NULL;

		take(fd, handle, sizeof(handle));
		while (!send)
			connect_step(net, handle, &send);
	}
}

/* Real processes, each killed after a random time. */
static void killed_dialling(struct abi *t)
{
	enum { VICTIMS = 12 };
	struct peer victim[VICTIMS], friend = friend_start(t);
	struct stage s;
	void *recv = NULL;

	for (int i = 0; i < VICTIMS; i++)
		victim[i] = peer_start(t, victim_body);
	for (int i = 0; i < VICTIMS; i++)
		meet(victim[i].fd);
	friend_ready(&friend);
	stage_up(t, &s);
	for (int i = 0; i < VICTIMS; i++) {
		give(victim[i].fd, s.handle, sizeof(s.handle));
		usleep(rnd_below(t, 3000));
		peer_kill(&victim[i]);
	}
	nap_ms(50);
	do {				/* comms of victims that had connected */
		recv = NULL;
		OK(net_accept(s.net, s.listen, &recv));
		OK(net_close_recv(s.net, recv));
	} while (recv);
	friend_served(t, s.net, s.listen, s.handle, &friend, "peers were killed");
	stage_down(&s);
}

struct dying {				/* a listener that dies for good, and the dial to it */
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	enum speak_step last;
	bool reset;
	void *send;
	ncclResult_t res;
	uint64_t at_us;
	unsigned ms;
};

static void die_listening(struct net *net, struct dying *d)
{
	struct braid_handle to;
	struct speaker sp;
	uint16_t port;
	int listener = speak_listen(&port);

	TRUE(listener >= 0);
	handle_forge(d->handle, port, &to);
	connect_begins(net, d->handle, listener, &d->send);
	speaker_init(&sp, &to);
	TRUE((sp.fd = speak_accept(listener)) >= 0);
	if (d->last >= SPEAK_HALF_HELLO)
		TRUE(speak_read(sp.fd, sp.m1, sizeof(sp.m1) / 2));
	if (d->last >= SPEAK_HELLO) {
		TRUE(speak_read(sp.fd, sp.m1 + sizeof(sp.m1) / 2, sizeof(sp.m1) / 2));
		TRUE(!braid_hello_unpack(sp.m1, &sp.theirs));
	}
	if (d->last >= SPEAK_ANSWER)
		TRUE(speak_answer(&sp, BRAID_HELLO_OK));
	if (d->last >= SPEAK_PROOF)
		TRUE(speak_believe(&sp));
	close(listener);
	if (d->reset)
		speak_reset(sp.fd);
	else
		close(sp.fd);
	d->at_us = now_us();
}

/* One call for each dial that is not over yet; true once all are. */
static bool dying_step(struct net *net, struct dying *d, unsigned n)
{
	bool all = true;

	for (unsigned i = 0; i < n; i++) {
		if (d[i].ms)
			continue;
		d[i].res = TIMED(SETUP_MS, net_connect(net, 0, d[i].handle, &d[i].send));
		if (d[i].res != ncclSuccess || d[i].send)
			d[i].ms = 1 + (unsigned)((now_us() - d[i].at_us) / 1000);
		else
			all = false;
	}
	return all;
}

static void died_listening(struct abi *t)
{
	static const enum speak_step steps[] = {
		SPEAK_CONNECTED, SPEAK_HALF_HELLO, SPEAK_HELLO, SPEAK_ANSWER, SPEAK_PROOF,
	};
	enum { STEPS = sizeof(steps) / sizeof(steps[0]) };
	struct net *net = hostile_up(t);
	struct dying d[2 * STEPS] = { 0 };
	struct pair p;

	for (int i = 0; i < 2 * STEPS; i++) {
		d[i].last = steps[i % STEPS];
		d[i].reset = i >= STEPS;
		die_listening(net, &d[i]);
	}
	WAIT_FOR(dying_step(net, d, 2 * STEPS));
	for (int i = 0; i < 2 * STEPS; i++) {
		printf("v%d: died at step %u by %s: said after %u ms\n", t->abi, d[i].last,
		       d[i].reset ? "RST" : "FIN", d[i].ms);
		RES(ncclRemoteError, d[i].res);
		TRUE(!d[i].send);
	}
	laps_say(t, "peers that died while we dialled");
	EQ(2 * STEPS, warns());
	warned("127.0.0.1", NULL);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* -- nobody there ----------------------------------------------------------------------------- */

static void dead_port(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net = hostile_up(t);
	struct braid_handle to;
	uint16_t port;
	unsigned ms;
	void *send;
	int fd = speak_listen(&port);

	TRUE(fd >= 0);
	close(fd);
	handle_forge(handle, port, &to);
	RES(ncclRemoteError, connect_for(net, handle, 10000, &send, &ms));
	printf("v%d: a dead port: said after %u ms\n", t->abi, ms);
	laps_say(t, "a dead port");
	EQ(1, warns());
	warned("127.0.0.1", NULL);
	abi_down(net);
}

/* A listener with a full queue drops SYNs silently, as a firewall does. */
static void black_hole(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	struct net *net;
	uint16_t port;
	unsigned ms;
	void *send;
	int fd = speak_listen(&port), in[4];

	setenv("BRAID_CONNECT_TIMEOUT", "2", 1);
	net = hostile_up(t);
	TRUE(fd >= 0 && !listen(fd, 0));
	for (int i = 0; i < 4; i++) {
		struct sockaddr_in sa = {
			.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
			.sin_port = htons(port),
		};

		in[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		TRUE(in[i] >= 0);
		connect(in[i], (struct sockaddr *)&sa, sizeof(sa));
	}
	nap_ms(20);
	handle_forge(handle, port, &to);
	RES(ncclRemoteError, connect_for(net, handle, 30000, &send, &ms));
	printf("v%d: no answer to SYN, 2 s allowed: said after %u ms\n", t->abi, ms);
	laps_say(t, "no answer to SYN");
	if (deadline_ms(LATE_MS) - now_us() < (uint64_t)ms * 1000)
		FAIL("said after %u ms where BRAID_CONNECT_TIMEOUT is 2 s", ms);
	EQ(1, warns());
	warned("127.0.0.1", "BRAID_CONNECT_TIMEOUT", NULL);
	for (int i = 0; i < 4; i++)
		close(in[i]);
	close(fd);
	abi_down(net);
}

/* A listener that accepts and never sends anything. */
static void mute_listener(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	struct net *net;
	uint16_t port;
	unsigned ms;
	void *send;
	int fd = speak_listen(&port);

	setenv("BRAID_CONNECT_TIMEOUT", "2", 1);
	net = hostile_up(t);
	TRUE(fd >= 0);
	handle_forge(handle, port, &to);
	RES(ncclRemoteError, connect_for(net, handle, 30000, &send, &ms));
	printf("v%d: accepted, no word, 2 s allowed: said after %u ms\n", t->abi, ms);
	laps_say(t, "a mute listener");
	if (deadline_ms(LATE_MS) - now_us() < (uint64_t)ms * 1000)
		FAIL("said after %u ms where BRAID_CONNECT_TIMEOUT is 2 s", ms);
	EQ(1, warns());
	close(fd);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("a peer of another version is refused, and the log names both versions",
	     other_versions, ONCE, .warns = "wire-version"),
	CASE("an answer from a program other than Braid is named as such",
	     wrong_answers, .warns = "not-braid wrong-token wire-version"),
	CASE("a handle of another version is refused, and the log names both versions",
	     handle_versions),
	CASE("a peer that dies while it dials harms no other peer", died_dialling, ONCE),
	CASE("a peer that is killed while it dials harms no other peer", killed_dialling, ONCE),
	CASE("a peer that dies while we dial is a remote error", died_listening, ONCE),
	CASE("a dead port is an error and no call waits", dead_port, ONCE),
	CASE("a SYN without an answer is an error in time and no call waits",
	     black_hole, ONCE, .warns = "no-route"),
	CASE("a listener that never answers is an error in time and no call waits",
	     mute_listener, ONCE, .warns = "no-answer"),
};

ABI_MAIN(cases)
