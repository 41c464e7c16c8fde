/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake.h - what the files of the fake libibverbs share.
 *
 * A NIC that exists in memory only.  All processes of a test map one file, the fabric (fabric.c):
 * a table of NICs and ports, and a table of queue pairs.  Each queue pair has two rings of records,
 * one for its requests and one for its responses.  The only reader of a ring is the queue pair at
 * the other end.  nic.c does both ends' work: in a thread per opened device, and also in every call
 * that posts or polls, so that a round trip needs no switch of threads.  The rules are the
 * InfiniBand specification's; where drivers differ, the stricter one.
 *
 * What it can't show: the NIC of a stopped process is stopped too (its peers wait, and do not count
 * that as a lost packet), and a queue pair has at most 128 KiB in flight.
 *
 * Locks, in the order in which they may be taken: qp.lock, srq.lock, cq.lock, channel.lock and
 * ctx.ev_lock; mr_lock, ctx.lock and the fabric's are taken after any of those and hold none.
 */
#ifndef BRAID_TESTS_FAKE_FAKE_H
#define BRAID_TESTS_FAKE_FAKE_H

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop
#ifndef FAKE_CM				/* the files that define these can't have them as macros */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#endif

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* --- the fabric: shared memory ------------------------------------------------------------------ */

#ifndef FAKE_QPS
#define FAKE_QPS 1024			/* more of them make the fabric's file larger */
#endif

enum {
	DEVS_MAX = 32,
	PORTS_MAX = 255,		/* of a NIC */
	NICS_MAX = 256,			/* opened devices in all processes */
	QPS_MAX = FAKE_QPS,		/* a multiple of 64 */
	WORDS = QPS_MAX / 64,		/* with a bit for each queue pair */
	GIDS_MAX = 32,
	IPS_MAX = 12,
	PKEYS_MAX = 8,
	EVENTS_MAX = 32,
	RING_BYTES = 256 << 10,
	PIECE_MAX = 32 << 10,		/* bytes of a record */
	NAME_LEN = 48,
};

enum kind { KIND_IB, KIND_ROCEV1, KIND_ROCEV2, KIND_IWARP, KIND_EFA };

/* Index of a port in all of the fabric. */
#define PORT_NONE UINT32_MAX
#define PORT_ID(dev, port) ((uint32_t)(dev) * PORTS_MAX + (uint32_t)(port) - 1)

struct fab_gid {
	union ibv_gid gid;
	uint32_t type;			/* enum ibv_gid_type */
	uint32_t ifindex;
	uint32_t used;
};

struct fab_port {
	_Atomic uint32_t up, drop, delay_us, lid, mtu, request_ms;
	_Atomic uint32_t lose;
	_Atomic uint32_t flip[3];	/* of sends, of writes, of counts */
	_Atomic uint32_t events;	/* how many there were ... */
	_Atomic uint32_t event[EVENTS_MAX];	/* ... and the last of them: enum ibv_event_type */
	/* under the fabric's lock: */
	struct fab_gid gid[GIDS_MAX];
	struct in6_addr ip[IPS_MAX];
	uint32_t nips;
};

struct fab_dev {
	char host[NAME_LEN], name[NAME_LEN];
	uint32_t kind, nports, net;
	uint32_t subnet, router;	/* InfiniBand; router: its LID there, or 0 */
	uint64_t guid;
	_Atomic uint32_t fatal;
	struct fab_port port[PORTS_MAX];
};

struct fab_nic {
	_Atomic uint32_t pid;		/* 0: free */
	_Atomic uint32_t dev;
	_Atomic uint32_t bell;		/* futex: rung after `pending` has got a bit */
	_Atomic uint32_t asleep;
	_Atomic uint64_t pending[WORDS];	/* queue pairs that have something to do */
	_Atomic uint64_t some[(WORDS + 63) / 64];	/* words of `pending` that have a bit */
};

