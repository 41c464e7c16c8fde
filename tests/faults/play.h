/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * play.h - the functions that play the rows of the fault table (rows.c).  The comment beside each
 * lists what a row puts in its arg[]; "in check, in soak" are two numbers.
 */
#ifndef BRAID_TESTS_FAULTS_PLAY_H
#define BRAID_TESTS_FAULTS_PLAY_H

#include "tests/faults/run.h"

/* -- strangers.c -------------------------------------------------------------------------- */

enum { SILENT, THREE_BYTES, GARBAGE, COME_AND_GO, CROWD };

void play_strangers(struct run *r);	/* SILENT..., how many in check, in soak (0: as in check) */

/* -- path.c: what becomes of packets ------------------------------------------------------ */

enum {
	LOSS_01, LOSS_1, LOSS_5, LOSS_30, OVERTAKEN, DOUBLED, JITTER, DAMAGED, FORGED,
};
enum {
	DOWN_A, DOWN_B, DOWN_MIDDLE, HOLE_A, HOLE_B, HOLE_MIDDLE, CUT,
	NIC_DOWN, NIC_HOLE,		/* of B's NIC, which exists in memory only: tests/fake/ctl.h */
};

struct trouble_at {
	int what;
	unsigned side;			/* for trouble at M: the interface or direction; 2: both */
};

void path_outage(struct run *r, struct trouble_at t, bool begins);

void play_bad_wire(struct run *r);	/* which, ms in check, in soak */
void play_forged(struct run *r);
void play_outage(struct run *r);	/* which, ms in check; the seed chooses in soak */
void play_outage_early(struct run *r);
void play_flap(struct run *r);
void play_forgotten(struct run *r);
void play_path_dies(struct run *r);	/* which */
void play_power_loss(struct run *r);
void play_new_address(struct run *r);
void play_pmtu(struct run *r);		/* tcp_mtu_probing */
void play_mtu_mismatch(struct run *r);
void play_one_path_dies(struct run *r);	/* comes back? */
void play_chaos(struct run *r);		/* ms in check, in soak */

/* -- heal.c: how fast it is afterwards, and what is left behind ---------------------------- */

void play_heal(struct run *r);		/* which outage, ms */
void play_flaps(struct run *r);		/* times; of the NIC? */

/* -- peer.c: the other process, and the streams to it ------------------------------------- */

enum { BUSY, IDLE };

void play_nothing(struct run *r);	/* minus the other end's ABI version, if less than 0; ms */
void play_kill_connecting(struct run *r);
void play_dead_port(struct run *r);	/* black hole? */
void play_no_way(struct run *r);
void play_late(struct run *r);		/* ms in check, in soak */
void play_reset_some(struct run *r);	/* more than one? */
void play_reset_all(struct run *r);	/* BUSY, IDLE */
void play_reset_often(struct run *r);	/* times in check, in soak */
void play_kill(struct run *r);		/* with children that live on? */
void play_stop(struct run *r);		/* ms in check, in soak */
void play_stop_for_ever(struct run *r);
void play_abort(struct run *r);		/* times in check, in soak */

/* -- host.c: what a host does to its processes -------------------------------------------- */

void play_no_files(struct run *r);	/* streams reset? else while connecting */
void play_no_ports(struct run *r);
void play_eintr(struct run *r);		/* ms in check, in soak */
void play_no_cpu(struct run *r);	/* ms in check, in soak */
void play_fork(struct run *r);
void play_log(struct run *r);
void play_clock(struct run *r);		/* ms in check, in soak */

/* -- jobs.c: more than one job on the same hosts ------------------------------------------ */

void play_jobs(struct run *r);		/* how many in check, in soak */

#endif
