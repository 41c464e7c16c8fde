/* SPDX-License-Identifier: BSD-3-Clause */
/* loss.c - see loss.h. */
#include "tests/abi/loss.h"

#include <sys/socket.h>

enum { BETWEEN = 32 };			/* messages at least between two losses, over RDMA */

struct talk {				/* messages one way */
	const struct loss *l;
	void *comm;
	struct buf buf[LOSS_DEPTH];
	struct op op[LOSS_DEPTH];
	uint64_t next[LOSS_DEPTH];	/* number of the message in each slot */
	size_t most;
	bool is_recv;
};

static size_t size_of(const struct talk *k, uint64_t i)
{
	return k->l->sizes[i * 2654435761u % 4294967296u >> 13 & 7];
}

static void again(struct net *net, struct talk *k, unsigned i)
{
	size_t size = size_of(k, k->next[i]);

	if (k->is_recv) {
		k->op[i] = op_recv(net, k->comm, &k->buf[i], k->most, 0);
	} else {
		fill(k->buf[i].data, size, k->next[i]);
		k->op[i] = op_send(net, k->comm, &k->buf[i], size, 0);
	}
}

static void talk_new(struct net *net, struct talk *k, void *comm, bool is_recv)
{
	k->comm = comm;
	k->is_recv = is_recv;
	for (unsigned i = 0; i < 8; i++)
		k->most = k->l->sizes[i] > k->most ? k->l->sizes[i] : k->most;
	for (unsigned i = 0; i < LOSS_DEPTH; i++) {
		k->buf[i] = buf_new(net, comm, k->most, i);
		k->next[i] = i;
		again(net, k, i);
	}
}

/* Tests messages in the order of posting, and posts new ones; true when all rounds are done. */
static bool talk_step(struct net *net, struct talk *k, uint64_t *oldest)
{
	uint64_t all = (uint64_t)k->l->rounds * LOSS_DEPTH;

	while (*oldest < all) {
		unsigned i = *oldest % LOSS_DEPTH;

		for (unsigned n = 0; n < LOSS_DEPTH && *oldest + n < all; n++) {
			unsigned o = (unsigned)((*oldest + n) % LOSS_DEPTH);

			if (!k->op[o].posted && !op_post(&k->op[o]))
				break;
		}
		if (!k->op[i].posted || !op_test(&k->op[i]))
			return false;
		OK(k->op[i].res);
		if (k->is_recv) {
			EQ(size_of(k, k->next[i]), k->op[i].got[0]);
			filled(k->buf[i].data, size_of(k, k->next[i]), k->next[i]);
		}
		k->next[i] += LOSS_DEPTH;
		again(net, k, i);
		++*oldest;
	}
	return true;
}

static void talk_free(struct net *net, struct talk *k)
{
	for (unsigned i = 0; i < LOSS_DEPTH; i++)
		buf_free(net, &k->buf[i]);
}

static struct abi *chance;
static struct loss *losing;

static bool shut_some(int fd)
{
	if (rnd_below(chance, losing->one_in) || (losing->most && losing->shut == losing->most))
		return false;
	if (losing->resets && losing->shut % 2)
		connect(fd, &(struct sockaddr){ .sa_family = AF_UNSPEC }, sizeof(struct sockaddr));
	else
		shutdown(fd, SHUT_RDWR);
	losing->shut++;
	return true;
}

void both_ways(struct abi *t, struct net *net, void *send, void *recv, struct loss *l)
{
	uint64_t out_n = 0, in_n = 0, end = deadline_ms(60000), next = now_us() + 5000, had = 0;
	static struct talk out, in;
	bool done = false;

	chance = t;
	losing = l;
	out = in = (struct talk){ .l = l };
	talk_new(net, &out, send, false);
	talk_new(net, &in, recv, true);
	while (!done) {
		done = talk_step(net, &out, &out_n);
		done = talk_step(net, &in, &in_n) && done;
		/* Some drivers take 100 ms to set up a queue pair, and only one that is up can be lost. */
		if (l->one_in && now_us() >= next && (!over_rdma() || out_n + in_n >= had + BETWEEN)) {
			count_streams(shut_some);
			had = out_n + in_n;
			next = now_us() + 1000 + rnd_below(t, 20000);
		}
		wait_tick(end, __FILE__, __LINE__, "all messages");
	}
	talk_free(net, &out);
	talk_free(net, &in);
}
