/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim.h - a deterministic simulator: several Braid processes, their kernels and the network
 * between them, in one process and one thread, on a virtual clock.
 *
 *	test_sim.c	the command line: runs seeds, and reports which failed
 *	sim_plan.c	what one seed does: processes, parameters, comms, and the table of faults
 *	sim_model.c	drivers that call as NCCL's proxy does, and the model of messages
 *	sim_rma.c	communicators with one-sided operations, and their model
 *	sim_rma_plan.c	what they do
 *	sim_outage.c	outages of hours
 *	sim_scale.c	one process with thousands of links
 *	sim_net.c	virtual sockets: TCP as its users can see it
 *	sim_os.c	struct braid_os over them
 *	sim_run.c	the clock, threads as coroutines, processes
 *	node.c		the product, as a module that is loaded once for each process
 *
 * The product runs unchanged.  Each process has a copy of it.  When a new process takes the place of
 * another, the copy's data is reset to what it was before anything ran.  Threads are coroutines:
 * they yield where a thread would wait, and now and then inside a system call, as if another thread
 * ran first.  All choices come from generators that start from the seed, so a seed always takes the
 * same course; a hash over all events shows it.
 */
#ifndef BRAID_TESTS_SIM_H
#define BRAID_TESTS_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/dev.h"
#include "core/msg/comm.h"
#include "core/proto/handle.h"
#include "core/setup/listen.h"
#include "tests/sim/node.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

enum {
	SIM_PROCS = 3,			/* processes at a time */
	SIM_RAILS = 2,			/* networks between them, each with a device of its own */
	SIM_FILES = 32768,		/* descriptors of a process */
};

/* --- chance -------------------------------------------------------------------------------- */

struct sim_rng {
	uint64_t state;
};

uint64_t sim_next(struct sim_rng *r);
/* 0 ... n - 1; n is not 0. */
uint64_t sim_below(struct sim_rng *r, uint64_t n);
/* least ... most, with small numbers as likely as large ones: each power of two gets its share. */
uint64_t sim_between(struct sim_rng *r, uint64_t least, uint64_t most);
bool sim_chance(struct sim_rng *r, unsigned per_mille);

/* --- the world ----------------------------------------------------------------------------- */

struct sim_co;
struct sim_file;

struct sim_proc {
	unsigned index;			/* its place, which has a host, a module and paths */
	unsigned life;			/* how many processes have had this place */
	bool alive, stopped;
	bool orderly;			/* it has ended by itself */
	struct sim_rng rng;		/* the product's random numbers */
	struct braid_dev rail[SIM_RAILS], fused;
	struct braid_dev *dev;		/* the device that it uses, one of these */
	const struct sim_node *node;
	struct sim_file *file[SIM_FILES];
	int files, free_file;		/* all that are open are below this, and not below that */
	struct braid_list cos;
	struct braid_list blocks;	/* memory that the product holds */
	unsigned short_in;		/* so many allocations from now one fails; 0: none does */
	unsigned slow_paths;		/* lanes that are still to be found slow */
	uint64_t rounds, looks;		/* of the service thread: its rounds, and the links it looked at */
};

struct sim {
	uint64_t seed, now, hash, events;
	struct sim_rng plan, net, sched;	/* separate, so that the use of one does not change another */
	struct sim_proc proc[SIM_PROCS];
	unsigned nprocs;
	bool lossy;			/* data was lost, or a process stopped: limits of time do not hold */
	bool cut;			/* a connection was reset: some limits are longer */
	bool doomed;			/* some comm had a reason to fail */
	bool short_of_memory;		/* an allocation has failed: any comm may fail */
	unsigned preempt;		/* per mille of system calls in which another thread runs first */
	bool verbose, over;
	bool rma;			/* with one-sided operations */
	enum sim_plant plant;		/* a fault of the core's, to see that the model notices */
	bool planted;			/* that fault has struck */
	bool moved;			/* an address of a process has changed */
	bool left;			/* a lane was left, as its data was changed */
	bool large;			/* many large messages, and comms that are left early */
	bool sabotage;			/* change a byte, to see that the model notices */
	bool encrypted;			/* so a changed byte does no harm: its lane is replaced */
	unsigned flipped, found;	/* bits flipped, and wrong checksums, of this run */
	unsigned renewed;		/* lanes that were replaced for new keys, at both ends */
	unsigned repathed;		/* lanes that were replaced for another path, at both ends */
	uint64_t threads_sent, threads_received;	/* bytes that threads of BRAID_THREADS moved */
	uint64_t lent;			/* calls whose bytes a kernel read where the process had them */
	uint64_t outage_s, timeout_s;	/* of a seed that is an outage: how long; BRAID_PEER_TIMEOUT */
	bool struck;			/* messages waited when it began */
	unsigned dials, silences;	/* of this run: connects, and WARNs of a silent peer */
	char failure[512];		/* the first reason */
};
extern struct sim sim;