/* 64 bytes, before its payload. */
struct rec {
	uint32_t bytes;			/* of payload; REC_SKIP: go on at the ring's start */
	uint8_t op, flags, rd_out, syndrome;
	uint32_t src_qpn, dst_qpn;
	uint32_t psn, packets;
	uint32_t rkey, imm;
	uint64_t va, msg_len, off, sent_ns;
};
#define REC_SKIP UINT32_MAX

enum rec_op { REC_SEND = 1, REC_WRITE, REC_READ, REC_READ_RESP, REC_ACK, REC_NAK };
enum rec_flag { REC_FIRST = 1, REC_LAST = 2, REC_IMM = 4, REC_SOLICITED = 8 };
enum syndrome { NAK_RNR, NAK_PSN, NAK_INV_REQ, NAK_ACCESS, NAK_OP };

struct ring {
	_Atomic uint64_t tail;
	uint64_t pad1[7];
	_Atomic uint64_t head;
	_Atomic uint32_t reader;	/* slot + 1 of the NIC that may move `head` now */
	uint32_t pad2[13];
};

enum counter {
	C_SENDS, C_MESSAGES, C_IMMS, C_READS, C_RECVS, C_PACKETS, C_RETRIES, C_RNR, C_ACKS, C_FLIPS, COUNTERS
};

enum force { FORCE_ERROR = 1, FORCE_TERMINATE = 2, FORCE_CLOSED = 3 };

/* Written by its owner, read by its peer. */
struct fab_qp {
	_Atomic uint32_t nic;		/* slot of its owner + 1; 0: free */
	_Atomic uint32_t generation;
	_Atomic uint32_t qpn, state, dest_qpn;
	_Atomic uint32_t port, dst_port;	/* PORT_ID */
	_Atomic uint32_t mtu, pkey, gid_type;
	_Atomic uint32_t force;		/* enum force: another process sets it, the owner acts on it */
	_Atomic uint64_t count[COUNTERS];
	struct ring req, resp;
};

struct fab {
	_Atomic uint32_t lock;		/* pid of the process that holds it */
	_Atomic uint32_t routes;	/* grows when a route may have changed */
	_Atomic uint32_t ndevs;
	_Atomic uint32_t next_port;	/* for rdma_cm */
	_Atomic uint64_t count[COUNTERS];
	struct fab_nic nic[NICS_MAX];
	struct fab_dev dev[DEVS_MAX];
	struct fab_qp qp[QPS_MAX];
	uint8_t data[QPS_MAX][2][RING_BYTES];	/* of req and resp; not in qp[], to keep it small */
};

struct fab *fab_get(void);		/* maps it at the first call; NULL with errno */
const char *fab_dir(void);
void fab_lock(void);
void fab_unlock(void);
struct fab_port *fab_port(uint32_t id);
struct fab_dev *fab_port_dev(uint32_t id);
bool fab_alive(uint32_t nic);		/* slot + 1 */
int fab_nic_take(uint32_t dev);		/* slot or -1 */
void fab_nic_give(unsigned nic);
int fab_qp_take(unsigned nic);		/* slot or -1 */
void fab_qp_give(unsigned slot);
/* Wakes the NIC of that queue pair, which has something to do. */
void fab_kick(unsigned slot);
void fab_kick_all(void);
/* Under the lock: the port with this address, type and net. */
uint32_t fab_find_gid(const union ibv_gid *gid, uint32_t type, uint32_t net, uint32_t hint);
uint32_t fab_find_lid(uint32_t lid, uint32_t net, uint32_t subnet);
void fab_count(unsigned slot, enum counter c, uint64_t n);
/* Reports the event to every process that has the port open. */
void fab_event(uint32_t port_id, enum ibv_event_type type);

