/* SPDX-License-Identifier: BSD-3-Clause */
/* loss.h - messages of all sizes both ways between two processes, while connections are lost. */
#ifndef BRAID_TESTS_ABI_LOSS_H
#define BRAID_TESTS_ABI_LOSS_H

#include "tests/abi/abi.h"

enum { LOSS_DEPTH = 4 };		/* messages posted at a time, each way */

struct loss {				/* both ends have the same sizes and rounds */
	const size_t *sizes;		/* 8 of them */
	unsigned rounds;		/* of LOSS_DEPTH messages each way */
	unsigned one_in;		/* each time one in so many sockets is shut; 1: all, 0: none */
	unsigned most;			/* sockets that are shut in all; 0: no limit */
	bool resets;			/* every other one by RST, not FIN */
	unsigned shut;			/* how many have been */
};

/* Sends and receives all messages, and checks every byte; any error fails the case. */
void both_ways(struct abi *t, struct net *net, void *send, void *recv, struct loss *l);

#endif
