/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi.h - the runner and the common functions of the ABI tests.
 *
 * The tests drive the built .so through tools/proxy.c as NCCL's proxy threads do, and know nothing of
 * its inside.  A case is a promise in words, a body, and the ABI versions it is run for; each
 * run is a process of its own, so that a body may fork before anything is loaded, a crash or a
 * hang costs one case, and no state leaks into the next.  The runner never loads the plugin.
 *
 * A body fails by leaving the process: the macros below print and _exit(1).  Nothing may hang:
 * every wait has a deadline, and so has every case.  A WARN from the plugin fails the case
 * unless the body has said warns_expected().
 *
 * Environment: BRAID_TEST_PLUGIN (path of the .so), BRAID_TEST_FILTER (cmocka's pattern, such as
 * "v12*"), BRAID_TEST_WITHOUT (a pattern of cases to leave out), BRAID_TEST_VERSIONS ("all": each case
 * for all its versions; else, if there is no pattern either, for the newest and one of the others,
 * taken in turn; a case with .every for all), BRAID_TEST_SEED, BRAID_TEST_SLOW
 * (a factor on all deadlines, for valgrind), BRAID_TEST_VERBOSE (log lines to stderr),
 * BRAID_TEST_RDMA (set by tests/rdma: the kind of NIC that device 0 is), BRAID_TEST_UCX (by
 * tests/ucx), BRAID_TEST_SMC (by tests/smc).  Other BRAID_* variables reach the plugin.
 */
#ifndef BRAID_TESTS_ABI_ABI_H
#define BRAID_TESTS_ABI_ABI_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/drive.h"

/* -- cases -------------------------------------------------------------------------------- */

struct abi {				/* the argument of a body */
	int abi;			/* the ABI version to use */
	bool newest;			/* the newest version, on which long loops are run */
	const char *plugin;
	uint64_t seed;			/* of rnd() */
};

struct abi_case {
	const char *promise;
	void (*body)(struct abi *t);
	int since, until;		/* first and last version of the case; 0: all */
	int seconds;			/* deadline; 0: 90 */
	bool every;			/* see BRAID_TEST_VERSIONS */
	const char *warns;		/* ids of WARNs that must be logged, "no-route not-braid" */
};

/* CASE("promise", body), or with .since =, .until =, .seconds =, .every = or .warns = after it. */
#define CASE(promise_, ...) { .promise = promise_, .body = __VA_ARGS__ }
#define ONCE .since = NET_ABI_NEWEST	/* no difference between versions: run on the newest alone */

bool abi_versions_all(void);		/* BRAID_TEST_VERSIONS=all */
int abi_main(const char *group, const struct abi_case *cases, size_t n);

#define ABI_MAIN(cases) \
	int main(void) { return abi_main(__FILE__, cases, sizeof(cases) / sizeof((cases)[0])); }

/* -- verdicts ----------------------------------------------------------------------------- */

_Noreturn void skip_because(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void warns_expected(void);
_Noreturn void end_well(void);

/* -- chance ---------------------------------------------------------------------- */

uint64_t rnd(struct abi *t);
unsigned rnd_below(struct abi *t, unsigned n);
void shuffle(struct abi *t, unsigned *v, unsigned n);	/* fills v with 0..n-1 in any order */

/* -- the plugin --------------------------------------------------------------------------- */

bool over_rdma(void);		/* or UCX: sockets are for the handshake alone */
void streams_are_ours(void);	/* skips the case if SMC or UCX has TCP sockets too */
/* The logger for init: net_log(), but a WARN that this kind of NIC always causes does not count. */
void abi_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Lines added by any thread, each ended by a newline; lines without room are dropped. */
struct lines {
	atomic_uint used;
	char text[32768];
};
void lines_add(struct lines *l, const char *line);
void lines_clear(struct lines *l);	/* while no thread adds a line */
/* Fails unless a process of the case has logged a WARN with this id, "no-route", by abi_log(). */
void warned_with(const char *id);
/* Returns abi_log(), made to keep the end of each line that has `word`, from that word on. */
ncclDebugLogger_t abi_hear(const char *word);
/* Fails unless the last text kept is `want` ("": none was kept), and forgets it. */
void abi_heard(const char *want);
bool abi_has_heard(void);		/* a text was kept, in any thread */
unsigned abi_heard_lines(bool warns);	/* so many WARNs, or other lines, had `word` */

struct net *abi_up(struct abi *t);		/* loaded, init called, at least one device */
struct net *abi_up_with(struct abi *t, int traffic_class, ncclProfilerCallback_t prof);
void abi_down(struct net *net);			/* finalized and closed */

/* -- other processes ---------------------------------------------------------------------- */

void *send_to(struct net *net, int fd);	/* the process at the other end of fd calls recv_from() */
void *recv_from(struct net *net, int fd);

struct peer {
	pid_t pid;
	int fd;				/* a socket to the other process */
};

/*
 * Runs body in a new process, at ABI version t->abi; call it before this process loads the plugin.  The
 * new process stays until peer_join(), when both ends have closed their comms, unless body calls end_well().
 */
struct peer peer_start(const struct abi *t, void (*body)(struct abi *t, int fd));
void peer_join(struct peer *p);		/* must end well */
void peer_stopped(const struct peer *p);	/* waits for its body's raise(SIGSTOP) */
void peer_kill(struct peer *p);		/* SIGKILL, and reaped */

void give(int fd, const void *data, size_t len);
void take(int fd, void *data, size_t len);
void meet(int fd);			/* both ends wait for each other, calling nothing */

#endif