struct rec *ring_reserve(struct ring *r, uint32_t bytes);	/* NULL: no room */
void ring_commit(struct ring *r, uint32_t bytes);
bool ring_idle(struct ring *r);
bool ring_lock(struct ring *r, unsigned nic);
void ring_unlock(struct ring *r);
struct rec *ring_peek(struct ring *r);				/* locked; NULL: nothing there */
void ring_pop(struct ring *r);
void ring_clear(struct ring *r, unsigned nic);

int futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns);	/* < 0: for ever */
uint64_t now_ns(void);

/* --- objects of this process ------------------------------------------------------------------- */

struct limits {
	uint32_t max_qp, max_cq, max_mr, max_cqe, max_wr, max_sge, max_inline, max_rd, max_srq, max_msg;
};

/* A NIC as this process sees it; never freed. */
struct fdev {
	struct ibv_device ibv;		/* first */
	struct fdev *next;
	char *spec;
	uint32_t index;			/* in the fabric */
	enum kind kind;
	uint32_t nports, mtu, speed, npkeys;
	uint16_t pkey[PKEYS_MAX];
	uint64_t guid, memlock;
	uint32_t has_ah, has_grh, vectors, ece, effective;
	uint32_t has_srq, has_last_wqe, has_imm, has_dmabuf, has_peermem, has_direct, has_late, has_sigpipe,
		linger_ms, mpa_ms, busy, busy_dials;
	char direct_path[IBV_SYSFS_PATH_MAX];	/* of its second PCI function; "": none */
	struct limits max;
	_Atomic uint32_t qps, cqs, mrs, srqs;
};

struct fevent {
	struct fevent *next;
	struct ibv_async_event event;
};

struct fctx {
	struct fdev *dev;
	unsigned nic;			/* its slot in the fabric */
	bool dead;			/* this is a forked child: the context is the parent's */
	pthread_t thread;
	atomic_bool stop;
	atomic_uint polls;		/* calls that did the thread's work */
	atomic_uint armed_at;		/* `polls` at the last ibv_req_notify_cq() */
	atomic_uint_fast64_t wake_ns;	/* when the thread wakes by itself; 0: now */
	pthread_mutex_t lock;
	pthread_cond_t gone;
	struct fqp *qp[QPS_MAX];	/* by slot */
	_Atomic uint64_t timed[WORDS];	/* queue pairs whose timer may run */
	unsigned pds, cqs, channels;
	uint32_t events_seen[PORTS_MAX];
	bool fatal_seen;
	pthread_mutex_t ev_lock;
	pthread_cond_t ev_acked;
	struct fevent *ev_first, **ev_last;
	struct fctx *next;
	struct verbs_context vctx;	/* ends in the struct ibv_context */
};

struct fpd {
	struct ibv_pd ibv;
	atomic_uint users;
};

struct fmr {
	struct ibv_mr ibv;
	uint64_t iova;
	uint8_t *host;			/* the host address of iova */
	unsigned access;
	bool direct;			/* the NIC's second PCI function writes it */
	void *map;			/* of a DMA-BUF */
	size_t map_len;
};

struct fchannel {
	struct ibv_comp_channel ibv;
	pthread_mutex_t lock;
	struct fcq **queue;		/* events, in order */
	unsigned n, room;
};

struct fcqe {
	struct ibv_wc wc;
	struct fqp *qp;
	struct fsrq *srq;		/* the shared receive queue that it took a slot from */
	uint32_t upto;			/* polling this completion frees the slots before `upto` */
	bool send;
};

struct fcq {
	struct ibv_cq ibv;
	pthread_mutex_t lock;
	struct fcqe *ring;
	uint32_t head, tail;
	enum { ARM_NO, ARM_SOLICITED, ARM_ANY } armed;
	bool overrun, silent;		/* silent: broken, it reports nothing more */
	atomic_uint users;
	unsigned comp_events, async_events;	/* handed to the user */
};

