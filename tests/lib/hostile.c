/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile.c - see hostile.h. */
#include "tests/lib/hostile.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/lib/queued.h"

enum { FRIEND_MS = 10000, FRIEND_BYTES = 100000 };

/* -- the plugin, and what it logs --------------------------------------------------------- */

static atomic_uint n_infos;

/* Is it the WARN that TCP carries a link?  Each stranger causes one, because it has no NIC. */
static bool is_about_tcp(const char *text)
{
	return over_rdma() && strstr(text, "tcp carries this link: the peer does not offer verbs");
}

__attribute__((format(printf, 5, 6)))
static void keep(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (level == NCCL_LOG_WARN && is_about_tcp(text))
		level = NCCL_LOG_INFO;
	else if (level == NCCL_LOG_INFO)
		n_infos++;
	abi_log(level, flags, file, line, "%s", text);
}

struct net *hostile_up(struct abi *t)
{
	struct net *net;
	char err[512];
	int ndev = 0;

	warns_expected();
	TRUE(!braid_auth_init());
	net = net_load(t->plugin, t->abi, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	OK(net_init(net, rnd(t), NCCL_NET_TRAFFIC_CLASS_UNDEF, keep, NULL));
	OK(net_devices(net, &ndev));
	TRUE(ndev > 0);
	return net;
}

unsigned warns(void)
{
	return net_warn_count();
}

unsigned infos(void)
{
	return n_infos;
}

void warned(const char *first, ...)
{
	va_list ap;

	if (!warns())
		FAIL("nobody was warned of '%s'", first);
	va_start(ap, first);
	for (const char *word = first; word; word = va_arg(ap, const char *)) {
		if (!strstr(net_last_warn(), word))
			FAIL("'%s' is not in the last WARN", word);
	}
	va_end(ap);
}

/* -- how long a call takes ---------------------------------------------------------------- */

static uint64_t longest_ns;
static char longest[80];

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* How often this thread has slept: waited for something other than a CPU. */
static long slept(void)
{
	struct rusage u = { 0 };

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nvcsw;
}

struct lap lap_start(void)
{
	struct lap lap = { .queued_ns = queued_ns(), .slept = slept() };

	lap.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	lap.wall_ns = clock_ns(CLOCK_MONOTONIC);
	return lap;
}

void lap_end(const struct lap *lap, unsigned limit_ms, const char *file, int line, const char *what)
{
	uint64_t took = clock_ns(CLOCK_MONOTONIC) - lap->wall_ns;
	uint64_t queued = queued_ns() - lap->queued_ns;

	took = took > queued ? took - queued : 0;
	if (slept() == lap->slept && took > clock_ns(CLOCK_THREAD_CPUTIME_ID) - lap->cpu_ns)
		took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - lap->cpu_ns;
	if (took > longest_ns) {
		longest_ns = took;
		snprintf(longest, sizeof(longest), "%s", what);
	}
	if (took > (deadline_ms(limit_ms) - now_us()) * 1000)
		fail_at(file, line, "%s took %.1f ms in one call", what, (double)took / 1e6);
}

void laps_say(struct abi *t, const char *what)
{
	printf("v%d: %s: the longest call was %llu us, %s\n", t->abi, what,
	       (unsigned long long)longest_ns / 1000, longest);
	longest_ns = 0;
}

/* -- what we know of a listen ------------------------------------------------------------- */

struct braid_handle handle_of(const void *handle)
{
	struct braid_handle h;

