/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale.c - what many peers cost one process: descriptors, memory, the service thread's CPU time.
 *
 *	scale links N		N links: at rest, after traffic, and while 1 % of them flap
 *	scale storm N S		N dials at once, among S strangers
 *	scale again N TIMES	connections to N processes, made and closed TIMES times
 *
 * Each prints one table.  It measures on the machine as it is; it asserts what does not depend on
 * its speed: that no peer is refused, no descriptor and no memory stays behind.
 *
 * Options: --crowds P, the processes that play the peers (default: one for each 1,024); --plugin
 * PATH; --seconds S, how long to measure each state (default 10); --at-once N, how many connections
 * a crowd dials, and the hub waits for, at a time (default: all).  BRAID_TEST_VERBOSE=1: the log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/scale/crowd.h"

enum { EACH = 1024, FLAP_PART = 100, LARGE = 1 << 20, MAX = 16384, IDLE_MAX = 64 << 10,
       SETTLE_MS = 3000, HANG_MS = 300000, GROWTH = 64 << 10 };

static struct {
	const char *plugin;
	unsigned crowds, seconds;
	struct net *net;
	struct crowd crowd[1024];
	struct handle handle[MAX];
	void *listen[MAX], *recv[MAX];
	unsigned n, upto;		/* so many connections; these have been dialled */
} s = { .plugin = "plugin/.libs/libnccl-net-braid.so", .seconds = 10 };

static void failed(const char *file, int line, const char *text)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, text);
	if (net_warn_count())
		fprintf(stderr, "  last of %u WARN: %s\n", net_warn_count(), net_last_warn());
}

/* --- the hub ------------------------------------------------------------------------------- */

static void crowds_start(unsigned n, unsigned crowds, bool share)
{
	s.n = n;
	s.crowds = crowds ? crowds : 1;
	for (unsigned i = 0; i < s.crowds; i++)
		crowd_start(&s.crowd[i], s.plugin, n * (i + 1) / s.crowds - n * i / s.crowds,
			    share);
}

static void hub_up(void)
{
	char why[256];
	int ndev = 0;

	s.net = net_load(s.plugin, 0, why, sizeof(why));
	if (!s.net)
		FAIL("%s", why);
	OK(net_init(s.net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, crowd_log, NULL));
	OK(net_devices(s.net, &ndev));
	TRUE(ndev > 0);
}

static void hub_listen(void)
{
	for (unsigned i = 0; i < s.n; i++)
		OK(net_listen(s.net, 0, s.handle[i].at, &s.listen[i]));
}

static bool all_accepted(void)
{
	unsigned waited_for = 0;

	for (unsigned i = 0; i < s.upto && waited_for < crowd_at_once; i++)
		waited_for += !s.recv[i] && !accept_step(s.net, s.listen[i], &s.recv[i]);
	return !waited_for;
}

/* All crowds dial at once, or one after the other. */
static void hub_connect(bool at_once)
{
	unsigned first = 0;

	s.upto = 0;
	for (unsigned i = 0; i < s.crowds; i++) {
		crowd_connect(&s.crowd[i], &s.handle[first]);
		first += s.crowd[i].n;
		if (at_once)
			continue;
		s.upto = first;
		crowd_waits(all_accepted);
		crowd_wait(&s.crowd[i]);
	}
	s.upto = s.n;
	crowd_waits(all_accepted);
	for (unsigned i = 0; at_once && i < s.crowds; i++)
		crowd_wait(&s.crowd[i]);
	for (unsigned i = 0; i < s.n; i++)
		OK(net_close_listen(s.net, s.listen[i]));
}

static void hub_close(void)
{
	for (unsigned i = 0; i < s.n; i++) {
		OK(net_close_recv(s.net, s.recv[i]));
		s.recv[i] = NULL;
	}
}

static void hub_receive(uint32_t size)
{
	unsigned first = 0;

	for (unsigned i = 0; i < s.crowds; i++) {
		crowd_send(&s.crowd[i], size);
		for (unsigned k = 0; k < s.crowd[i].n; k++)
			recv_one(s.net, s.recv[first + k], size, size);
		first += s.crowd[i].n;
		crowd_wait(&s.crowd[i]);
	}
}

static void hub_down(void)
{
	for (unsigned i = 0; i < s.crowds; i++)
		crowd_end(&s.crowd[i]);
	if (net_warn_count())
		FAIL("%u WARN, the last: %s", net_warn_count(), net_last_warn());
	OK(net_finalize(s.net));
}

