/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cut.c - an attacker on the path cuts all connections and answers one dial in the peer's place.
 *
 * Without the key it can only refuse, or talk nonsense.  Once does not end a link, since the peer's own
 * answer to the next dial counts for more.
 */
#include "tests/lib/hostile.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum forgery { NO_LINK, NO_LISTEN, JUNK, FORGERIES, END = FORGERIES };
enum { PAIRS = 32, BYTES = 200000 };

static struct {
	int fd[PAIRS][2];		/* the dialler's socket, and one to the listener; -1: ended */
	unsigned n;
} relay;

static void relay_cut(void)
{
	for (unsigned i = 0; i < 2 * relay.n; i++) {
		if (relay.fd[i / 2][i % 2] >= 0)
			speak_reset(relay.fd[i / 2][i % 2]);
	}
	relay.n = 0;
}

static void relay_end_of(unsigned pair, int side)
{
	for (int i = 0; i < 2; i++) {
		if (i == side)
			speak_reset(relay.fd[pair][i]);
		else
			close(relay.fd[pair][i]);
		relay.fd[pair][i] = -1;
	}
}

static void relay_move(const struct pollfd *pfd)
{
	for (unsigned i = 0; i < 2 * relay.n; i++) {
		int to = relay.fd[i / 2][!(i % 2)];
		char buf[65536];
		ssize_t n;

		if (relay.fd[i / 2][i % 2] < 0 || !pfd[i].revents)
			continue;
		n = recv(pfd[i].fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n <= 0 || !speak_write(to, buf, (size_t)n))
			relay_end_of(i / 2, (int)(i % 2));
	}
}

static void forge(int fd, enum forgery what)
{
	static const char junk[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	static const struct braid_handle no_token;
	struct speaker sp;

	speaker_init(&sp, &no_token);
	sp.fd = fd;
	TRUE(speak_hear(&sp));
	if (what == JUNK)
		TRUE(speak_write(fd, junk, sizeof(junk)));
	else
		TRUE(speak_answer(&sp, what == NO_LINK ? BRAID_HELLO_NO_LINK :
							 BRAID_HELLO_NO_LISTEN));
	speak_closed(fd, 1000);
	close(fd);
}

/* Sends its own port over `fd` and gets the listener's; then each byte is what to forge after a cut. */
static void cutter(struct abi *t, int fd)
{
	int listener, forging = -1;
	struct pollfd pfd[2 * PAIRS + 2];
	uint16_t real, port;
	uint8_t order;

	(void)t;
	listener = speak_listen(&port);
	TRUE(listener >= 0);
	give(fd, &port, sizeof(port));
	take(fd, &real, sizeof(real));
	for (;;) {
		unsigned n = 2 * relay.n;

		for (unsigned i = 0; i < n; i++)
			pfd[i] = (struct pollfd){ .fd = relay.fd[i / 2][i % 2], .events = POLLIN };
		pfd[n] = (struct pollfd){ .fd = listener, .events = POLLIN };
		pfd[n + 1] = (struct pollfd){ .fd = fd, .events = POLLIN };
		poll(pfd, n + 2, -1);
		relay_move(pfd);
		if (pfd[n + 1].revents) {
			take(fd, &order, 1);
			if (order == END)
				end_well();
			forging = order;
			relay_cut();
		} else if (pfd[n].revents && forging >= 0) {
			forge(speak_accept(listener), (enum forgery)forging);
			forging = -1;
			give(fd, &order, 1);
		} else if (pfd[n].revents) {
			TRUE(relay.n < PAIRS);
			relay.fd[relay.n][0] = speak_accept(listener);
			relay.fd[relay.n++][1] = speak_connect(real);
		}
	}
}

static void sender(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	for (unsigned i = 0; i < 2; i++) {
		send_one(net, send, BYTES, i);
		meet(fd);
	}
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

/* A link of its own for each: the peer connects, too, past the attacker. */
static void forged(struct stage *s, struct peer *path, struct peer *friend, uint8_t what)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *recv = NULL;
	uint8_t order;

	relay_through(path, &s->to, handle);
	give(friend->fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(s->net, s->listen, &recv));
	recv_one(s->net, recv, BYTES, 0);
	give(path->fd, &what, 1);
	take(path->fd, &order, 1);		/* it has answered in the peer's place */
	meet(friend->fd);
	recv_one(s->net, recv, BYTES, 1);
	meet(friend->fd);
	OK(net_close_recv(s->net, recv));
	peer_join(friend);
	order = END;
	give(path->fd, &order, 1);
	peer_join(path);
}

static void one_refusal(struct abi *t)
{
	struct peer path[FORGERIES], friend[FORGERIES];
	struct stage s;

	for (unsigned i = 0; i < FORGERIES; i++) {
		path[i] = peer_start(t, cutter);
		friend[i] = peer_start(t, sender);
	}
	stage_up(t, &s);
	for (uint8_t i = 0; i < FORGERIES; i++)
		forged(&s, &path[i], &friend[i], i);
	stage_quiet(&s, 0);
	stage_down(&s);
}

static const struct abi_case cases[] = {
	CASE("one answer in the peer's place does not end a link", one_refusal, ONCE),
};

ABI_MAIN(cases)
