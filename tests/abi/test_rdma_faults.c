/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rdma_faults.c - a port, a NIC or its queue pairs fail, and no message is lost.
 *
 * BRAID_TEST_RDMA_ROUNDS=200 makes 200 faults at two fused ports.  That takes minutes, so set
 * BRAID_TEST_SLOW=20 as well.
 */
#include "tests/abi/rdma.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAP_MS = 5000 };

/*
 * Waits until TCP carries everything.  This takes a while: lanes notice the fault one by one, and
 * after 2 s the first tries RDMA again, when the last may not have noticed yet.
 */
static void leaves(struct job *j)
{
	uint64_t end = deadline_ms(RETURN_MS * SLACK);

	while (uses_rdma(j))
		wait_tick(end, __FILE__, __LINE__, "TCP to carry it");
}

/* -- it fails and comes back -------------------------------------------------------------- */

static void down_and_up(struct abi *t, const char *kind, const char *lanes, const char *down,
			const char *up)
{
	struct peer p;
	struct job *j;
	char what[64];

	snprintf(what, sizeof(what), "%s, %s lanes, %s", kind, lanes, down);
	nic(kind, "");
	setenv("BRAID_LANES", lanes, 1);
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	ctl(down);
	stall_ends(j, what);
	job_play(j, 500);
	leaves(j);
	ctl(up);
	rdma_returns(j, what);
	rdma_finish(j, &p);
}

static void port_down(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "1", "port nic0 down", "port nic0 up");
}

static void port_down_lanes(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "4", "port nic0 down", "port nic0 up");
}

static void black_hole(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "1", "drop nic0 1", "drop nic0 0");
}

static void black_hole_lanes(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "4", "drop nic0 1", "drop nic0 0");
}

EACH_KIND(port_down)
EACH_KIND(port_down_lanes)
EACH_KIND(black_hole)
EACH_KIND(black_hole_lanes)

static void port_down_ib(struct abi *t)
{
	port_down(t, nic_kinds[2]);
}

/* -- bits that change on the way ----------------------------------------------------------- */

/* Links with checksums make no writes with immediate data, which would have none. */
static void flips(struct abi *t, const char *kind, const char *what)
{
	enum { PROBES = 8 };		/* by which ports are tried out */
	char cmd[32];
	struct peer p;
	struct job *j;

	setenv("BRAID_CHECKSUM", "on", 1);
	j = rdma_start_lanes(t, &p, kind, "", "2");
	for (long i = 1; i <= 3; i++) {
		uint64_t end = deadline_ms(RETURN_MS * SLACK);

		rdma_returns(j, kind);
		snprintf(cmd, sizeof(cmd), "flip nic0 %s 1", what);
		ctl(cmd);
		while (ctl("count flips") != i) {
			job_step(j);
			wait_tick(end, __FILE__, __LINE__, "a bit to be flipped");
		}
		stall_ends(j, what);
	}
	job_play(j, 500);
	TRUE(ctl("count imms") <= PROBES);
	if (strstr(net_last_warn(), "[corrupt-data]") && !strstr(net_last_warn(), " (verbs, nic0:1)"))
		FAIL("%s", net_last_warn());
	rdma_finish(j, &p);
}

static void flips_sends(struct abi *t, const char *kind)
{
	flips(t, kind, "sends");
}

static void flips_writes(struct abi *t, const char *kind)
{
	flips(t, kind, "writes");
}

/*
 * Chunks that go by SEND take so many slots that counts are written.  The next write may take the place
 * of a false one before it is reported.
 */
static void flips_counts(struct abi *t, const char *kind)
{
	setenv("BRAID_RDMA_STRICT", "1", 1);
	flips(t, kind, "counts");
}

EACH_KIND(flips_sends)
EACH_KIND(flips_counts)
EACH_KIND(flips_writes)

/* -- it is gone for good ------------------------------------------------------------------- */

static void removed(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	ctl("fatal nic0");
	stall_ends(j, "the NIC is removed");
	job_play(j, 2500);
	job_need(j, 100, STALL_MS * SLACK);
	rdma_finish(j, &p);
}

/* Queue pairs fail as fast as new ones come up: the time until RDMA is tried again grows. */
static void flaps(struct abi *t, const char *kind)
{
	uint64_t until;
	unsigned times = 0;
	struct peer p;
	struct job *j;

	j = rdma_start_lanes(t, &p, kind, "", "2");
	for (until = now_us() + FLAP_MS * 1000; now_us() < until; job_play(j, 20)) {
		for (unsigned qpn = 0; qpn < QPNS; qpn++) {
			char cmd[32];

			snprintf(cmd, sizeof(cmd), "qp %u error", qpn);
			times += fake_ctl(cmd) == 0;
		}
	}
	printf("%s: %u queue pairs failed in %u s, the longest stall was %llu ms\n", kind, times,
	       FLAP_MS / 1000, (unsigned long long)j->longest_us / 1000);
	TRUE(times >= 4 && times <= 100);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	rdma_returns(j, kind);
	rdma_finish(j, &p);
}

