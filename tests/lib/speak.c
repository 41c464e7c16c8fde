/* SPDX-License-Identifier: BSD-3-Clause */
/* speak.c - see speak.h. */
#include "tests/lib/speak.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/transport.h"

static const uint8_t proof_tag[8] = { '!', 'B', 'R', 'P', 'R', 'O', 'O', 'F' };

/* -- sockets ------------------------------------------------------------------------------ */

static int patient(int fd)
{
	struct timeval tv = { .tv_sec = SPEAK_WAIT_S };
	int one = 1;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

int speak_listen(uint16_t *ret_port)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&in, sizeof(in)) || listen(fd, 64) ||
	    getsockname(fd, (struct sockaddr *)&in, &len)) {
		close(fd);
		return -1;
	}
	*ret_port = ntohs(in.sin_port);
	return patient(fd);
}

int speak_connect(uint16_t port)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(port),
	};
	int fd = patient(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));

	if (fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof(in))) {
		close(fd);
		return -1;
	}
	return fd;
}

int speak_accept(int listener)
{
	return patient(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
}

bool speak_write(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

bool speak_read(int fd, void *data, size_t len)
{
	uint8_t *p = data;

	while (len) {
		ssize_t n = recv(fd, p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool speak_closed(int fd, unsigned ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int64_t end = now_ms() + ms, left;
	char drop[4096];

	while ((left = end - now_ms()) >= 0) {
		ssize_t n;

		if (poll(&pfd, 1, (int)left) <= 0)
			continue;
		n = recv(fd, drop, sizeof(drop), MSG_DONTWAIT);
		if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
			return true;
	}
	return false;
}

void speak_reset(int fd)
{
	struct linger hard = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(fd);
}

/* -- handshakes --------------------------------------------------------------------------- */

static void draw(void *buf, size_t len)
{
	while (getrandom(buf, len, 0) != (ssize_t)len)
		;
}

void speaker_draw(struct speaker *s)
{
	draw(s->secret, sizeof(s->secret));
	braid_auth_public(s->secret, s->mine.nonce);
}

/* Both hellos are there: make the key of this handshake. */
static bool exchange(struct speaker *s)
{
	memcpy(s->made, s->key, sizeof(s->made));
	if (s->has_job && s->theirs.status != BRAID_HELLO_SECRET &&
	    s->mine.status != BRAID_HELLO_SECRET)
		braid_auth_mix(s->job, s->made);
	return braid_version_agreed(s->mine.most, s->theirs.most) < 2 ||
	       !braid_auth_exchange(s->secret, s->theirs.nonce, s->made);
}

void speaker_init(struct speaker *s, const struct braid_handle *to)
{
	memset(s, 0, sizeof(*s));
	s->fd = -1;
	memcpy(s->key, to->token, sizeof(s->key));
	s->mine.least = BRAID_WIRE_LEAST;
	s->mine.most = BRAID_WIRE_MOST;
	s->mine.kind = BRAID_HELLO_LINK;
	s->mine.lanes_max = BRAID_LANES_MAX;
	s->mine.peer_dev = to->dev;
	s->mine.traffic_class = -1;
	s->mine.pid = (uint32_t)getpid();
	s->mine.window = 1 << 19;
	s->mine.ident = to->listen_id;
	s->mine.transports[0] = BRAID_TRANSPORT_TCP;
	strcpy(s->mine.host, "stranger");
	draw(s->mine.process, sizeof(s->mine.process));
	speaker_draw(s);
}

void speaker_lane(struct speaker *s, const struct speaker *of, unsigned index)
{
	*s = (struct speaker){ .fd = -1, .mine = of->mine };
	memcpy(s->key, of->session, sizeof(s->key));
	s->mine.kind = BRAID_HELLO_LANE;
	s->mine.lane = (uint8_t)index;
	s->mine.ident = of->theirs.ident;
	speaker_draw(s);
}

void speaker_guess(struct speaker *s, unsigned guess, const struct braid_handle *to,
		   const uint8_t *m1, const uint8_t *m2)
{
	struct braid_hello hello;
	uint8_t key[BRAID_KEY_SIZE];

	memcpy(key, to->token, sizeof(key));	/* guess 0: as wire version 1 makes the session */
	if (guess && !braid_hello_unpack(guess == 1 ? m1 : m2, &hello))
		braid_auth_exchange(s->secret, hello.nonce, key);
	braid_auth_session(key, m1, m2, s->key);
}

void speaker_secret(struct speaker *s, const char *text)
{
	braid_auth_job(text, strlen(text), s->job);
	s->has_job = true;
	s->mine.options |= BRAID_OPTION_SECRET;
}

void speak_sign(struct speaker *s)
{
	uint8_t key[BRAID_KEY_SIZE];

	memcpy(key, s->key, sizeof(key));
	braid_hello_pack(&s->mine, s->m1);
	if (s->has_job) {
		s->mine.hint = braid_auth_hint(s->key, s->m1);
		braid_auth_mix(s->job, key);
	}
	braid_hello_pack(&s->mine, s->m1);
	braid_auth_hello(key, s->m1, s->mine.mac);
	braid_hello_pack(&s->mine, s->m1);
}

bool speak_dial(struct speaker *s, const struct braid_handle *to)
{
	s->fd = speak_connect(to->port);
	s->step = SPEAK_CONNECTED;
	return s->fd >= 0;
}

static bool hear_answer(struct speaker *s)
{
	uint8_t mac[BRAID_MAC_SIZE];

	if (!speak_read(s->fd, s->m2, sizeof(s->m2)) || braid_hello_unpack(s->m2, &s->theirs))
		return false;
	if (!exchange(s))
		return false;
	braid_auth_answer(s->made, s->m1, s->m2, mac);
	braid_auth_session(s->made, s->m1, s->m2, s->session);
	memcpy(s->proof, proof_tag, sizeof(proof_tag));
	braid_auth_proof(s->made, s->m1, s->m2, s->proof + sizeof(proof_tag));
	return braid_auth_equal(mac, s->theirs.mac);
}

static bool take_step(struct speaker *s)
{
	size_t half = BRAID_HELLO_SIZE / 2, part = BRAID_PROOF_SIZE / 2;

	switch (s->step) {
	case SPEAK_CONNECTED:
		return speak_write(s->fd, s->m1, half);
	case SPEAK_HALF_HELLO:
		return speak_write(s->fd, s->m1 + half, BRAID_HELLO_SIZE - half);
	case SPEAK_HELLO:
		return hear_answer(s);
	case SPEAK_ANSWER:
		return speak_write(s->fd, s->proof, part);
	case SPEAK_HALF_PROOF:
		return speak_write(s->fd, s->proof + part, BRAID_PROOF_SIZE - part);
	default:
		return false;
	}
}

bool speak_until(struct speaker *s, enum speak_step step, bool signed_)
{
	if (!signed_ && s->step == SPEAK_CONNECTED)
		speak_sign(s);
	for (; s->step < step; s->step++) {
		if (!take_step(s))
			return false;
	}
	return true;
}

bool speak_hear(struct speaker *s)
{
	return speak_read(s->fd, s->m1, sizeof(s->m1)) && !braid_hello_unpack(s->m1, &s->theirs);
}

bool speak_answer(struct speaker *s, uint8_t status)
{
	s->mine.status = status;
	s->mine.kind = s->theirs.kind;
	s->mine.lane = s->theirs.lane;
	s->mine.epoch = s->theirs.epoch;
	if (!exchange(s))
		return false;
	braid_hello_pack(&s->mine, s->m2);
	braid_auth_answer(s->made, s->m1, s->m2, s->mine.mac);
	braid_hello_pack(&s->mine, s->m2);
	return speak_write(s->fd, s->m2, sizeof(s->m2));
}

bool speak_believe(struct speaker *s)
{
	uint8_t mac[BRAID_MAC_SIZE];

	if (!speak_read(s->fd, s->proof, sizeof(s->proof)))
		return false;
	braid_auth_proof(s->made, s->m1, s->m2, mac);
	braid_auth_session(s->made, s->m1, s->m2, s->session);
	return braid_auth_equal(mac, s->proof + sizeof(proof_tag));
}

/* -- frames ------------------------------------------------------------------------------- */

void speak_pack(struct speaker *s, const struct braid_hdr *h, uint8_t *to)
{
	struct braid_hdr full = *h;

	full.ack = s->got;
	full.lseq = s->sent++;
	braid_hdr_pack(&full, to);
}

bool speak_frame(struct speaker *s, const struct braid_hdr *h, const void *payload, size_t len)
{
	uint8_t bytes[BRAID_HDR_SIZE];

	speak_pack(s, h, bytes);
	return speak_write(s->fd, bytes, sizeof(bytes)) && speak_write(s->fd, payload, len);
}

static bool hear_payload(int fd, size_t len, uint8_t *to, size_t room)
{
	uint8_t drop[4096];

	while (len) {
		size_t n = room ? (len < room ? len : room) : len < sizeof(drop) ? len : sizeof(drop);

		if (!speak_read(fd, room ? to : drop, n))
			return false;
		len -= n;
		if (room) {
			to += n;
			room -= n;
		}
	}
	return true;
}

bool speak_hear_frame(struct speaker *s, struct braid_hdr *ret, void *payload, size_t room)
{
	uint8_t bytes[BRAID_HDR_SIZE];

	do {
		if (!speak_read(s->fd, bytes, sizeof(bytes)) || braid_hdr_unpack(bytes, ret) ||
		    !hear_payload(s->fd, ret->len, payload, room))
			return false;
		s->got++;
	} while (ret->type == BRAID_F_ACK);
	return true;
}

bool speak_open(struct speaker *s, const struct braid_handle *to, uint32_t comm)
{
	struct braid_open open = { .listen_id = to->listen_id };
	struct braid_hdr h = { .type = BRAID_F_OPEN, .comm = comm, .len = BRAID_OPEN_SIZE };
	uint8_t payload[BRAID_OPEN_SIZE], mac[BRAID_MAC_SIZE];

	braid_auth_open(to->token, s->session, comm, to->listen_id, open.mac);
	braid_open_pack(&open, payload);
	if (!speak_frame(s, &h, payload, sizeof(payload)) ||
	    !speak_hear_frame(s, &h, payload, sizeof(payload)) || h.type != BRAID_F_OPENED ||
	    h.comm != comm)
		return false;
	braid_auth_opened(to->token, s->session, comm, to->listen_id, mac);
	braid_open_unpack(payload, &open);
	return open.listen_id == to->listen_id && braid_auth_equal(mac, open.mac);
}

bool speak_opened(struct speaker *s, const struct braid_handle *to, uint32_t comm)
{
	struct braid_open open = { .listen_id = to->listen_id };
	struct braid_hdr h = { .type = BRAID_F_OPENED, .comm = comm, .len = BRAID_OPEN_SIZE };
	uint8_t payload[BRAID_OPEN_SIZE];

	braid_auth_opened(to->token, s->session, comm, to->listen_id, open.mac);
	braid_open_pack(&open, payload);
	return speak_frame(s, &h, payload, sizeof(payload));
}
