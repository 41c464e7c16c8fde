/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.h - what the files of the fake librdmacm share.
 *
 * All this state is under cm_lock, and the functions are called with that lock held.
 */
#ifndef BRAID_TESTS_FAKE_CM_H
#define BRAID_TESTS_FAKE_CM_H

#define FAKE_CM
#include "tests/fake/fake.h"

#pragma GCC visibility push(default)
#include <rdma/rdma_cma.h>
#pragma GCC visibility pop

enum { PRIVATE_MAX = 256, STOP = 1 << 20 };

enum msg_type { MSG_REQ = 1, MSG_REP, MSG_REJ, MSG_RTU };

struct msg {
	uint32_t type, qpn, port, psn, mtu, lid;
	union ibv_gid gid;
	struct in6_addr src, dst;
	uint16_t sport, dport;
	uint8_t rd_out, rd_in, rnr_retry, retry, private_len;
	uint8_t private_data[PRIVATE_MAX];
};

enum cm_state { CM_IDLE, CM_BOUND, CM_ADDR, CM_ROUTE, CM_LISTEN, CM_CONNECTING, CM_EMBRYO, CM_REQUESTED,
	CM_ACCEPTING, CM_CONNECTED, CM_ENDED, CM_GONE };

struct cm_id {
	struct rdma_cm_id ibv;		/* first */
	struct cm_id *next;
	uint64_t serial;
	struct cm_chan *chan;
	struct cm_id *listener;
	enum cm_state state;
	int fd;
	char name[80];			/* of a listening socket */
	struct in6_addr src, dst;
	uint16_t sport, dport;
	uint32_t src_port, dst_port;	/* PORT_ID */
	struct msg local, remote;
	unsigned unacked;
	uint64_t due_ns;		/* CONNECTING: when it times out; EMBRYO: when its request comes */
};

struct cm_event {
	struct rdma_cm_event ibv;	/* first */
	struct cm_event *next;
	struct cm_id *owner;
	uint8_t data[PRIVATE_MAX];
};

struct cm_chan {
	struct rdma_event_channel ibv;	/* first */
	int epfd, stopfd;
	pid_t pid;
	pthread_t thread;
	struct cm_event *first, **last;
};

extern pthread_mutex_t cm_lock;
extern pthread_cond_t cm_answered;	/* a request has had its answer */
extern struct cm_id *cm_ids;
extern struct cm_device {
	struct ibv_context *ctx;
	unsigned users;
} cm_devices[DEVS_MAX];

uint64_t cm_clock_ns(void);
enum kind cm_kind_of(uint32_t port);
bool cm_is_forked(const struct cm_chan *c);
bool cm_is_iwarp(const struct cm_id *id);
void cm_push(struct cm_id *id, struct cm_id *owner, enum rdma_cm_event_type type, int status,
		 const struct msg *m);
int cm_take_device(struct cm_id *id, uint32_t port);
void cm_set_addrs(struct cm_id *id);
struct cm_id *cm_id_new(struct cm_chan *chan, void *context, enum rdma_port_space ps);
void cm_watch(struct cm_id *id);
void cm_close_fd(struct cm_id *id);
void cm_id_free(struct cm_id *id);
int cm_start_qp(struct cm_id *id, bool passive);
bool cm_fill(struct cm_id *id, struct msg *m, enum msg_type type, const struct rdma_conn_param *p,
		 uint8_t max);
int cm_say(struct cm_id *id, const struct msg *m);
struct fab_port *cm_port_of(uint32_t id);
void cm_hang_up(struct cm_id *id);

#endif