/* --- many links ---------------------------------------------------------------------------- */

static void row(const char *what, const struct usage *base, const struct usage *a,
		const struct usage *b)
{
	double s_ns = (double)(b->at_ns - a->at_ns);

	printf("| %s | %.2f | %.1f | %.1f | %.2f %% | %.0f |\n", what,
	       (double)(b->fds - base->fds) / s.n, (double)(b->rss - base->rss) / 1024 / s.n,
	       (double)(b->heap - base->heap) / 1024 / s.n,
	       (double)(b->service_ns - a->service_ns) / s_ns * 100,
	       (double)(b->switches - a->switches) / s_ns * 1e9);
	fflush(stdout);
}

static struct usage measure(const char *what, const struct usage *base, bool flap)
{
	struct usage a, b;

	nap_ms(SETTLE_MS);
	usage_now(&a);
	for (unsigned i = 0; i < s.seconds; i++) {
		nap_ms(1000);
		for (unsigned k = 0; flap && k < s.crowds; k++) {
			crowd_cut(&s.crowd[k], (s.crowd[k].n + FLAP_PART - 1) / FLAP_PART);
			crowd_wait(&s.crowd[k]);
		}
	}
	usage_now(&b);
	row(what, base, &a, &b);
	return b;
}

static void row_of_fake(const char *what, const struct usage *u)
{
	printf("| %s | %.2f | %.2f | %ld | %.2f | %.0f |\n", what, (double)u->qp / s.n,
	       (double)u->cq / s.n, u->srq, (double)u->mr / s.n,
	       (double)u->pinned / 1024 / s.n);
}

static void fake_table(const struct usage *fresh, const struct usage *idle,
		       const struct usage *flapped)
{
	if (!fresh->fake)
		return;
	printf("\n| state | queue pairs a link | completion queues a link | shared receive queues, in "
	       "all | registrations a link | KiB a link, registered |\n"
	       "| --- | --- | --- | --- | --- | --- |\n");
	row_of_fake("new", fresh);
	row_of_fake("after a message of 1 MiB on each", idle);
	row_of_fake("1 % of the links cut each second", flapped);
	fflush(stdout);
}

static void many_links(unsigned n)
{
	struct usage base, fresh, idle, flapped;
	uint64_t from;

	crowds_start(n, s.crowds ? s.crowds : (n + EACH - 1) / EACH, false);
	hub_up();
	usage_now(&base);
	hub_listen();
	from = now_us();
	hub_connect(false);
	printf("%u links with a connection each, to %u processes; set up in %.1f s\n\n", n,
	       s.crowds, (double)(now_us() - from) / 1e6);
	printf("| state | descriptors a link | KiB a link, resident | KiB a link, malloc | "
	       "service thread, of a core | its wakes a second |\n"
	       "| --- | --- | --- | --- | --- | --- |\n");
	fresh = measure("new", &base, false);
	hub_receive(1000);
	measure("after a message of 1,000 B on each", &base, false);
	hub_receive(LARGE);
	idle = measure("after a message of 1 MiB on each", &base, false);
	flapped = measure("1 % of the links cut each second", &base, true);
	fake_table(&fresh, &idle, &flapped);
	hub_receive(1000);
	/* A NIC may write to a link's receives at any time, so they stay in memory. */
	if (!idle.fake && idle.rss - base.rss > (uint64_t)n * IDLE_MAX)
		FAIL("more than %d bytes for each idle link", IDLE_MAX);
	hub_close();
	hub_down();
}

/* --- a storm of dials ---------------------------------------------------------------------- */

static void storm(unsigned n, unsigned nstrangers)
{
	struct strangers strangers = { 0 };
	struct opens a, b;
	unsigned came = 0;
	uint64_t from;
	double took;

	crowds_start(n, s.crowds ? s.crowds : (n + EACH - 1) / EACH, false);
	hub_up();
	hub_listen();
	opens_now(&a);
	if (nstrangers)
		strangers_start(&strangers, listening_port(), nstrangers);
	from = now_us();
	hub_connect(true);
	took = (double)(now_us() - from) / 1e6;
	if (nstrangers)
		came = strangers_end(&strangers);
	opens_now(&b);
	printf("| peers | strangers at a time, in all | all connected after | TCP connections by "
	       "peers | SYNs dropped |\n| --- | --- | --- | --- | --- |\n"
	       "| %u | %u, %u | %.1f s | %llu | %llu |\n", n, nstrangers, came, took,
	       (unsigned long long)(b.active - a.active - came),
	       (unsigned long long)(b.dropped - a.dropped));
	fflush(stdout);
	hub_receive(1000);
	hub_close();
	hub_down();
}

