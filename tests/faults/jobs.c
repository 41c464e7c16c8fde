/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * jobs.c - F47: one job after the other on the same two hosts, at the same ports, while another one
 * goes on beside them; see play.h.
 *
 * Each job's bytes follow from a seed of its own, so a job notices bytes of another job.  The handle
 * of the job before names a port where the present job listens; connect() with it must fail.
 */
#include "tests/faults/play.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

enum { PORT = 20000 };			/* not in the first job's range of ports */

static bool is_its(const struct inet_diag_sockid *id)
{
	return id->idiag_sport == htons(PORT) || id->idiag_dport == htons(PORT);
}

/* Sockets of the dead job, in TIME_WAIT and the like, would keep the port in use for a minute. */
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

/* Runs one job.  `old` has a handle of the job before, and gets one of this job. */
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
	if (run_rnd(r, 2))		/* else run_leaves() kills the job */
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
