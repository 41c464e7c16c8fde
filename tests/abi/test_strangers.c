/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_strangers.c - what reaches the listening port without belonging there, and the other way
 * round: what answers where a peer should be.
 *
 * A port on a cluster is scanned, probed and hit by jobs that were told the wrong address.  None
 * of it may reach a comm, cost a peer more than a second, fill the log or the descriptor table.
 * Strangers speak here by hand (tests/lib/speak.h) over plain sockets; the friend is a real peer.
 */
#include "tests/lib/hostile.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HALF_OPEN = 64 };		/* connections that may have proved nothing, at most */
enum { LATE_MS = 20000 };		/* ten times the BRAID_CONNECT_TIMEOUT of those cases */

struct stage {				/* a listen that everybody knows of */
	struct net *net;
	void *listen;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	unsigned warns, infos;
};

static void stage_up(struct abi *t, struct stage *s)
{
	memset(s, 0, sizeof(*s));
	s->net = hostile_up(t);
	OK(net_listen(s->net, 0, s->handle, &s->listen));
	s->to = handle_of(s->handle);
	s->warns = warns();
	s->infos = infos();
}

/* Nothing of all that has come to anything. */
static void stage_empty(struct stage *s)
{
	void *recv = NULL;

	nap_ms(5);
	OK(net_accept(s->net, s->listen, &recv));
	if (recv)
		FAIL("a stranger has been accepted");
}

static void stage_down(struct stage *s)
{
	OK(net_close_listen(s->net, s->listen));
	abi_down(s->net);
}

/* Strangers are counted, not written of one by one: a few lines, whatever their number, and some of friends. */
static void stage_quiet(struct stage *s, unsigned warns_most)
{
	unsigned w = warns() - s->warns, i = infos() - s->infos;

	printf("%u WARN and %u INFO\n", w, i);
	if (w > warns_most)
		FAIL("%u WARN where at most %u should be", w, warns_most);
	if (i > 20)
		FAIL("%u INFO lines", i);
}

/* -- those who say nothing, or nonsense ------------------------------------------------------- */

struct call {				/* what a stranger shouts */
	const char *who;
	const char *text;
	size_t len;
};

#define CALL(who_, text_) { who_, text_, sizeof(text_) - 1 }

static const struct call calls[] = {
	CALL("a browser", "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"),
	CALL("a TLS client", "\x16\x03\x01\x00\x2a\x01\x00\x00\x26\x03\x03 and so on, random, session"),
	CALL("an SSH client", "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"),
	CALL("an RPC probe", "\x80\x00\x00\x28\x72\xfe\x1d\x13\x00\x00\x00\x00\x00\x00\x00\x02"),
	CALL("NCCL's own socket transport", "\x0d\xf0\xfe\xca\xad\xde\xed\xfe\x00\x00\x00\x00"),
};

static void silent(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct stage s;
	int fd[20];

	friend_ready(&friend);
	stage_up(t, &s);
	for (int i = 0; i < 20; i++)
		TRUE((fd[i] = speak_connect(s.to.port)) >= 0);
	nap_ms(20);
	friend_served(t, s.net, s.listen, s.handle, &friend, "20 strangers are silent");
	stage_empty(&s);
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	stage_quiet(&s, 0);
	stage_down(&s);
}

static void three_bytes(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct speaker sp;
	struct stage s;
	int fd[20];

	friend_ready(&friend);
	stage_up(t, &s);
	speaker_init(&sp, &s.to);
	speak_sign(&sp);
	for (int i = 0; i < 20; i++) {
		TRUE((fd[i] = speak_connect(s.to.port)) >= 0);
		TRUE(speak_write(fd[i], sp.m1, 3));
	}
	nap_ms(20);
	friend_served(t, s.net, s.listen, s.handle, &friend, "20 strangers said 3 right bytes");
	stage_empty(&s);
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	stage_quiet(&s, 0);
	stage_down(&s);
}

