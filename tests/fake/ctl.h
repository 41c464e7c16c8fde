/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ctl.h - how a test talks to the fake NICs of tests/fake (libibverbs.so.1 there).
 *
 * Environment variables, each with BRAID_TEST_FAKE_ before it:
 *   FABRIC              the file through which all processes of a test reach each other, made if it
 *                       does not exist, and beside it a directory, FABRIC.d.  Without this variable
 *                       a process has a fabric of its own
 *   DEVICES             the NICs of this process: NAME:KIND[,KEY=VALUE...] with ; between them.
 *                       Two processes that name the same NIC (and host) share it.
 *   HOST                which host this process is on ("host"): the same NIC name on another host
 *                       is another NIC
 *   CTL                 commands for braid_fake_ctl(), ; between them, run at the first
 *                       ibv_get_device_list()
 *   CALLS               a file that gets a line "PID CALLS FAILED" when a process ends
 *   FORK                "unneeded": ibv_is_fork_initialized() answers as with a newer kernel
 *
 * KIND is ib, rocev1, rocev2 (has v1 entries too), iwarp or efa (no RC queue pairs).  The keys, with
 * their defaults:
 *   netdev=lo           GIDs and IP addresses are that interface's (none)
 *   addr=A+B+...        these addresses as well, of that interface or of none
 *   ports=1 (to 255)    addressed=N: only so many of them have addresses (all)
 *   lid=N  guid=HEX  mtu=4096  speed=100 (Gb/s)  net=0 (no path between different nets)
 *   subnet=0  flid=N  router=LID      ib: the prefix of its GIDs; one more, GID 1, for routers that
 *                       go by a FLID; the LID of a router
 *   ifindex=N           the interface index in the GID table (the netdev's)
 *   ndev=NAME           the interface name there; needs a path
 *   grh=0               1: each address must have a GRH
 *   ah=1                0: there are no address handles
 *   vectors=4           completion vectors
 *   ece=BITS            options that both ends can agree on (0: none)
 *   effective=GBPS      the answer of ibv_query_port_speed() (0: it fails)
 *   pkeys=ffff+8001     the P_Key table (ffff)
 *   path=0000:01:00.0   its PCI address: ibdev_path is then a directory that exists, with a link
 *                       "device" to one of that name (without this key it does not exist)
 *   driver=mlx5_core    "device" then has a link "driver" to that (none)
 *   direct=0            1: memory can be registered with its second PCI function, path's with 1 at
 *                       its end (Data Direct; libmlx5.so.1 here)
 *   max_msg max_qp max_cq max_mr max_cqe max_wr max_sge max_inline max_rd max_srq   limits
 *   memlock=BYTES       bytes that a process may have registered at a time (no limit)
 *   last_wqe=1          0: it never reports a queue pair's last shared receive, nor gives it back
 *   srq=1  dmabuf=0  peermem=1  v1=1  linger=MS (iwarp: how long TCP tries; 10000)
 *   imm=1 (iwarp: 0)    2: the completion of a write with immediate data reports 0 bytes
 *   mpa=MS (iwarp: how long a request waits for its answer, and destroying its queue pair too; 10000)
 *   sigpipe=0 (1: as siw, a send on a queue pair that has ended raises SIGPIPE)
 *   busy=N  busy_dials=N (iwarp: the first N ports to listen on, to dial from, are in use)
 *   late=0              1: a write into a GPU arrives when a NIC of this process reads next
 *
 * Commands.  One marked [pid] acts on this process alone, else on the fabric:
 *   port HOST/NAME/PORT down|up       events PORT_ERR, PORT_ACTIVE; packets are lost meanwhile
 *   drop HOST/NAME/PORT 0|1           packets are lost, without an event
 *   lose HOST/NAME/PORT N             the next N packets from there are lost
 *   flip HOST/NAME/PORT sends|writes|counts N   a bit of each of the next N messages from there is
 *                                     changed on the way; counts: writes of up to 12 bytes, in
 *                                     the first 4; writes: longer ones, with immediate data or not
 *   delay HOST/NAME/PORT USEC         each packet into there takes that much longer
 *   requests HOST/NAME/PORT MSEC      rdma_cm's requests take that much longer into there
 *   gid HOST/NAME/PORT INDEX none|ADDRESS [v1|v2]   event GID_CHANGE
 *   lid HOST/NAME/PORT N              event LID_CHANGE
 *   mtu HOST/NAME/PORT BYTES          event PORT_ACTIVE
 *   fatal HOST/NAME                   event DEVICE_FATAL; everything is EIO from then on
 *   qp QPN error                      the queue pair fails as if the NIC had found a fault
 *   srq error                         [pid] all shared receive queues and their users fail likewise
 *   cq error                          [pid] all completion queues of queue pairs are broken
 *   count WHAT [QPN]                  sends messages (IBV_WR_SEND alone) imms (writes with
 *                                     immediate data) reads recvs packets retries rnr acks
 *                                     flips, of all if no QPN
 *   fail K [WHICH] [ERRNO] [on]       [pid] the K-th call fails (0: none); WHICH: a function's
 *                                     name, setup, post (the ops), poll, or all but poll; on:
 *                                     every later one too.  Restarts the count.
 *   calls                             [pid] how many calls of WHICH were made
 *   slow CALL MSEC [NIC]              [pid] that call takes so much longer from now on, with that
 *                                     NIC (NAME; without it, with any); the last command for a
 *                                     call holds.  CALL: a function's name, ibv_modify_qp:INIT
 *                                     (RTR, RTS, ERR, RESET), or all.  slow none: no call
 *   slept                             [pid] how many calls were slow
 *   live WHAT                         [pid] how many ctx pd mr cq qp srq ah channel exist;
 *                                     posted: receives that wait in shared receive queues;
 *                                     relaxed: of the mr, those with relaxed ordering
 *                                     open: of the mr, those that a peer may write; pinned: bytes of all mr
 *   vectors                           [pid] how many completion vectors queues have used
 *   ece                               [pid] the options agreed on last
 *   dlid                              [pid] the LID that the last queue pair sends to
 *   tos                               [pid] the type of service that rdma_cm was asked for last
 * HOST/ may be left out (this process's own); so may /PORT (1).
 */
#ifndef BRAID_TESTS_FAKE_CTL_H
#define BRAID_TESTS_FAKE_CTL_H

/* 0 or a count; -EINVAL: not understood; -ENOENT: no such NIC, port or queue pair. */
__attribute__((visibility("default"))) long braid_fake_ctl(const char *cmd);

/* The call that was made to fail last; NULL: none. */
__attribute__((visibility("default"))) const char *braid_fake_failed(void);

#endif
