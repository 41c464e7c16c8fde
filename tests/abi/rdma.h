/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdma.h - RDMA fails in every way that the fake NICs know, and no message is lost.
 *
 * Two processes send messages of all sizes to each other and check every byte, while their NIC is
 * taken away and given back, is full, or refuses a call.  Each case is run over RoCE v2 and iWARP,
 * some over InfiniBand too.
 */
#ifndef BRAID_TESTS_ABI_RDMA_H
#define BRAID_TESTS_ABI_RDMA_H

#include "tests/abi/nics.h"

/* Promised: a stall of at most STALL_MS, RDMA again within RETURN_MS.  SLACK times that fails. */
enum { STALL_MS = 2000, RETURN_MS = 5000, NOTICE_MS = 2000, SLACK = 10 };
enum { QPNS = 1 << 14, MRS_KEPT = 24 };		/* a port keeps the memory of some lanes */

/* -- cases -------------------------------------------------------------------------------- */

int rdma_main(const char *group, const struct abi_case *cases, size_t n);

#define RDMA_MAIN(cases) \
	int main(void) { return rdma_main(__FILE__, cases, sizeof(cases) / sizeof((cases)[0])); }

#define LONG ONCE, .seconds = 120

/* EACH_KIND: bodies for RoCE v2 and iWARP, which call body(t, kind).  BOTH: their two cases. */
#define EACH_KIND(body)								\
	static void body##_roce(struct abi *t) { body(t, nic_kinds[0]); }	\
	static void body##_iwarp(struct abi *t) { body(t, nic_kinds[1]); }
#define BOTH(promise, body)						\
	CASE("RoCE: " promise, body##_roce, LONG), CASE("iWARP: " promise, body##_iwarp, LONG)

extern const char *const nic_kinds[3];		/* "rocev2", "iwarp", "ib" */

/* -- the NIC ------------------------------------------------------------------------------ */

long nic_sends(void);
void objects_gone(void);			/* after finalize */
bool break_qp(unsigned from);			/* the first queue pair from that number on fails */

/* -- two processes that send to each other ------------------------------------------------- */

extern bool fuses;			/* the first two devices are made one, which is used */
extern unsigned qps_left;		/* how many queue pairs the peer has at the end; 0: any number */

/* The peer's side: until the last messages tell it to stop. */
void rdma_follow(struct abi *t, int fd);
struct job *rdma_start(struct abi *t, struct peer *p);
struct job *rdma_start_with(struct abi *t, struct peer *p, void (*body)(struct abi *t, int fd));
/* With that many lanes over such a NIC.  Returns with messages under way. */
struct job *rdma_start_lanes(struct abi *t, struct peer *p, const char *kind, const char *more,
			     const char *lanes);
void rdma_finish(struct job *j, struct peer *p);

bool uses_rdma(struct job *j);			/* messages go over RDMA */
void stall_ends(struct job *j, const char *what);
void rdma_returns(struct job *j, const char *what);	/* messages go over RDMA again */

#endif