static void noise(struct abi *t)
{
	struct peer friend = friend_start(t);
	uint8_t garbage[4096];
	struct stage s;

	friend_ready(&friend);
	stage_up(t, &s);
	for (int round = 0; round < 40; round++) {
		const struct call *c = &calls[(size_t)round % (sizeof(calls) / sizeof(calls[0]))];
		int fd = speak_connect(s.to.port), random = speak_connect(s.to.port);

		TRUE(fd >= 0 && random >= 0);
		speak_write(fd, c->text, c->len);
		if (!speak_closed(fd, 1000))
			FAIL("%s is still connected", c->who);
		fill(garbage, sizeof(garbage), rnd(t));
		speak_write(random, garbage, sizeof(garbage));
		TRUE(speak_closed(random, 1000));
		close(fd);
		close(random);
	}
	friend_served(t, s.net, s.listen, s.handle, &friend, "strangers talked nonsense");
	stage_empty(&s);
	stage_quiet(&s, 0);
	stage_down(&s);
}

/* -- crowds ----------------------------------------------------------------------------------- */

/* A process that does one thing to a port when told, says when it has begun and when it is over. */
static void crowd(int fd, void (*act)(uint16_t port))
{
	uint16_t port;

	take(fd, &port, sizeof(port));
	meet(fd);
	act(port);
	meet(fd);
	end_well();
}

/* BRAID_TEST_FLOOD_S=n: they go on coming for n seconds, 10,000 a second. */
static unsigned flood_s(void)
{
	const char *s = getenv("BRAID_TEST_FLOOD_S");

	return s ? (unsigned)strtoul(s, NULL, 10) : 0;
}

static void come_and_go(uint16_t port)
{
	uint64_t begin = now_us(), i, n = 2000 + 10000ull * flood_s();

	for (i = 0; i < n; i++) {
		int fd = speak_connect(port);

		TRUE(fd >= 0);
		/* No TIME_WAIT: there are not so many ports. */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
			   sizeof(struct linger));
		close(fd);
		while (i > 2000 && (now_us() - begin) * 10 < (i - 2000) * 1000)
			usleep(100);
	}
	printf("%llu strangers in %.1f s\n", (unsigned long long)i,
	       (double)(now_us() - begin) / 1e6);
}

static void many_passing(struct abi *t, int fd)
{
	(void)t;
	crowd(fd, come_and_go);
}

static void passing(struct abi *t)
{
	struct peer friend = friend_start(t), strangers = peer_start(t, many_passing);
	struct stage s;

	friend_ready(&friend);
	stage_up(t, &s);
	give(strangers.fd, &s.to.port, sizeof(s.to.port));
	meet(strangers.fd);
	nap_ms(flood_s() * 500);
	friend_served(t, s.net, s.listen, s.handle, &friend, "2000 came and went");
	meet(strangers.fd);
	stage_empty(&s);
	stage_quiet(&s, 0);
	peer_join(&strangers);
	stage_down(&s);
}

enum { SIT = 2000, SIT_MS = 3000 };

/* Half say nothing, half a byte of a good beginning each second; who is thrown out comes again. */
static void sit_there(uint16_t port)
{
	static const uint8_t magic[] = { '!', 'B', 'R', 'A', 'I', 'D', 'W', 'L' };
	struct rlimit lim;
	int *fd = calloc(SIT, sizeof(*fd));
	uint64_t end = now_us() + SIT_MS * 1000;
	unsigned again = 0;

	TRUE(fd && !getrlimit(RLIMIT_NOFILE, &lim));
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	for (unsigned tick = 0; now_us() < end; tick++) {
		for (int i = 0; i < SIT; i++) {
			bool gone = fd[i] && speak_closed(fd[i], 0);

			if (gone)
				close(fd[i]);
			if (!fd[i] || gone) {
				fd[i] = speak_connect(port);
				again += gone;
			}
			if (fd[i] > 0 && i % 2)
				speak_write(fd[i], &magic[tick % sizeof(magic)], 1);
		}
		nap_ms(tick < 2 ? 100 : 1000);
	}
	printf("%u strangers, %u times thrown out\n", SIT, again);
	free(fd);
}

