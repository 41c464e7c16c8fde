/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - a bad wire: frames from one TAP device are lost, reordered, doubled, damaged and
 * delayed by seeded chance on their way to the other.  For kernels without netem, and for runs
 * that must be repeatable.
 */
#ifndef BRAID_TESTS_FAULTS_WIRE_H
#define BRAID_TESTS_FAULTS_WIRE_H

#include <stdatomic.h>
#include <stdint.h>

struct wire_trouble {			/* shares in a million of frames; times in microseconds */
	unsigned loss, burst;		/* burst: frames lost in a row (0, 1: single ones) */
	unsigned reorder;		/* these are delayed by up to reorder_us, and overtaken */
	unsigned reorder_us;
	unsigned twice;
	unsigned damage;		/* change one bit of the IP packet */
	unsigned forge;			/* change one bit of TCP's payload, and the checksum to match */
	unsigned delay_us, jitter_us;
	unsigned cut;			/* bit 0: all from A is lost; bit 1: all from B */
	unsigned mtu;			/* not 0: longer packets are lost without an ICMP error */
	unsigned forget;		/* not 0: TCP connections begun before that are cut off */
};

struct wire {				/* shared memory: written by the run, read by the wire */
	_Atomic uint32_t version;	/* odd while trouble is being written */
	struct wire_trouble trouble;
	_Atomic uint64_t passed, lost, reordered, doubled, damaged, full;
};

_Noreturn void wire_run(struct wire *wire, int tap_a, int tap_b, uint64_t seed);

#endif
