/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes.c - see lanes.h. */
#include "tests/unit/lanes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/link/control.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/link/recover.h"
#include "core/mem/mrcache.h"
#include "core/msg/comm.h"

enum { TAG = 7 };

extern const struct braid_transport braid_verbs;
static const struct braid_transport *const list[] = { &braid_verbs, NULL };

static struct braid_link *link_new(struct braid_dev *dev, bool dialler)
{
	struct braid_link_key key = { .dev = dev, .traffic_class = -1 };
	struct braid_link *link = braid_link_new(&key);

	assert_non_null(link);
	link->dialler = dialler;
	link->setup.next_comm = !dialler;
	link->lanes_max = BRAID_LANES_MAX;
	link->msg.rx_window = link->msg.tx_window = braid_pool_promise((size_t)braid_param.window);
	strcpy(link->peer, dialler ? "accepter" : "dialler");
	return link;
}

static struct braid_comm *comm_new(struct braid_link *link, bool sender)
{
	struct braid_comm *c;

	braid_lock_wait(&link->lock);
	c = braid_comm_new(link, 2, sender);
	braid_unlock(&link->lock);
	assert_non_null(c);
	c->opened = true;
	return c;
}

void lanes_up(struct lanes *l, const char *from, const char *to)
{
	struct braid_dev *dev[] = { dev_named(from), dev_named(to) };
	struct braid_setup *s[] = { &l->e.dialler, &l->e.accepter };
	int fd[2];

	braid_transports_use(list);
	assert_int_equal(ends_meet(&l->e, dev[0], dev[1]), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct braid_carrier c = { .tr = &braid_verbs, .fd = fd[i], .priv = s[i]->priv };

		dev[i]->best = &braid_verbs;
		l->link[i] = link_new(dev[i], !i);
		assert_int_equal(braid_link_add_lane(l->link[i], 0, &c), 0);
		s[i]->priv = NULL;	/* the lane's from now on */
		l->link[i]->lanes.active = 1;
		assert_int_equal(braid_link_attach(l->link[i]), 0);
		atomic_store(&l->link[i]->state, BRAID_LINK_UP);
		jobs_done(dev[i]);
	}
	l->send = comm_new(l->link[0], true);
	l->recv = comm_new(l->link[1], false);
}

void lanes_down(struct lanes *l)
{
	struct braid_comm *c[] = { l->send, l->recv };

	for (unsigned i = 0; i < 2; i++) {
		braid_lock_wait(&l->link[i]->lock);
		braid_comm_free(c[i]);
		braid_unlock(&l->link[i]->lock);
		braid_link_free(l->link[i]);
	}
	jobs_done(l->e.dialler.dev);
	jobs_done(l->e.accepter.dev);
	braid_pool_trim();
}

struct braid_lane *lane_at(struct lanes *l, unsigned end)
{
	return l->link[end]->lane[0];
}

struct braid_qp *lane_qp(struct lanes *l, unsigned end)
{
	return lane_at(l, end)->priv;
}

static struct braid_mr *mr_of(struct braid_comm *c, char *data, size_t size)
{
	struct braid_mem mem = { .data = data, .size = size, .fd = -1 };
	struct braid_mr *mr;

	assert_int_equal(braid_mr_new(c->link->key.dev, &mem, &mr), 0);
	return mr;
}

static bool is_done(struct braid_req *req)
{
	int res = braid_comm_test(req);

	assert_true(res >= 0);
	return res > 0;
}

void lanes_move(struct lanes *l, size_t size, bool registered)
{
	char *from = malloc(size + 1), *to = malloc(size + 1);
	struct braid_mr *mr[2] = { NULL, NULL };
	struct braid_req *s = NULL, *r = NULL;
	bool sent = false, got = false;
	void *data = to;
	int tag = TAG;

	for (size_t i = 0; i < size; i++)
		from[i] = (char)(i * 7 + (i >> 8) + size);
	if (registered) {
		mr[0] = mr_of(l->send, from, size);
		mr[1] = mr_of(l->recv, to, size);
	}
	UNTIL((braid_comm_irecv(l->recv, 1, &data, &size, &tag, &mr[1], &r), r));
	UNTIL((braid_comm_isend(l->send, from, size, TAG, mr[0], &s), s));
	for (unsigned turn = 0; !sent || !got; turn++) {
		sent = sent || is_done(s);
		got = got || is_done(r);
		if (turn % 64 == 63) {	/* as the service thread would do */
			braid_link_try_flush_control(l->link[0]);
			braid_link_try_flush_control(l->link[1]);
			ports_nap(turn / 64, "the message has arrived");
		}
	}
	braid_comm_finish(s, NULL);
	braid_comm_finish(r, NULL);
	assert_memory_equal(from, to, size);
	for (unsigned i = 0; i < 2; i++) {
		if (mr[i])
			braid_mr_free(mr[i]);
	}
	free(from);
	free(to);
}
