/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nic.h - shared by the files that do a NIC's work: nic.c, requester.c, responder.c, path.c.
 *
 * All these functions are called with the queue pair's lock held.
 */
#ifndef BRAID_TESTS_FAKE_NIC_H
#define BRAID_TESTS_FAKE_NIC_H

#include "tests/fake/fake.h"

enum { BUDGET = 4 };			/* records of each kind at a time */

/* path.c */
void place(uint8_t *to, const uint8_t *from, size_t n);
/* Bytes [off, off + n) of a list, to or from flat memory.  False: a key, bound or right is wrong. */
bool sge_copy(struct ibv_pd *pd, const struct ibv_sge *sge, int num, uint64_t off, uint8_t *flat,
	      uint64_t n, bool to_list, unsigned access);
bool sge_valid(struct ibv_pd *pd, const struct ibv_sge *sge, int num, unsigned access);
uint64_t sge_len(const struct rwqe *w);
bool is_iwarp(const struct fqp *qp);
struct fab_qp *peer_of(const struct fqp *qp);
void route(struct fqp *qp);			/* looks the route up again, if it may have changed */
bool path_works(struct fqp *qp);
bool peer_fits(const struct fqp *qp);		/* are the two each other's peer? */
bool peer_listens(const struct fqp *qp);	/* would the peer take a packet? */
bool lose_one(struct fqp *qp);
/* Changes a bit of a record's data on its way, if it is to be. */
void flip_one(struct fqp *qp, const struct rec *r, uint8_t *data);
void kick_peer(const struct fqp *qp);
struct rec plain_rec(const struct fqp *qp);
bool is_delayed(struct fqp *qp, const struct rec *r);
void terminate(struct fqp *qp);			/* iWARP */
uint64_t rnr_ns(uint32_t code);
void timer_start(struct fqp *qp);

/* requester.c.  True: more is left to do. */
bool req_out(struct fqp *qp);
bool resp_in(struct fqp *qp);
void timer_check(struct fqp *qp);

/* responder.c */
bool req_in(struct fqp *qp);

#endif
