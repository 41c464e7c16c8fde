/* SPDX-License-Identifier: BSD-3-Clause */
/* nics.h - the fake NICs of tests/fake for ABI tests, and messages both ways that are checked. */
#ifndef BRAID_TESTS_ABI_NICS_H
#define BRAID_TESTS_ABI_NICS_H

#include "tests/abi/abi.h"

/* Call these in main(), before and after all cases. */
void fakes_load(void);
void fakes_forget(void);

extern long (*fake_ctl)(const char *cmd);	/* tests/fake/ctl.h */
extern const char *(*fake_failed)(void);
long ctl(const char *cmd);			/* fake_ctl(), which must succeed */

/* Sets this case's NICs; `text` is as in BRAID_TEST_FAKE_DEVICES. */
void fake_nics(const char *text);
/*
 * Gives this case one NIC, nic0.  `more` is appended to its description: options (",max_qp=1") or
 * further NICs (";nic1:ib").
 */
void nic(const char *kind, const char *more);

/* The name of an interface other than loopback; skips the case if there is none. */
const char *second_interface(void);

/* Loads the plugin and fuses its first two devices.  The case uses that device from now on. */
struct net *fused_up(struct abi *t);

/* -- what the plugin says ----------------------------------------------------------------- */

/* Loads the plugin, and keeps WARN and INFO lines of all threads: see struct lines. */
struct net *heard_up(struct abi *t);
const char *was_said(const char *words);	/* the log from these words on; NULL: never logged */
void must_say(const char *words);
void must_not_say(const char *words);

/* -- traffic ------------------------------------------------------------------------------ */

enum { DEPTH = 4, MOST = 1 << 20 };

extern const size_t sizes[8];

struct talk {				/* messages one way */
	void *comm;
	bool is_recv, stop;		/* stop: mark the last DEPTH messages as the last */
	struct buf buf[DEPTH];
	struct op op[DEPTH];
	uint64_t oldest;
	unsigned stops;
	size_t most;			/* bytes of a message; 0: no limit but MOST */
	uint64_t moved_us, longest_us;	/* when a message was done last; the longest pause */
};

struct job {
	struct net *net;
	struct talk out, in;
	uint64_t moved_us, longest_us;	/* as above, of both ways together */
	uint64_t slowest_us;		/* slowest call of isend(), irecv() or test() */
};

void job_new(struct job *j, struct net *net, void *send, void *recv);
/* No message has more than `most` bytes; both ends must give the same `most`. */
void job_new_small(struct job *j, struct net *net, void *send, void *recv, size_t most);
void job_rest(struct job *j);			/* measures pauses from now on */
bool job_step(struct job *j);			/* true if a message was done */
void job_play(struct job *j, unsigned ms);
void job_need(struct job *j, unsigned n, unsigned ms);	/* until n more have arrived */
bool job_over(const struct job *j);
/* Goes on until all messages are done, once j->out.stop is set at either end. */
void job_finish(struct job *j);
void job_close(struct job *j);			/* closes the comms, and the plugin too */

#endif
