/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_strangers.c - programs that connect to the listening port and do not belong there.
 *
 * A port on a cluster is scanned, probed, and dialled by jobs that have a wrong address.  None of this
 * may reach a comm, delay a peer for more than a second, fill the log or use up descriptors.  Strangers
 * speak over plain sockets (tests/lib/speak.h); the friend is a real peer.
 */
#include "tests/lib/hostile.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HALF_OPEN = 1024, FEW = 64 };	/* the most connections that may wait for their proof */

/* -- silence and noise ------------------------------------------------------------------------ */

struct call {				/* a stranger's first bytes */
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

/* A process that acts on a port when the test asks, and reports when it begins and ends. */
static void crowd(int fd, void (*act)(uint16_t port))
{
	uint16_t port;

	take(fd, &port, sizeof(port));
	meet(fd);
	act(port);
	meet(fd);
	end_well();
}

/* BRAID_TEST_FLOOD_S=n: strangers come for n seconds, 10,000 a second. */
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
		/* Close with RST, not FIN: TIME_WAIT would use up the ports. */
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

/* Half are silent, half send one byte of a good hello each second; all redial when disconnected. */
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

static void sitting(struct abi *t)
{
	struct peer friend = friend_start(t), strangers = peer_start(t, many_sitting);
	unsigned before, most = 0, allowed = HALF_OPEN;
	size_t rss;
	struct stage s;
	struct rlimit lim;
	uint64_t end;

	friend_ready(&friend);
	TRUE(!getrlimit(RLIMIT_NOFILE, &lim));
	if (allowed > lim.rlim_cur / 8)
		allowed = (unsigned)(lim.rlim_cur / 8);
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
	if (most > before + allowed + 4)	/* more: the friend's, and one being accepted */
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

/* -- strangers who know the protocol ---------------------------------------------------------- */

enum { FORGERIES = 9 };

/* A handshake that is right but for one thing; true if the plugin accepts it and stays. */
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
	case 2:				/* a listen that does not exist */
		sp.mine.ident ^= 1ull << rnd_below(t, 64);
		break;
	case 3:				/* a lane of a link that does not exist */
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
	if (what == 7)			/* a proof made without the answer */
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
	stage_quiet(&s, 1);		/* the changed bit may be in the version */
	stage_down(&s);
}

static void replayed(struct abi *t)
{
	_Alignas(16) uint8_t doctored[NCCL_NET_HANDLE_MAXSIZE];
	struct peer friend = friend_start(t), second = friend_start(t);
	struct peer relay = relay_start(t);
	struct record r;
	struct stage s;
	uint8_t m2[BRAID_HELLO_SIZE];

	friend_ready(&friend);
	friend_ready(&second);
	stage_up(t, &s);
	relay_through(&relay, &s.to, doctored);
	friend_served(t, s.net, s.listen, doctored, &friend, "somebody listened");
	relay_record(&relay, &r);
	relay_end(&relay);

	for (int i = 0; i < 200; i++) {
		int fd = speak_connect(s.to.port);

		TRUE(fd >= 0 && speak_write(fd, r.m1, sizeof(r.m1)));
		TRUE(speak_read(fd, m2, sizeof(m2)));
		TRUE(memcmp(m2, r.m2, sizeof(m2)));	/* another nonce */
		speak_write(fd, r.proof, sizeof(r.proof));
		TRUE(speak_closed(fd, 1000));
		close(fd);

		fd = speak_connect(s.to.port);		/* the listener's own answer, reflected */
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

/* A replayed first message passes until the proof is due.  Many of them must not keep peers out. */
static void replay_crowd(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct speaker sp[2 * FEW];
	struct stage s;

	friend_ready(&friend);
	setenv("BRAID_HALF_OPEN", "64", 1);
	stage_up(t, &s);
	for (int i = 0; i < 2 * FEW; i++) {
		speaker_init(&sp[i], &s.to);
		TRUE(speak_dial(&sp[i], &s.to));
		TRUE(speak_until(&sp[i], SPEAK_HELLO, false));
	}
	friend_served(t, s.net, s.listen, s.handle, &friend, "128 said a good hello and no more");
	for (int i = 0; i < 2 * FEW; i++)
		close(sp[i].fd);
	stage_empty(&s);
	stage_quiet(&s, 0);
	stage_down(&s);
}

/* A dialler without the key learns that there is no such listen, and nothing about this process. */
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

static const struct abi_case cases[] = {
	CASE("silent strangers block no peer", silent),
	CASE("strangers that send three bytes block no peer", three_bytes),
	CASE("random bytes, HTTP, TLS and SSH are disconnected at once", noise, ONCE),
	CASE("2000 strangers that come and go block no peer", passing, ONCE),
	CASE("2000 strangers that stay hold 1,024 descriptors", sitting, ONCE),
	CASE("a peer that knows the protocol but not the token is refused", forged, ONCE),
	CASE("a peer without the key does not learn our identity", anonymous, ONCE),
	CASE("a recorded handshake opens nothing", replayed, ONCE),
	CASE("valid hellos without a proof block no peer", replay_crowd, ONCE),
};

ABI_MAIN(cases)