struct swqe {
	struct ibv_send_wr wr;
	struct ibv_sge *sge;
	uint8_t *inl;			/* inline data lie here */
	uint32_t len;
	uint32_t psn, packets;		/* valid once `begun` */
	uint32_t rd_psn;		/* READ: the next response */
	bool signaled, begun, done;
};

struct rwqe {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge *sge;
};

struct fsrq {
	struct ibv_srq ibv;
	pthread_mutex_t lock;
	struct rwqe *ring;
	uint32_t head, tail, size, max_sge, limit;
	atomic_bool broken;
	_Atomic uint32_t held;		/* slots not free: posted, or done and not polled */
	atomic_uint users;
	unsigned async_events;
};

struct fqp {
	struct ibv_qp ibv;
	pthread_mutex_t lock;
	unsigned slot, refs;
	struct fab_qp *fab;
	struct fctx *ctx;
	struct ibv_qp_cap cap;
	bool sig_all, dying, ece_set;
	uint32_t ece;			/* as set, then as accepted */
	struct ibv_qp_attr attr;	/* what was set */
	unsigned async_events;

	struct swqe *sq;		/* una <= next <= tail; polled <= una */
	uint32_t sq_tail, sq_next, sq_una, sq_size;
	_Atomic uint32_t sq_polled;
	uint32_t sq_off;		/* packets of sq_next that were sent */
	uint32_t psn, una_psn;		/* of the next new request; of the oldest not acknowledged */
	uint32_t rd_out;		/* READs in flight */
	uint32_t retries, rnr_retries;
	uint64_t rnr_until, timer, due;	/* 0: not running; due: of a delayed packet */
	_Atomic uint64_t wake;		/* the nearest of them, for the thread */
	bool draining;

	struct rwqe *rq, cur;
	uint32_t rq_tail, rq_head, rq_size;
	_Atomic uint32_t rq_polled;
	bool cur_used, nak_sent, last_wqe;
	uint64_t last_at;		/* when it gives back its last shared receive; 0: not running */
	uint32_t epsn;			/* expected */
	bool established;		/* a packet came in state RTR */
	struct {			/* the READ that we answer */
		bool on;
		uint64_t va, len, off;
		uint32_t key, psn;
	} rd;

	uint32_t routes;		/* fab->routes when src_ok was found */
	bool src_ok;
	bool mpa_wait;			/* iWARP, passive end: nothing has come yet */
	int cm_fd;			/* iWARP: rdma_cm's connection, which ends with this */
};

static inline struct fctx *to_ctx(struct ibv_context *ctx)
{
	return (struct fctx *)((char *)ctx - offsetof(struct fctx, vctx.context));
}

#define TO(type, ptr) ((struct type *)(ptr))

static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t psn_add(uint32_t a, uint32_t b)
{
	return (a + b) & 0xffffff;
}

/* describe.c */
void devs_forked(void);

/* device.c, event.c */
bool ctx_is_dead(struct ibv_context *ctx);	/* fatal, or not this process's; sets errno */
void ctx_event(struct fctx *ctx, enum ibv_event_type type, void *element, int port);
void ctx_events_drop(struct fctx *ctx, void *element);
void ctx_events_wait(struct fctx *ctx, const unsigned *given, const uint32_t *acked);
long srqs_break(void);			/* returns how many queue pairs failed with them */
long cqs_break(void);
void fake_init(bool devices);
EXPORT const char *fake_host(void);

/* cq.c, qp.c, srq.c: the functions that verbs.h calls through the context's table */
int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* mr.c: the host's address of that range of a region, or NULL.  Between mr_enter() and mr_leave(). */
void mr_enter(void);
void mr_leave(void);
void mr_forked(void);
uint8_t *mr_at(struct ibv_pd *pd, uint32_t key, uint64_t va, uint64_t len, unsigned access);
/* A peer writes at `to`, which mr_at() returned; to GPU memory perhaps late (late=1). */
void mr_write(struct ibv_pd *pd, uint32_t key, uint8_t *to, const uint8_t *from, size_t n);
void mr_settle(void);			/* late writes arrive now, since a NIC reads */