static void many_sitting(struct abi *t, int fd)
{
	(void)t;
	crowd(fd, sit_there);
}

static size_t rss_kib(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	TRUE(f && fscanf(f, "%*u %lu", &pages) == 1);
	fclose(f);
	return pages * 4;
}

static void sitting(struct abi *t)
{
	struct peer friend = friend_start(t), strangers = peer_start(t, many_sitting);
	unsigned before, most = 0;
	size_t rss;
	struct stage s;
	uint64_t end;

	friend_ready(&friend);
	stage_up(t, &s);
	nap_ms(50);
	before = count_fds();
	rss = rss_kib();
	give(strangers.fd, &s.to.port, sizeof(s.to.port));
	meet(strangers.fd);
	for (end = now_us() + 1000000; now_us() < end; nap_ms(10))
		most = count_fds() > most ? count_fds() : most;
	rss = rss_kib() - rss;
	friend_served(t, s.net, s.listen, s.handle, &friend, "2000 sit there or creep");
	for (end = now_us() + 500000; now_us() < end; nap_ms(10))
		most = count_fds() > most ? count_fds() : most;
	meet(strangers.fd);
	printf("v%d: %u more descriptors at the most, %zu KiB more memory\n", t->abi, most - before,
	       rss);
	if (most > before + HALF_OPEN + 4)	/* the friend's, and an accept under way */
		FAIL("%u descriptors more than before", most - before);
#ifndef __SANITIZE_ADDRESS__
	if (rss > 10 << 10)
		FAIL("%zu KiB for strangers", rss);
#endif
	stage_empty(&s);
	stage_quiet(&s, 0);
	peer_join(&strangers);
	stage_down(&s);
}

/* -- those who know the protocol -------------------------------------------------------------- */

enum { FORGERIES = 9 };

/* Say everything right but one thing; true if the other end took it all and stays. */
static bool forge(struct abi *t, const struct braid_handle *to, unsigned what)
{
	struct speaker sp;
	bool in;

	speaker_init(&sp, to);
	TRUE(speak_dial(&sp, to));
	switch (what) {
	case 0:				/* another token */
		sp.key[rnd_below(t, sizeof(sp.key))] ^= (uint8_t)(1 << rnd_below(t, 8));
		break;
	case 1:
		fill(sp.key, sizeof(sp.key), rnd(t));
		break;
	case 2:				/* a listen that is not there */
		sp.mine.ident ^= 1ull << rnd_below(t, 64);
		break;
	case 3:				/* a lane of a link that is not there */
		sp.mine.kind = BRAID_HELLO_LANE;
		break;
	default:
		break;
	}
	speak_sign(&sp);
	switch (what) {
	case 4:				/* one bit changed on the way */
		sp.m1[8 + rnd_below(t, BRAID_HELLO_SIZE - 8)] ^= (uint8_t)(1 << rnd_below(t, 8));
		break;
	case 5:				/* signed as an answer would be */
		braid_auth_answer(sp.key, sp.m1, sp.m1, sp.m1 + BRAID_HELLO_SIGNED);
		break;
	case 6:				/* not signed */
		memset(sp.m1 + BRAID_HELLO_SIGNED, 0, BRAID_MAC_SIZE);
		break;
	default:
		break;
	}
	in = speak_until(&sp, SPEAK_ANSWER, true);
	if (what == 7)			/* the proof of somebody who has not seen the answer */
		braid_auth_proof(sp.key, sp.m1, sp.m1, sp.proof + 8);
	if (what == 8)
		sp.proof[rnd_below(t, 40)] ^= (uint8_t)(1 << rnd_below(t, 8));
	in = in && speak_until(&sp, SPEAK_PROOF, true);
	in = in && !speak_closed(sp.fd, 1000);
	close(sp.fd);
	return in;
}