/* All queue pairs of this end fail with it, and no new one may use it. */
static void srq_fails(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j;

	j = rdma_start_lanes(t, &p, kind, "", "4");
	TRUE(uses_rdma(j));
	for (unsigned i = 0; i < 2; i++) {
		TRUE(ctl("srq error") > 0);
		stall_ends(j, "a shared receive queue fails");
		rdma_returns(j, kind);
	}
	rdma_finish(j, &p);
}

static void srq_fails_roce(struct abi *t)
{
	srq_fails(t, nic_kinds[0]);
}

static void srq_fails_ib(struct abi *t)
{
	srq_fails(t, nic_kinds[2]);
}

/* -- several lanes, several ports -------------------------------------------------------------- */

/* One at a time: its messages go on over the others, in their order. */
static void lose_several(struct abi *t, struct job *j, const char *kind)
{
	unsigned times = 0;

	for (unsigned i = 0; i < 24; i++) {
		times += break_qp(rnd_below(t, QPNS));
		job_play(j, 50 + rnd_below(t, 400));
	}
	printf("%s: %u queue pairs of four lanes failed, the longest stall was %llu ms\n", kind, times,
	       (unsigned long long)j->longest_us / 1000);
	TRUE(times > 4);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	rdma_returns(j, kind);
}

static void one_of_several(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j = rdma_start_lanes(t, &p, kind, "", "4");

	TRUE(uses_rdma(j));
	lose_several(t, j, kind);
	rdma_finish(j, &p);
}

/* Again and again, one of two ports or both are down or lose all packets for a moment. */
static void fused(struct abi *t, const char *kind)
{
	static const char *const faults[][2][2] = {	/* how, which; broken and mended */
		{ { "port nic0 down", "port nic0 up" }, { "port nic1 down", "port nic1 up" } },
		{ { "drop nic0 1", "drop nic0 0" }, { "drop nic1 1", "drop nic1 0" } },
	};
	const char *rounds = getenv("BRAID_TEST_RDMA_ROUNDS");
	unsigned n = rounds ? (unsigned)atoi(rounds) : 4;
	char more[64], names[64];
	struct peer p;
	struct job *j;

	snprintf(more, sizeof(more), ";nic1:%s,netdev=%s", kind, second_interface());
	nic(kind, more);
	snprintf(names, sizeof(names), "=lo,%s", second_interface());
	setenv("BRAID_SOCKET_IFNAME", names, 1);
	setenv("BRAID_SOCKET_FAMILY", "AF_INET", 1);
	unsetenv("BRAID_TEST_RDMA_ROUNDS");
	fuses = true;
	setenv("BRAID_FUSE", "any", 1);
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	for (unsigned i = 0; i < n; i++) {
		unsigned which = 1 + rnd_below(t, 3), how = rnd_below(t, 2);

		for (unsigned mends = 0; mends < 2; mends++) {
			for (unsigned k = 0; k < 2; k++) {
				if (which & 1u << k)
					ctl(faults[how][k][mends]);
			}
			job_play(j, rnd_below(t, 2000));
		}
	}
	job_need(j, 100, STALL_MS * SLACK);
	printf("%s: the longest stall of %u was %llu ms, %llu messages came\n", kind, n,
	       (unsigned long long)j->longest_us / 1000, (unsigned long long)j->in.oldest);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	rdma_returns(j, kind);
	rdma_finish(j, &p);
}

/* -- iWARP ------------------------------------------------------------------------------------- */

/*
 * The kernel's siw writes to a socket in the caller's name, which may raise SIGPIPE: the process must
 * not die of it.  At first it ignores the signal, so that Braid need not block it; later it does not.
 */
static void sigpipe(struct abi *t)
{
	struct peer p;
	struct job *j;

	signal(SIGPIPE, SIG_IGN);
	j = rdma_start_lanes(t, &p, nic_kinds[1], ",sigpipe=1", "4");
	TRUE(uses_rdma(j));
	job_play(j, 300);
	signal(SIGPIPE, SIG_DFL);
	job_play(j, 300);
	lose_several(t, j, nic_kinds[1]);
	rdma_finish(j, &p);
}

/*
 * Connection requests arrive after the dialler has given up.  No call waits for their answers, though
 * ending such a queue pair would; and the late requests are answered.
 */
