/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ctl.h - how a test talks to the fake NICs of tests/fake (libibverbs.so.1 there).
 *
 * What stands in the environment, each with BRAID_TEST_FAKE_ before it:
 *   FABRIC              the file through which all processes of a test reach each other, made when
 *                       it is not there; beside it comes a directory, FABRIC.d.  Without it a
 *                       process has a fabric of its own
 *   DEVICES             the NICs of this process: NAME:KIND[,KEY=VALUE...] with ; between them.
 *                       Two processes that name the same NIC (and host) share it.
 *   HOST                which host this process is on ("host"): the same NIC name on another host
 *                       is another NIC
 *   CTL                 commands for braid_fake_ctl(), ; between them, done when the library is
 *                       first asked for devices
 *   CALLS               a file that gets a line "PID CALLS FAILED" when a process ends
 *   FORK                "unneeded": what ibv_is_fork_initialized() says of a newer kernel
 *
 * KIND is ib, rocev1, rocev2 (has v1 entries too), iwarp or efa (no RC queue pairs).  The keys, with
 * what they are unasked:
 *   netdev=lo           GIDs and IP addresses are that interface's (none)
 *   addr=A+B+...        these addresses as well, of that interface or of none
 *   ports=1 (to 255)    addressed=N: only so many of them have addresses (all)
 *   lid=N  guid=HEX  mtu=4096  speed=100 (Gb/s)  net=0 (who has another: no path)
 *   subnet=0  flid=N  router=LID      ib: the prefix of its GIDs; one more, GID 1, for routers that
 *                       go by a FLID; the LID of a router
 *   ifindex=N           what the GIDs say of their interface (the netdev's)
 *   ndev=NAME           and how they call it; needs a path
 *   grh=0               1: each address must have a GRH
 *   ah=1                0: there are no address handles
 *   vectors=4           completion vectors
 *   ece=BITS            options that both ends can agree on (0: none)
 *   effective=GBPS      what ibv_query_port_speed() says (0: it can't)
 *   pkeys=ffff+8001     the P_Key table (ffff)
 *   path=0000:01:00.0   its PCI address: ibdev_path is then a directory that is there, with a link
 *                       "device" to one of that name (without it, nothing is there)
 *   driver=mlx5_core    and there is a link "driver" to that (none)
 *   direct=0            1: memory can be registered with its second PCI function, path's with 1 at
 *                       its end (Data Direct; libmlx5.so.1 here)
 *   max_msg max_qp max_cq max_mr max_cqe max_wr max_sge max_inline max_rd max_srq   limits
 *   memlock=BYTES       what may be registered at one time in a process (no limit)
 *   srq=1  dmabuf=0  peermem=1  v1=1  linger=MS (iwarp: how long TCP tries; 10000)
 *   imm=1 (iwarp: 0)    2: a completion of a write says that it had no bytes
 *   mpa=MS (iwarp: how long a request waits for its answer, and who ends the queue pair with it; 10000)
 *   sigpipe=0 (1: as siw, a send on a queue pair that is over raises SIGPIPE)
 *   busy=N  busy_dials=N (iwarp: the first N ports to listen on, to dial from, are in use)
 *   late=0              1: what is written into a GPU arrives when a NIC of this process reads next
 *
 * Commands.  Where one ends in [pid], it is meant for this process alone, else for the fabric:
 *   port HOST/NAME/PORT down|up       events PORT_ERR, PORT_ACTIVE; packets are lost meanwhile
 *   drop HOST/NAME/PORT 0|1           packets are lost, and nobody is told
 *   lose HOST/NAME/PORT N             the next N packets from there are lost
 *   delay HOST/NAME/PORT USEC         each packet into there takes that much longer
 *   requests HOST/NAME/PORT MSEC      rdma_cm's requests take that much longer into there
 *   gid HOST/NAME/PORT INDEX none|ADDRESS [v1|v2]   event GID_CHANGE
 *   lid HOST/NAME/PORT N              event LID_CHANGE
 *   mtu HOST/NAME/PORT BYTES          event PORT_ACTIVE
 *   fatal HOST/NAME                   event DEVICE_FATAL; everything is EIO from then on
 *   qp QPN error                      the queue pair ends as if the NIC had found a fault
 *   srq error                         [pid] all shared receive queues and their users end likewise
 *   cq error                          [pid] all completion queues of queue pairs are broken
 *   count WHAT [QPN]                  sends messages (IBV_WR_SEND alone) imms (writes with
 *                                     immediate data) recvs packets retries rnr acks, of all if
 *                                     no QPN
 *   fail K [WHICH] [ERRNO] [on]       [pid] the K-th call fails (0: none); WHICH: a function's
 *                                     name, setup, post (the ops), poll, or all but poll; on:
 *                                     every later one too.  Starts the count anew.
 *   calls                             [pid] how many of WHICH there were
 *   slow CALL MSEC [NIC]              [pid] from now on that call takes so much longer, of that NIC's
 *                                     (NAME; any if it is left out); the last that names a call
 *                                     holds.  CALL: a function's name, ibv_modify_qp:INIT (RTR,
 *                                     RTS, ERR, RESET), or all.  slow none: no call any more
 *   slept                             [pid] how many calls were slow
 *   live WHAT                         [pid] how many ctx pd mr cq qp srq ah channel there are;
 *                                     relaxed: of the mr, those with relaxed ordering
 *   vectors                           [pid] on how many completion vectors there were queues
 *   ece                               [pid] the options that were agreed on last
 *   dlid                              [pid] the LID that the last queue pair sends to
 *   tos                               [pid] of the service that rdma_cm was asked for last
 * HOST/ may be left out (this process's own); so may /PORT (1).
 */
#ifndef BRAID_TESTS_FAKE_CTL_H
#define BRAID_TESTS_FAKE_CTL_H

/* 0 or a count; -EINVAL: not understood, -ENOENT: no such NIC, port or queue pair. */
__attribute__((visibility("default"))) long braid_fake_ctl(const char *cmd);

/* Which call was failed last, NULL: none. */
__attribute__((visibility("default"))) const char *braid_fake_failed(void);

#endif