static void forged(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct stage s;
	uint64_t from;
	unsigned n = 0;

	friend_ready(&friend);
	stage_up(t, &s);
	for (from = now_us(); n < 3000; n++) {
		if (forge(t, &s.to, n % FORGERIES))
			FAIL("forgery %u was believed", n % FORGERIES);
	}
	printf("v%d: %u forged handshakes, %llu us each\n", t->abi, n,
	       (unsigned long long)(now_us() - from) / n);
	stage_empty(&s);
	friend_served(t, s.net, s.listen, s.handle, &friend, "forgers tried");
	stage_quiet(&s, 1);		/* a changed bit may be one of the version */
	stage_down(&s);
}

/* What each end said of a handshake that was overheard. */
struct record {
	uint8_t m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE], proof[BRAID_PROOF_SIZE];
};

/*
 * A process between the two, as is easy on a network: passes everything on, keeps the beginning.
 * It is told the real port, says its own, and hands out the record in the end.
 */
static void eavesdrop(struct abi *t, int fd)
{
	struct pollfd pfd[3];
	uint8_t heard[2][sizeof(struct record)];
	size_t have[2] = { 0, 0 };
	struct record r;
	uint16_t real, port;
	int listener = speak_listen(&port);

	(void)t;
	TRUE(listener >= 0);
	give(fd, &port, sizeof(port));
	take(fd, &real, sizeof(real));
	pfd[0].fd = speak_accept(listener);
	pfd[1].fd = speak_connect(real);
	pfd[2].fd = fd;
	TRUE(pfd[0].fd >= 0 && pfd[1].fd >= 0);
	for (;;) {
		for (int i = 0; i < 3; i++)
			pfd[i].events = POLLIN;
		poll(pfd, 3, -1);
		if (pfd[2].revents)
			break;
		for (int i = 0; i < 2; i++) {
			uint8_t buf[16384];
			ssize_t n = pfd[i].revents ? recv(pfd[i].fd, buf, sizeof(buf), 0) : 0;

			if (n > 0)
				speak_write(pfd[!i].fd, buf, (size_t)n);
			else if (pfd[i].revents)
				shutdown(pfd[!i].fd, SHUT_WR), pfd[i].fd = -1;
			for (ssize_t k = 0; k < n && have[i] < sizeof(heard[i]); k++)
				heard[i][have[i]++] = buf[k];
		}
	}
	TRUE(have[0] >= BRAID_HELLO_SIZE + BRAID_PROOF_SIZE && have[1] >= BRAID_HELLO_SIZE);
	memcpy(r.m1, heard[0], sizeof(r.m1));
	memcpy(r.proof, heard[0] + sizeof(r.m1), sizeof(r.proof));
	memcpy(r.m2, heard[1], sizeof(r.m2));
	meet(fd);
	give(fd, &r, sizeof(r));
	end_well();
}

static void replayed(struct abi *t)
{
	_Alignas(16) uint8_t doctored[NCCL_NET_HANDLE_MAXSIZE];
	struct peer friend = friend_start(t), second = friend_start(t);
	struct peer relay = peer_start(t, eavesdrop);
	struct braid_handle via;
	struct record r;
	struct stage s;
	uint8_t m2[BRAID_HELLO_SIZE];
	uint16_t port;

	friend_ready(&friend);
	friend_ready(&second);
	stage_up(t, &s);
	take(relay.fd, &port, sizeof(port));
	give(relay.fd, &s.to.port, sizeof(s.to.port));
	via = s.to;
	via.port = port;
	braid_handle_pack(&via, doctored);
	friend_served(t, s.net, s.listen, doctored, &friend, "somebody listened");
	meet(relay.fd);
	take(relay.fd, &r, sizeof(r));
	peer_join(&relay);

	for (int i = 0; i < 200; i++) {
		int fd = speak_connect(s.to.port);

		TRUE(fd >= 0 && speak_write(fd, r.m1, sizeof(r.m1)));
		TRUE(speak_read(fd, m2, sizeof(m2)));
		TRUE(memcmp(m2, r.m2, sizeof(m2)));	/* another nonce */
		speak_write(fd, r.proof, sizeof(r.proof));
		TRUE(speak_closed(fd, 1000));
		close(fd);

		fd = speak_connect(s.to.port);		/* its own answer, back to it */
		TRUE(fd >= 0 && speak_write(fd, i % 2 ? r.m2 : m2, sizeof(m2)));
		speak_write(fd, r.proof, sizeof(r.proof));
		TRUE(speak_closed(fd, 1000));
		close(fd);
	}
	stage_empty(&s);
	friend_served(t, s.net, s.listen, s.handle, &second, "recordings were played");
	stage_quiet(&s, 0);
	stage_down(&s);
}

