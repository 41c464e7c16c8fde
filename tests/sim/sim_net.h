/* SPDX-License-Identifier: BSD-3-Clause */
/* sim_net.h - the simulated sockets, for sim_net.c, which moves bytes, and sim_os.c, which is called. */
#ifndef BRAID_TESTS_SIM_SIM_NET_H
#define BRAID_TESTS_SIM_SIM_NET_H

#include "tests/sim/sim.h"

enum { RTO_MIN_MS = 200, BACKLOG_MAX = 1024, PORTS = 3000, PORTS_END = 65535 };

enum kind { FILE_TCP, FILE_LISTEN, FILE_EPOLL, FILE_EVENT, FILE_ADDRS };

struct end {			/* of a connection */
	struct conn *conn;
	struct sim_file *file;	/* NULL: closed, or not accepted yet */
	bool up;		/* connected, as far as this end knows */
	bool dead;		/* reset, or never connected */
	bool closed;		/* by its process */
	int err;

	/* what it sends */
	char *ring;		/* NULL: it will not be read */
	uint64_t wrote, sent, arrived, read, acked;
	uint64_t edge, told;	/* the window's end: as known here, as last sent by the peer */
	bool fin;
	uint64_t leaves, lands;	/* when the last segment has left, has arrived */
	uint64_t rto_at, since;	/* since when data is unacknowledged */
	bool rto_set;
	unsigned backoff, probes, retransmits;
	uint64_t heard;		/* when the last acknowledgement came */
	struct braid_list lent;	/* of struct lent: what the process sent by MSG_ZEROCOPY */
	uint32_t calls, let_go, known;	/* such calls; let go of; of which the process knows */
	uint64_t flip_at;	/* a bit of this byte of the stream will be flipped; 0: none */
};

struct lent {			/* bytes that our kernel reads where the process has them */
	struct braid_list node;
	uint64_t from, upto;	/* in the stream */
	const char *at;		/* NULL: the kernel has copied them */
};

struct conn {
	struct braid_list node;
	struct end end[2];	/* 0 has dialled */
	unsigned proc[2], rail;
	union braid_netdev_addr to, from;
	uint64_t latency;
	unsigned syns;
	bool silent;		/* a middlebox has forgotten it */
	bool queued;		/* for accept() */
};

struct sim_file {
	enum kind kind;
	struct sim_proc *proc;
	int fd;
	/* in an epoll set */
	struct sim_file *ep;
	struct epoll_event ev;
	bool armed;
	struct braid_list ep_node, ready_node;
	/* FILE_TCP */
	union braid_netdev_addr bound;
	struct end *end;
	unsigned user_timeout_ms, rto_max_ms;
	bool zerocopy;		/* SO_ZEROCOPY */
	/* FILE_LISTEN */
	struct braid_list listen_node;
	struct conn **queue;
	unsigned nqueue, backlog;
	/* FILE_EPOLL */
	struct braid_list watched;
	struct braid_list ready;	/* those of them that may be ready */
	struct sim_co *waiter;
	/* FILE_EVENT, FILE_ADDRS: changes of our addresses */
	uint64_t count;
};

extern struct sim_weather sim_weather;
extern struct braid_list sim_conns, sim_listeners;
extern uint16_t last_port[SIM_PROCS];	/* of the last listener at that place */

/* -- TCP ------------------------------------------------------------------------------------ */

struct end *peer_of(const struct end *e);
size_t readable(const struct end *e);
size_t sendable(const struct end *e);
bool at_end(const struct end *e);	/* the peer's end of the stream has arrived */
uint64_t limit(const struct end *e);	/* bytes to send, the end of the stream among them */
void tcp_output(struct end *e);		/* sends what the window allows */
void send_ack(struct end *e);
void end_abort(struct end *e);		/* connect() to no address */
void end_lend(struct end *e, const char *at, size_t n);	/* the next n bytes; NULL: copied */
void syn_send(void *arg, uint64_t a, uint64_t b);	/* an event */

/* -- files and ports ------------------------------------------------------------------------ */

struct sim_file *file_new(enum kind kind);
struct sim_file *file_of(int fd);	/* an open one, or the run fails */
void file_close(struct sim_file *f);
uint32_t file_ready(const struct sim_file *f);	/* events, as of epoll */
void file_wake(struct sim_file *f);	/* it may be ready: wakes a thread that waits in epoll */
void unwatch(struct sim_file *f);	/* takes it out of its epoll set */
uint16_t port_new(unsigned place);
unsigned port_place(uint16_t port);
bool is_current(const union braid_netdev_addr *a, unsigned proc);
unsigned rail_of(const union braid_netdev_addr *a);

#endif