/* Adds an event to the hash, and with `verbose` prints it to stderr. */
#define sim_event(name, a, b, c) \
	sim_event_at(name, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c))
void sim_event_at(const char *name, uint64_t a, uint64_t b, uint64_t c);
/* Notes that this run has failed; the first reason is kept. */
void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- sim_run.c ----------------------------------------------------------------------------- */

/* Calls fn(arg, a, b) at that time. */
typedef void sim_fn(void *arg, uint64_t a, uint64_t b);
void sim_at(uint64_t when, sim_fn *fn, void *arg, uint64_t a, uint64_t b);
/* Runs events until the run is over or has failed, or no event is left. */
void sim_run(void);

/* The thread that runs now, and its process; NULL between threads. */
struct sim_co *sim_self(void);
struct sim_proc *sim_proc(void);
struct sim_co *sim_spawn(struct sim_proc *p, void *(*fn)(void *), void *arg);
/* The running coroutine yields for so long; or until it is woken, at the latest at `until`. */
void sim_sleep(uint64_t ns);
void sim_park(uint64_t until);
void sim_wake(struct sim_co *co);
/* Called in each system call: sometimes another thread runs first. */
void sim_preempt(void);

int sim_thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name);
int sim_thread_join(pthread_t thread, unsigned timeout_ms);

/* Loads the modules: once. */
void sim_load(const char *module);
void sim_world_begin(uint64_t seed);
void sim_world_end(void);
/* Starts a process at that place, which must be empty; its first thread runs fn(p). */
struct sim_proc *sim_proc_start(unsigned index, void *(*fn)(void *));
/* The process ends by itself, from its own thread.  What it leaves behind fails the run. */
void sim_proc_exit(struct sim_proc *p);
void sim_proc_kill(struct sim_proc *p);
void sim_proc_stop(struct sim_proc *p);
void sim_proc_cont(struct sim_proc *p);
/* The bytes that the process has allocated, and how many of these are in memory. */
void sim_proc_memory(const struct sim_proc *p, uint64_t *ret_allocated, uint64_t *ret_resident);
/* Prints the last lines of the processes' logs to stderr. */
void sim_log_tell(void);

/* --- sim_net.c ----------------------------------------------------------------------------- */

extern const struct braid_os sim_os;

/* The network's properties, chosen by the plan. */
struct sim_weather {
	uint64_t latency_ns;		/* at most, one way; each connection has its own */
	uint64_t jitter_ns;		/* at most, per segment */
	double ns_per_byte;		/* of each connection */
	size_t sndbuf, rcvbuf, segment;	/* bytes, at most */
	unsigned partial;		/* per mille of sends and receives that are cut short */
	unsigned eintr;			/* per mille that are interrupted */
	bool same_host;			/* all processes have one address */
};

void sim_net_begin(const struct sim_weather *w);
void sim_net_end(void);
void sim_net_addr(unsigned proc, unsigned rail, union braid_netdev_addr *ret);
/* Closes the files of a process that ends. */
void sim_net_close_all(struct sim_proc *p);
unsigned sim_net_open_files(const struct sim_proc *p);

/* Loses the segments that are sent on a rail, from one place to another, before `until`. */
void sim_net_blackhole(unsigned from, unsigned to, unsigned rail, uint64_t until);
/* From now on a firewall lets no new connections through, in that direction. */
enum sim_bar {
	SIM_BAR_NONE,
	SIM_BAR_DROP,
	SIM_BAR_REFUSE,			/* with a reset, as the peer would if it had ended */
};
void sim_net_bar(unsigned from, unsigned to, unsigned rail, enum sim_bar how);
/* Delays the segments that are sent so before `until`, by more_ns. */
void sim_net_delay(unsigned from, unsigned to, unsigned rail, uint64_t more_ns, uint64_t until);
/* The place gets another address on a rail: what is sent to or from the one before is lost. */
void sim_net_move(unsigned proc, unsigned rail);
/* Breaks one connection; which: any number, taken modulo their count. */
enum sim_cut {
	SIM_CUT_ABORT,			/* ss -K at one end */
	SIM_CUT_RESET,			/* a middlebox resets both ends */
	SIM_CUT_HALF,			/* a middlebox resets one end; the other notices when it sends */
	SIM_CUT_SILENT,			/* a middlebox has forgotten it: nothing arrives from now on */
};
bool sim_net_cut(uint64_t which, enum sim_cut how);
/* Flips a bit of one connection: `ahead` bytes from now, but not before its handshake is over. */
void sim_net_flip(uint64_t which, uint64_t ahead);
unsigned sim_net_connections(void);