/* A replayed M1 looks like a peer's until the proof is due: they must not keep the others out. */
static void replay_crowd(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct speaker sp[2 * HALF_OPEN];
	struct stage s;

	friend_ready(&friend);
	stage_up(t, &s);
	for (int i = 0; i < 2 * HALF_OPEN; i++) {
		speaker_init(&sp[i], &s.to);
		TRUE(speak_dial(&sp[i], &s.to));
		TRUE(speak_until(&sp[i], SPEAK_HELLO, false));
	}
	friend_served(t, s.net, s.listen, s.handle, &friend, "128 said a good hello and no more");
	for (int i = 0; i < 2 * HALF_OPEN; i++)
		close(sp[i].fd);
	stage_empty(&s);
	stage_quiet(&s, 0);
	stage_down(&s);
}

/* Who asks without a key for what is not there is told that much, and not who we are. */
static void anonymous(struct abi *t)
{
	static const uint8_t nobody[BRAID_ID_SIZE];
	struct stage s;

	stage_up(t, &s);
	for (int i = 0; i < 3; i++) {
		struct braid_hello answer;
		struct speaker sp;

		speaker_init(&sp, &s.to);
		fill(sp.key, sizeof(sp.key), rnd(t));
		if (i == 0)
			sp.mine.least = 7, sp.mine.most = 9;
		if (i == 1)
			sp.mine.ident ^= 1;
		if (i == 2)
			sp.mine.kind = BRAID_HELLO_LANE;
		TRUE(speak_dial(&sp, &s.to));
		TRUE(speak_until(&sp, SPEAK_HELLO, false));
		TRUE(speak_read(sp.fd, sp.m2, sizeof(sp.m2)));
		EQ(0, braid_hello_unpack(sp.m2, &answer));
		TRUE(answer.status != BRAID_HELLO_OK);
		TRUE(!answer.host[0] && !answer.pid);
		TRUE(!memcmp(answer.process, nobody, sizeof(nobody)));
		close(sp.fd);
	}
	stage_empty(&s);
	stage_down(&s);
}

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
	warned("7 to 9", "1 to 1", "127.0.0.1", NULL);
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

/* Dial somebody who answers like that, each time: what connect() says, after how long. */
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
		{ "a version refused", ANSWER_STATUS, { "7 to 9", "1 to 1" } },
		{ "another version", ANSWER_HELLO, { "7 to 9", "1 to 1" } },
		{ "a web server", ANSWER_HTTP, { "not Braid", "version 1" } },
		{ "an SSH server", ANSWER_SSH, { "not Braid", "version 1" } },
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
	warned("7 to 9", "1 to 1", NULL);
	EQ(1, warns());
	abi_down(net);
}

/* -- death in the handshake ------------------------------------------------------------------- */

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

/* Connects, and goes round without end: killed wherever it is. */
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

/* The same with real processes, killed after a time that is chance. */
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
	do {				/* those that had come through are comms, and dead */
		recv = NULL;
		OK(net_accept(s.net, s.listen, &recv));
		OK(net_close_recv(s.net, recv));
	} while (recv);
	friend_served(t, s.net, s.listen, s.handle, &friend, "peers were killed");
	stage_down(&s);
}