	TRUE(!braid_handle_unpack(handle, &h));
	return h;
}

void handle_forge(void *handle, uint16_t port, struct braid_handle *ret)
{
	struct braid_handle h = {
		.least = BRAID_WIRE_LEAST, .most = BRAID_WIRE_MOST, .port = port,
		.has4 = 1, .addr4 = { 127, 0, 0, 1 },
	};

	TRUE(getrandom(h.process, sizeof(h.process), 0) == sizeof(h.process));
	TRUE(getrandom(h.token, sizeof(h.token), 0) == sizeof(h.token));
	TRUE(getrandom(&h.listen_id, sizeof(h.listen_id), 0) == sizeof(h.listen_id));
	braid_handle_pack(&h, handle);
	*ret = h;
}

ncclResult_t connect_for(struct net *net, void *handle, unsigned ms, void **ret_send,
			 unsigned *ret_ms)
{
	uint64_t from = now_us(), end = deadline_ms(ms);
	ncclResult_t res;

	*ret_send = NULL;
	do {
		res = TIMED(SETUP_MS, net_connect(net, 0, handle, ret_send));
		wait_tick(end, __FILE__, __LINE__, "what connect() has to say");
	} while (res == ncclSuccess && !*ret_send);
	*ret_ms = (unsigned)((now_us() - from) / 1000);
	return res;
}

/* -- a listen for strangers --------------------------------------------------------------- */

void stage_up(struct abi *t, struct stage *s)
{
	memset(s, 0, sizeof(*s));
	s->net = hostile_up(t);
	OK(net_listen(s->net, 0, s->handle, &s->listen));
	s->to = handle_of(s->handle);
	s->warns = warns();
	s->infos = infos();
}

void stage_empty(struct stage *s)
{
	void *recv = NULL;

	nap_ms(5);
	OK(net_accept(s->net, s->listen, &recv));
	if (recv)
		FAIL("a stranger has been accepted");
}

void stage_down(struct stage *s)
{
	OK(net_close_listen(s->net, s->listen));
	abi_down(s->net);
}

void stage_quiet(struct stage *s, unsigned warns_most)
{
	unsigned w = warns() - s->warns, i = infos() - s->infos;

	printf("%u WARN and %u INFO\n", w, i);
	if (w > warns_most)
		FAIL("%u WARN where at most %u should be", w, warns_most);
	if (i > 20)
		FAIL("%u INFO lines", i);
}

size_t rss_kib(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	TRUE(f && fscanf(f, "%*u %lu", &pages) == 1);
	fclose(f);
	return pages * 4;
}

/* -- the friend --------------------------------------------------------------------------- */

static void friend_body(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send;

	meet(fd);
	send = send_to(net, fd);
	send_one(net, send, FRIEND_BYTES, 42);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();		/* peers started later have inherited our other end, and hold it open */
}

void connect_begins(struct net *net, void *handle, int listener, void **ret_send)
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };

	do
		OK(TIMED(SETUP_MS, net_connect(net, 0, handle, ret_send)));
	while (poll(&pfd, 1, 5) <= 0);
}

struct peer friend_start(const struct abi *t)
{
	return peer_start(t, friend_body);
}

void friend_ready(struct peer *p)
{
	meet(p->fd);
}

void friend_served(struct abi *t, struct net *net, void *listen, const void *handle,
		   struct peer *p, const char *while_)
{
	void *recv = NULL;
	uint64_t from = now_us();
	unsigned ms;

	give(p->fd, handle, NCCL_NET_HANDLE_MAXSIZE);
	WAIT_FOR_MS(FRIEND_MS, accept_step(net, listen, &recv));
	ms = (unsigned)((now_us() - from) / 1000);
	recv_one(net, recv, FRIEND_BYTES, 42);
	printf("v%d: %s: the friend was in after %u ms\n", t->abi, while_, ms);
	meet(p->fd);
	OK(net_close_recv(net, recv));
	peer_join(p);
}

/* -- a tap ---------------------------------------------------------------------------------- */

enum { RECORDED = BRAID_HELLO_SIZE + BRAID_PROOF_SIZE };

static void give_record(int fd, uint8_t heard[2][RECORDED], const size_t *have)
{
	struct record r;

	TRUE(have[0] >= RECORDED && have[1] >= BRAID_HELLO_SIZE);
	memcpy(r.m1, heard[0], sizeof(r.m1));
	memcpy(r.proof, heard[0] + sizeof(r.m1), sizeof(r.proof));
	memcpy(r.m2, heard[1], sizeof(r.m2));
	meet(fd);
	give(fd, &r, sizeof(r));
}

/* It sends its own port over `fd`, gets the listener's, and sends the record when it is asked to. */
static void relay_body(struct abi *t, int fd)
{
	struct pollfd pfd[3];
	uint8_t heard[2][RECORDED];
	size_t have[2] = { 0, 0 };
	uint16_t real, port;
	int listener = speak_listen(&port);
	unsigned asked = 0;

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
		if (pfd[2].revents && asked++)
			break;
		if (pfd[2].revents)
			give_record(fd, heard, have);
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
	end_well();
}

struct peer relay_start(const struct abi *t)
{
	return peer_start(t, relay_body);
}

void relay_through(struct peer *relay, const struct braid_handle *to, void *ret_handle)
{
	struct braid_handle via = *to;

	take(relay->fd, &via.port, sizeof(via.port));
	give(relay->fd, &to->port, sizeof(to->port));
	braid_handle_pack(&via, ret_handle);
}

void relay_record(struct peer *relay, struct record *ret)
{
	meet(relay->fd);
	take(relay->fd, ret, sizeof(*ret));
}

void relay_end(struct peer *relay)
{
	give(relay->fd, "", 1);
	peer_join(relay);
}