static void late_requests(struct abi *t)
{
	enum { LATE_MS = 8000, GIVEN_UP_MS = 900 };
	uint64_t end;
	struct peer p;
	struct job *j;

	nic(nic_kinds[1], ",mpa=60000");
	setenv("BRAID_LANES", "1", 1);
	qps_left = 1;			/* the peer dials, since it connects first */
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	ctl("requests nic0 8000");
	ctl("port nic0 down");
	stall_ends(j, "a port goes down");
	ctl("port nic0 up");
	end = deadline_ms(20000);
	while (j->longest_us < GIVEN_UP_MS * 1000) {
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "RDMA to be tried in vain");
	}
	printf("requests are late: the longest stall was %llu ms\n",
	       (unsigned long long)j->longest_us / 1000);
	TRUE(j->longest_us < (LATE_MS - 2000) * 1000);
	ctl("requests nic0 0");
	rdma_returns(j, "requests are late");
	job_play(j, LATE_MS);
	rdma_finish(j, &p);
}

/* RDMA is the only transport: then a slow set-up is waited for. */
static void slow_alone(struct abi *t)
{
	struct peer p;
	struct job *j;

	nic(nic_kinds[1], "");
	setenv("BRAID_LANES", "1", 1);
	setenv("BRAID_TRANSPORTS", "verbs", 1);
	setenv("BRAID_TEST_FAKE_CTL", "requests nic0 2500", 1);
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	rdma_finish(j, &p);
}

/* rdma_cm may hand out a port that TCP uses already: Braid takes the next, and RDMA works. */
static void ports_taken(struct abi *t)
{
	struct peer p;
	struct job *j;

	nic(nic_kinds[1], ",busy=7,busy_dials=9");
	setenv("BRAID_TRANSPORTS", "verbs", 1);
	j = rdma_start(t, &p);
	job_play(j, 100);
	TRUE(uses_rdma(j));
	rdma_finish(j, &p);
}

EACH_KIND(removed)
EACH_KIND(flaps)
EACH_KIND(one_of_several)
EACH_KIND(fused)

static const struct abi_case cases[] = {
	CASE("RoCE: a port that goes down costs a moment", port_down_roce, LONG),
	CASE("iWARP: a port that goes down costs a moment", port_down_iwarp, LONG),
	CASE("RoCE: a port that goes down with several lanes costs a moment",
	     port_down_lanes_roce, LONG),
	CASE("iWARP: a port that goes down with several lanes costs a moment",
	     port_down_lanes_iwarp, LONG),
	CASE("RoCE: packets that vanish cost a moment", black_hole_roce, LONG),
	CASE("iWARP: packets that vanish cost a moment", black_hole_iwarp, LONG),
	CASE("RoCE: packets that vanish with several lanes cost a moment",
	     black_hole_lanes_roce, LONG),
	CASE("iWARP: packets that vanish with several lanes cost a moment",
	     black_hole_lanes_iwarp, LONG),
	CASE("RoCE: a bit that is flipped in a message reaches no buffer", flips_sends_roce, LONG,
	     .warns = "corrupt-data lane-left"),
	CASE("iWARP: a bit that is flipped in a message reaches no buffer", flips_sends_iwarp, LONG,
	     .warns = "corrupt-data lane-left"),
	CASE("RoCE: a bit that is flipped in a write reaches no application", flips_writes_roce, LONG,
	     .warns = "corrupt-data lane-left"),
	CASE("iWARP: a bit that is flipped in a write reaches no application", flips_writes_iwarp,
	     LONG, .warns = "corrupt-data lane-left"),
	BOTH("a bit that is flipped in a count harms no message", flips_counts),
	BOTH("a NIC that is removed costs a moment", removed),
	BOTH("queue pairs that fail again and again are left alone", flaps),
	CASE("RoCE: a shared receive queue that fails costs a moment", srq_fails_roce, LONG),
	CASE("IB: a shared receive queue that fails costs a moment", srq_fails_ib, LONG),
	BOTH("some queue pairs of several fail", one_of_several),
	BOTH("two ports that were made one fail", fused),
	CASE("iWARP: a port that is in use costs nothing", ports_taken, LONG),
	CASE("iWARP: a SIGPIPE that the driver raises does not reach the application",
	     sigpipe, LONG),
	CASE("iWARP: a request that comes too late costs a moment", late_requests, LONG),
	CASE("iWARP: alone, a link has time to come up", slow_alone, LONG),
	CASE("IB: a port that goes down costs a moment", port_down_ib, LONG),
};

RDMA_MAIN(cases)