struct dying {				/* a listener who dies, once and for all, and our dial */
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

/* One call for each dial that has not come to an end; true once all have. */
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

/* A listener whose queue is full lets SYNs fall without a word, as a firewall does. */
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

/* Somebody who accepts and never says a word. */
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

/* -- descriptors ------------------------------------------------------------------------------ */

struct fillers {
	int n, fd[512];
	struct rlimit old;
};

static void fds_exhaust(struct fillers *f)
{
	struct rlimit lim;
	int fd;

	f->n = 0;
	TRUE(!getrlimit(RLIMIT_NOFILE, &f->old));
	lim = f->old;
	lim.rlim_cur = 256;
	TRUE(!setrlimit(RLIMIT_NOFILE, &lim));
	while ((fd = dup(STDERR_FILENO)) >= 0) {
		TRUE(f->n < 512);
		f->fd[f->n++] = fd;
	}
	EQ(EMFILE, errno);
}

static void fds_return(struct fillers *f)
{
	while (f->n)
		close(f->fd[--f->n]);
	TRUE(!setrlimit(RLIMIT_NOFILE, &f->old));
}

static void accept_without_fds(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct fillers f;
	struct stage s;
	void *recv = NULL;
	uint64_t from;
	unsigned w;

	setenv("BRAID_STAT", "0", 1);	/* whose thread opens some in its own time */
	friend_ready(&friend);
	stage_up(t, &s);
	OK(TIMED(SETUP_MS, net_accept(s.net, s.listen, &recv)));	/* its clock is open now */
	fds_exhaust(&f);
	give(friend.fd, s.handle, sizeof(s.handle));
	for (from = now_us(); now_us() < from + 400000; nap_ms(1)) {
		OK(TIMED(SETUP_MS, net_accept(s.net, s.listen, &recv)));
		TRUE(!recv);
	}
	w = warns() - s.warns;
	fds_return(&f);
	from = now_us();
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	printf("v%d: descriptors came back: accepted %llu us later, %u WARN\n", t->abi,
	       (unsigned long long)(now_us() - from), w);
	EQ(1, w);
	warned("ulimit -n", NULL);
	recv_one(s.net, recv, 100000, 42);
	meet(friend.fd);
	OK(net_close_recv(s.net, recv));
	peer_join(&friend);
	laps_say(t, "accept without descriptors");
	stage_down(&s);
}

/* accept(2) says that there is none before it looks whether anybody else waits for one. */
static void accept_with_the_last_fd(struct abi *t)
{
	struct peer friend;
	struct fillers f;
	struct stage s;
	void *recv = NULL;

	if (over_rdma())
		skip_because("there more than a socket is wanted");
	setenv("BRAID_LANES", "1", 1);		/* a second one would want a second descriptor */
	friend = friend_start(t);
	setenv("BRAID_STAT", "0", 1);
	friend_ready(&friend);
	stage_up(t, &s);
	fds_exhaust(&f);
	close(f.fd[--f.n]);
	give(friend.fd, s.handle, sizeof(s.handle));
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	EQ(0, warns() - s.warns);
	fds_return(&f);
	recv_one(s.net, recv, 100000, 42);
	meet(friend.fd);
	OK(net_close_recv(s.net, recv));
	peer_join(&friend);
	stage_down(&s);
}

static void waiting_body(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1000, 7);
	meet(fd);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void connect_without_fds(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer peer = peer_start(t, waiting_body);
	struct net *net;
	struct fillers f;
	void *send = NULL, *listen = NULL;
	uint64_t from;
	unsigned w;

	setenv("BRAID_STAT", "0", 1);
	net = hostile_up(t);

	OK(net_listen(net, 0, handle, &listen));	/* the thread runs */
	OK(net_close_listen(net, listen));
	take(peer.fd, handle, sizeof(handle));
	TRUE(TIMED(SETUP_MS, true));
	fds_exhaust(&f);
	for (from = now_us(); now_us() < from + 400000; nap_ms(1)) {
		OK(TIMED(SETUP_MS, net_connect(net, 0, handle, &send)));
		TRUE(!send);
	}
	w = warns();
	fds_return(&f);
	from = now_us();
	WAIT_FOR(connect_step(net, handle, &send));
	printf("v%d: descriptors came back: connected %llu us later, %u WARN\n", t->abi,
	       (unsigned long long)(now_us() - from), w);
	EQ(1, w);
	warned("ulimit -n", NULL);
	send_one(net, send, 1000, 7);
	meet(peer.fd);
	OK(net_close_send(net, send));
	peer_join(&peer);
	laps_say(t, "connect without descriptors");
	abi_down(net);
}

static void listen_without_fds(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net = hostile_up(t);
	struct fillers f;
	struct pair p;
	void *listen = NULL;

	fds_exhaust(&f);
	RES(ncclSystemError, net_listen(net, 0, handle, &listen));
	TRUE(!listen);
	EQ(1, warns());
	warned("ulimit -n", NULL);
	fds_return(&f);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* -- forks ------------------------------------------------------------------------------------ */

/*
 * A child made behind libc's back, as posix_spawn's is until it execs, holds a copy of each
 * descriptor, and epoll goes on to tell of what we have closed.
 */
static void fork_holds_on(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct stage s;
	int fd[20];
	pid_t child;

	setenv("BRAID_HALF_OPEN", "4", 1);
	friend_ready(&friend);
	stage_up(t, &s);
	for (int i = 0; i < 4; i++)
		TRUE((fd[i] = speak_connect(s.to.port)) >= 0);
	nap_ms(50);
	child = (pid_t)syscall(SYS_fork);
	if (child == 0) {
		nap_ms(1000);
		_exit(0);
	}
	for (int i = 4; i < 20; i++)		/* the first four are dropped */
		TRUE((fd[i] = speak_connect(s.to.port)) >= 0);
	nap_ms(50);
	for (int i = 0; i < 20; i++) {
		speak_write(fd[i], "surprise", 8);
		close(fd[i]);
	}
	nap_ms(50);
	friend_served(t, s.net, s.listen, s.handle, &friend, "a child held what strangers had");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	stage_empty(&s);
	stage_down(&s);
}

/* What strangers do doesn't depend on how we are called: one ABI version is enough. */
static const struct abi_case cases[] = {
	CASE("silent strangers keep nobody out", silent),
	CASE("strangers who say three bytes keep nobody out", three_bytes),
	CASE("noise, HTTP, TLS and SSH are shown out at once", noise, ONCE),
	CASE("2000 strangers who come and go keep nobody out", passing, ONCE),
	CASE("2000 strangers who stay hold 64 descriptors", sitting, ONCE),
	CASE("who knows the protocol and not the token stays out", forged, ONCE),
	CASE("who has no key does not learn who we are", anonymous, ONCE),
	CASE("a recorded handshake opens nothing", replayed, ONCE),
	CASE("good hellos without a proof keep nobody out", replay_crowd, ONCE),
	CASE("a peer of another version is refused, naming both",
	     other_versions, ONCE, .warns = "wire-version"),
	CASE("what answers and is no peer of ours is named",
	     wrong_answers, .warns = "not-braid wrong-token wire-version"),
	CASE("a handle of another version names both", handle_versions),
	CASE("a peer that dies while it dials harms nobody", died_dialling, ONCE),
	CASE("a peer that is killed while it dials harms nobody", killed_dialling, ONCE),
	CASE("a peer that dies while we dial is a remote error", died_listening, ONCE),
	CASE("a dead port is an error and no call waits", dead_port, ONCE),
	CASE("a SYN without an answer is an error in time and no call waits",
	     black_hole, ONCE, .warns = "no-route"),
	CASE("a listener without a word is an error in time and no call waits",
	     mute_listener, ONCE, .warns = "no-answer"),
	CASE("accept goes on when descriptors come back", accept_without_fds, ONCE),
	CASE("accept takes a peer with the last descriptor", accept_with_the_last_fd, ONCE),
	CASE("connect goes on when descriptors come back",
	     connect_without_fds, ONCE, .warns = "no-descriptors"),
	CASE("listen goes on when descriptors come back", listen_without_fds, ONCE, .warns = "no-start"),
	CASE("a child that holds strangers' descriptors harms nobody", fork_holds_on, ONCE),
};

ABI_MAIN(cases)