/* --- a communicator made again ------------------------------------------------------------- */

/* A link without connections gives its queues back a little later: wait for the last one. */
static void usage_settled(struct usage *ret)
{
	uint64_t end = deadline_ms(drive_hang_ms), since = now_us(), heap = 0;

	do {
		nap_ms(100);
		usage_now(ret);
		if (ret->heap != heap)
			since = now_us();
		heap = ret->heap;
		if (now_us() > end)
			LATE("the memory of links at rest does not settle");
	} while (now_us() - since < SETTLE_MS * 1000);
}

static void again(unsigned n, unsigned times)
{
	struct usage first = { 0 }, last = { 0 };
	struct opens a = { 0 }, b;
	unsigned begin = times < 40 ? times / 4 : 10;
	uint64_t from = 0;
	double took;

	/* On a busy machine seconds may pass before a process makes its next connection. */
	setenv("BRAID_LINK_IDLE", "600", 1);
	crowds_start(n, n, true);
	hub_up();
	for (unsigned i = 0; i < times; i++) {
		if (i == begin) {
			usage_settled(&first);
			opens_now(&a);
			from = now_us();
		}
		hub_listen();
		hub_connect(true);
		hub_receive(1000);
		hub_close();
		for (unsigned k = 0; k < s.crowds; k++)
			crowd_close(&s.crowd[k]);
		for (unsigned k = 0; k < s.crowds; k++)
			crowd_wait(&s.crowd[k]);
	}
	took = (double)(now_us() - from) / 1e3 / (times - begin);
	usage_settled(&last);
	opens_now(&b);
	printf("| peers | times | TCP connections | sockets | descriptors | resident | malloc | each "
	       "time |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	       "| %u | %u to %u | %+lld | %+d | %+d | %+.0f KiB | %+.1f KiB | %.0f ms |\n", n,
	       begin, times, (long long)(b.active - a.active), (int)(last.sockets - first.sockets),
	       (int)(last.fds - first.fds), ((double)last.rss - (double)first.rss) / 1024,
	       ((double)last.heap - (double)first.heap) / 1024,
	       took);
	fflush(stdout);
	EQ(first.sockets, last.sockets);
	EQ(n, first.connected);
	if (last.inodes != first.inodes)	/* not b.active: other programs dial, too */
		FAIL("other connections than before carry the links");
	EQ(first.fds, last.fds);
	if (last.heap > first.heap + GROWTH)
		FAIL("memory has grown");
	hub_down();
}

/* --- the command line ---------------------------------------------------------------------- */

static unsigned number(const char *text)
{
	unsigned long v = text ? strtoul(text, NULL, 10) : 0;

	if (v > MAX)
		FAIL("at most %d", MAX);
	return (unsigned)v;
}

static void options(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++) {
		if (!strcmp(argv[i], "--crowds"))
			s.crowds = number(argv[i + 1]);
		else if (!strcmp(argv[i], "--seconds"))
			s.seconds = number(argv[i + 1]);
		else if (!strcmp(argv[i], "--at-once"))
			crowd_at_once = number(argv[i + 1]);
		else if (!strcmp(argv[i], "--plugin"))
			s.plugin = argv[i + 1];
	}
}

int main(int argc, char **argv)
{
	const char *plugin = getenv("BRAID_TEST_PLUGIN");

	if (plugin)
		s.plugin = plugin;
	unsetenv("BRAID_TEST_PLUGIN");
	drive_set(failed, 1);
	drive_hang_ms = HANG_MS;
	net_log_verbose(getenv("BRAID_TEST_VERBOSE"));
	options(argc, argv);
	setenv("BRAID_SOCKET_IFNAME", "lo", 0);
	setenv("BRAID_STAT", "0", 0);
	all_descriptors();
	if (argc > 2 && !strcmp(argv[1], "links"))
		many_links(number(argv[2]));
	else if (argc > 3 && !strcmp(argv[1], "storm"))
		storm(number(argv[2]), number(argv[3]));
	else if (argc > 3 && !strcmp(argv[1], "again"))
		again(number(argv[2]), number(argv[3]));
	else
		FAIL("usage: scale links N | storm N STRANGERS | again N TIMES");
	return 0;
}
