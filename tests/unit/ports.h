/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ports.h - RDMA ports of fake NICs (tests/fake), as the probe finds them, for tests of verbs/.
 *
 * A program names its NICs in main(), with ports_of(); ports_up() and ports_down() go around all of
 * its cases.  Ports on loopback ("netdev=lo") belong to the device "lo"; an InfiniBand port becomes
 * a device of its own.
 */
#ifndef BRAID_TESTS_UNIT_PORTS_H
#define BRAID_TESTS_UNIT_PORTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/dev.h"
#include "verbs/port.h"
#include "verbs/qp.h"
#include "tests/lib/warns.h"

enum { PORTS_DEVS = 8 };

extern struct braid_dev ports_dev[PORTS_DEVS];	/* the first is loopback */
extern unsigned ports_devs;
extern char ports_why[512];			/* the reasons that the probe gave */

/* Names the NICs, as in BRAID_TEST_FAKE_DEVICES (tests/fake/ctl.h); call it before ports_up(). */
void ports_of(const char *nics);
int ports_up(void **state);
int ports_down(void **state);

/* The device, or the port, of that name: "ib0:1".  It must be there. */
struct braid_dev *dev_named(const char *name);
struct braid_ibport *port_named(const char *name);

/* Runs a command of tests/fake/ctl.h, which must be valid; returns its count. */
long ports_ctl(const char *cmd);

/* Waits for something that another thread does. */
#define UNTIL(what) do { \
	for (unsigned ms_ = 0; !(what); ms_++) \
		ports_nap(ms_, #what); \
} while (0)
void ports_nap(unsigned ms, const char *what);

/* Waits until no job of that device is left. */
void jobs_done(const struct braid_dev *dev);

/*
 * The port of "ib0:1", whose loop is up, with memory that it may read and write.  Host memory stands
 * for the GPU's: the NIC sees no difference.
 */
struct braid_ibport *ports_loop(void);
extern char ports_memory[1 << 16];
extern struct braid_key ports_key;

/* Two ends of a handshake, by the setup members of the transport. */
struct ends {
	struct braid_setup dialler, accepter;
};
extern bool ends_old;		/* each takes the other for a build that knows no `begins` (blob.h) */
/* 0 once both are ready; else the first error. */
/* With that ticket (struct braid_setup), as from wire version 2 on; NULL: without. */
int ends_meet_by(struct ends *e, struct braid_dev *from, struct braid_dev *to, const char *ticket);
int ends_meet(struct ends *e, struct braid_dev *from, struct braid_dev *to);
/* Drops both, and waits until nothing is left of them. */
void ends_part(struct ends *e);
struct braid_qp *qp_at(const struct braid_setup *s);

#endif