/* --- sim_model.c --------------------------------------------------------------------------- */

void sim_model_begin(void);
void sim_model_end(void);
/* Makes a comm between two processes, with messages chosen by the plan's generator. */
void sim_comm_add(unsigned from, unsigned to, uint64_t start_ns);
/* The first thread of a process. */
void *sim_proc_main(void *proc);
/* The process at that place is killed now: comms with it may fail from now on. */
void sim_comms_killed(unsigned proc);
/* Comms between two places may fail from now on. */
void sim_comms_doom(unsigned a, unsigned b);
/* The process's addresses have changed.  True: a comm whose handle names an old one may fail. */
bool sim_comms_moved(unsigned proc);
/* No connection comes through from a to b any more.  True: a comm that is not yet open may fail. */
bool sim_comms_barred(unsigned a, unsigned b);
/* Has some comm a reason to fail? */
bool sim_comms_doomed(void);
/* Has every comm been connected and accepted? */
bool sim_comms_open(void);
/* Is every comm over?  Then processes may end. */
bool sim_comms_over(void);
/* Set by the plan: processes end now. */
extern bool sim_model_finish;
/* When a message, or a side of a comm, was last completed. */
extern uint64_t sim_model_moved;
/* Prints the comms that are not over to stderr. */
void sim_comms_tell(void);

enum { SIM_CALLS_MS = 5 };		/* no round of calls takes longer */

/* How long it may take from a process's death to an error at its peers. */
uint64_t sim_told_ns(void);
/* Does the error say that the peer is gone? */
bool sim_remote_error(int err);
/* A size at which core/ changes its method, or a neighbour of one, or any other. */
uint64_t sim_choose_size(struct sim_rng *r);
/* The content that `salt` stands for. */
void sim_fill(char *to, uint64_t size, uint64_t salt);
/* The offset of the first word that differs from it, or `size`. */
uint64_t sim_compare(const char *with, uint64_t size, uint64_t salt);
bool sim_all_are(const char *p, uint64_t n, int byte);

/* --- sim_rma.c ----------------------------------------------------------------------------- */

void sim_rma_begin(void);
void sim_rma_end(void);
/* Makes a communicator of the processes that live, with operations chosen by the plan's generator. */
void sim_rma_add(uint64_t start_ns);
/* One round of calls of a driver.  Has anything moved? */
bool sim_rma_step(struct sim_proc *p, unsigned driver, unsigned ndrivers);
/* Judges the signals that have been added since the last call. */
void sim_rma_look(void);
/* As of comms: */
void sim_rma_killed(unsigned proc);
void sim_rma_doom(unsigned a, unsigned b);
bool sim_rma_doomed(void);
bool sim_rma_over(void);
void sim_rma_tell(void);
/* Has a window been closed while puts to it were still to come?  These are in vain. */
bool sim_rma_dropped(void);

/* --- sim_outage.c -------------------------------------------------------------------------- */

/* With sim.outage_s: the network fails for so long.  Returns when all must go on, or have failed. */
uint64_t sim_outage_begin(void);
/* Judges that run. */
void sim_outage_end(void);

/* --- sim_scale.c --------------------------------------------------------------------------- */

struct sim_scale {			/* what `links` links cost the process that has them */
	unsigned links, idle_s;
	double descriptors;		/* for each link */
	double allocated, resident;	/* bytes for each link at rest */
	struct sim_work {		/* of its service thread */
		double rounds;		/* a second of the virtual clock */
		double looks;		/* at a link, a second and link */
		double looks_a_flap;	/* beyond those at rest */
	} idle, flaps;
};
/* Makes r->links links, which rest for r->idle_s and flap.  0 if that went well, as sim_seed(). */
int sim_scale(struct sim_scale *r);

/* --- sim_plan.c ---------------------------------------------------------------------------- */

/* Starts a process, as sim_proc_start(), with the place's devices; params: NULL: the defaults. */
void sim_place_start(unsigned i, const struct braid_params *params, unsigned rails,
		     void *(*fn)(void *));

/* Runs one seed.  0 if it passed, else sim.failure says why. */
int sim_seed(uint64_t seed);

#endif
