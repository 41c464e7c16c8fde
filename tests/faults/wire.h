/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - a bad wire: frames from one TAP device are lost, reordered, doubled, damaged and
 * delayed by seeded chance on their way to the other.  For kernels without netem, and for runs
 * that are to be the same again.
 */
#ifndef BRAID_TESTS_FAULTS_WIRE_H
#define BRAID_TESTS_FAULTS_WIRE_H

#include <stdatomic.h>
#include <stdint.h>

struct wire_trouble {			/* shares in a million of frames; times in microseconds */
	unsigned loss, burst;		/* burst: so many in a row go (0, 1: single ones) */
	unsigned reorder;		/* these are overtaken by what comes up to reorder_us later */
	unsigned reorder_us;
	unsigned twice;
	unsigned damage;		/* one bit of the IP packet */
	unsigned forge;			/* one bit of TCP's payload, and the checksum agrees */
	unsigned delay_us, jitter_us;
	unsigned cut;			/* bit 0: all from A is lost; bit 1: all from B */
	unsigned mtu;			/* not 0: longer packets are lost, and nobody says so */
	unsigned forget;		/* not 0: of TCP only connections begun since then go through */
};

struct wire {				/* shared memory: written by the run, read by the wire */
	_Atomic uint32_t version;	/* odd while trouble is being written */
	struct wire_trouble trouble;
	_Atomic uint64_t passed, lost, reordered, doubled, damaged, full;
};

_Noreturn void wire_run(struct wire *wire, int tap_a, int tap_b, uint64_t seed);

#endif
