/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs.c - F47: one job after the other on the same two hosts, at the same ports, while another one
 * goes on beside them; see play.h.
 *
 * Each job's bytes follow from a seed of its own, so that none can take another's for its own.  A
 * handle of the job before, which names a port where the present one listens, gets an error.
 */
#include "tests/faults/play.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

enum { PORT = 20000 };			/* outside of what the first job takes */

static bool is_its(const struct inet_diag_sockid *id)
{
	return id->idiag_sport == htons(PORT) || id->idiag_dport == htons(PORT);
}

/* What the dead job's sockets leave behind would keep the port for a minute. */
static void sweep(struct run *r)
{
	static struct inet_diag_sockid ids[SOCKETS_MAX];

	for (int host = HOST_A; host <= HOST_B; host++) {
		unsigned n = host_sockets(&r->hosts, host, ~0U, ids, SOCKETS_MAX);

		for (unsigned i = 0; i < n; i++) {
			if (is_its(&ids[i]))
				host_kill(&r->hosts, host, &ids[i]);
		}
	}
}

static void ports_are(struct run *r, const char *range)
{
	for (int host = HOST_A; host <= HOST_B; host++)
		must(r, host_sysctl(&r->hosts, host, "ipv4/ip_local_port_range", range));
}

static void listens_there(struct run *r)
{
	struct inet_diag_sockid ids[16];

	for (int host = HOST_A; host <= HOST_B; host++) {
		unsigned n = host_sockets(&r->hosts, host, 1U << TCP_LISTEN, ids, 16), its = 0;

		for (unsigned i = 0; i < n; i++)
			its += is_its(&ids[i]);
		if (!its)
			run_fails(r, "host %c: nobody listens at the port", 'A' + host);
	}
}

/* One job; its handles are left in `old`, where those of the one before were. */
static void one_job(struct run *r, unsigned i, struct flow *old)
{
	struct run job;
	int error;

	ports_are(r, "20000 20000");
	run_joins(&job, r, mix(r->seed, i), i ? old : NULL);
	ports_are(r, "32768 60999");
	listens_there(&job);
	memcpy(old->handle, job.st->flow[0].handle, sizeof(old->handle));
	run_opens(&job);
	error = job.st->end[END_A].old_error;
	if (i && error != ncclRemoteError)
		run_fails(&job, "an old handle got error %d instead of ncclRemoteError", error);
	if (i && !job.st->end[END_A].warns)
		run_fails(&job, "an old handle got an error, and no WARN says why");
	run_talks(&job);
	if (run_rnd(r, 2))		/* else it is killed */
		run_closes(&job);
	run_leaves(&job);
	sweep(r);
}

void play_jobs(struct run *r)
{
	unsigned n = (unsigned)r->row->arg[r->o->soak ? 1 : 0];
	struct flow old;

	run_begins(r);
	run_faults(r);
	for (unsigned i = 0; i < n; i++) {
		one_job(r, i, &old);
		run_wait(r, 1);
	}
	run_note(r, "%u jobs", n);
	run_healed(r);
	run_recovers(r);
}