/* cq.c */
void cq_push(struct fcq *cq, const struct fcqe *e, bool solicited);
bool cq_break(struct fcq *cq);		/* false: it was broken already */
long cq_vectors(void);			/* how many completion vectors queues have used */
void cq_clean(struct fcq *cq, struct fqp *qp);

/* qp.c */
void qp_set_state(struct fqp *qp, enum ibv_qp_state state);	/* qp.lock held */
void qp_error(struct fqp *qp);					/* flushes; qp.lock held */
void qp_last_wqe(struct fqp *qp);	/* in its error state, at qp->last_at; qp.lock held */
long qp_ece(void);			/* the options agreed on last */
long qp_dlid(void);			/* the LID that the last queue pair sends to */
void send_done(struct fqp *qp, enum ibv_wc_status status);	/* of sq_una */
void recv_done(struct fqp *qp, const struct rwqe *w, enum ibv_wc_status status, uint32_t bytes,
	       unsigned flags, uint32_t imm, bool rdma, bool solicited);
int recv_take(struct rwqe *w, const struct ibv_recv_wr *wr, uint32_t max_sge);

/* srq.c */
bool srq_take(struct fsrq *srq, struct rwqe *ret);

/* nic.c */
void qp_run(struct fqp *qp);					/* qp.lock held */
struct fqp *qp_get(struct fctx *ctx, unsigned slot);		/* NULL: none */
void qp_put(struct fqp *qp);
uint32_t mtu_bytes(enum ibv_mtu mtu);
void nic_help(struct fctx *ctx);
void nic_armed(struct fctx *ctx);
int nic_start(struct fctx *ctx);
void nic_stop(struct fctx *ctx);

/* fault.c */
enum call { CALL_SETUP, CALL_POST, CALL_POLL };
bool call_fails(enum call kind, const char *name);		/* true: errno is set */
void calls_forked(void);
long mr_pinned(void);			/* mr.c: bytes that this process has registered */

/* slow.c: called first in every call that may sleep with a real NIC.  ctx may be NULL. */
void call_takes(const struct ibv_context *ctx, const char *call);
long slow_add(const char *call, const char *ms, const char *nic);
long slow_calls(void);
void slow_forked(void);
extern atomic_int live_ctx, live_pd, live_mr, live_relaxed, live_open;
extern atomic_int live_cq, live_qp, live_srq, live_ah, live_channel, live_posted;

/* For libmlx5.so.1 of this directory. */
EXPORT struct ibv_mr *fake_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
				      int access, bool direct);
EXPORT const char *fake_direct_path(struct ibv_context *ctx);

/* For librdmacm.so.1 of this directory. */
EXPORT int fake_qp_start(struct ibv_qp *qp, uint32_t dest_qpn, uint32_t dst_port, uint32_t psn,
			 uint32_t dest_psn, uint8_t rd_out, uint8_t rd_in, bool passive, int cm_fd);
EXPORT int fake_qp_ready(struct ibv_qp *qp, uint32_t port);	/* RESET to INIT */
EXPORT void fake_qp_stop(struct ibv_qp *qp);
EXPORT bool fake_call_fails(const char *name);
EXPORT void fake_call_takes(const struct ibv_context *ctx, const char *call);
EXPORT void fake_tos(uint8_t tos);	/* notes the type of service that rdma_cm was asked for */
EXPORT struct fab *fake_fabric(void);
EXPORT int fake_route(const char *host, const struct in6_addr *src, const struct in6_addr *dst,
		      uint32_t *ret_src, uint32_t *ret_dst, struct in6_addr *ret_ip);
EXPORT uint32_t fake_find_ip(const char *host, const struct in6_addr *ip);
EXPORT int fake_fabric_dir(void);

#endif
