/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smc.c - SMC: the stream engine over a socket of AF_SMC, which is RDMA or shared memory
 * underneath, or has fallen back to TCP.
 *
 * SMC hides faults, and the kernel's heartbeat takes half a minute.  So lane->fd stays the
 * handshake's socket, which is closed when the peer's process ends.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/transport.h"
#include "smc/conn.h"
#include "socket/stream.h"

enum { STUCK = 30 };			/* checks without progress, a tenth of a second apart */

static struct smc_conn *conn_of(const struct braid_lane *lane)
{
	return lane->priv;
}

static const char *kind_text(const struct braid_smc_mode *mode)
{
	return !mode->found ? "SMC, of a kind that the kernel does not tell" :
	       mode->kind == BRAID_SMC_R ? "SMC-R" : mode->kind == BRAID_SMC_D ? "SMC-D" : "TCP";
}

static int smc_open(struct braid_lane *lane)
{
	const struct smc_conn *w = conn_of(lane);

	((struct braid_stream *)lane)->fd = w->fd;
	lane->event_fd = w->fd;
	braid_info("device %s, peer %s: lane %u is %s%s%s", lane->link->key.dev->net.name,
		   lane->link->peer, lane->index, kind_text(&w->mode),
		   w->mode.ib[0] ? " over " : "", w->mode.ib);
	return 0;
}

/*
 * Closes the handshake's socket before the stream.  When the peer's stream fails, the peer looks at
 * that socket and sees that this end has closed the lane.
 */
static void smc_close(struct braid_lane *lane)
{
	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	lane->event_fd = -1;
	braid_stream_close(lane);
	braid_smc_conn_free(conn_of(lane));
	lane->priv = NULL;
}

/* The errno of a failed stream: -ENOTCONN if the peer's process has ended, else the stream's. */
static int verdict(const struct braid_lane *lane, int err)
{
	if (err == -EAGAIN || err == -EILSEQ || lane->rx_broken || err == -ENOMEM)
		return err;
	if (braid_lane_check_fd(lane))
		return -ENOTCONN;
	return err == -ECONNRESET || err == -ECANCELED ? -EIO : err;
}

static int smc_push(struct braid_lane *lane)
{
	int err = braid_stream_push(lane);

	return err ? verdict(lane, err) : 0;
}

static int smc_poll(struct braid_lane *lane)
{
	int n = braid_stream_poll(lane);

	return n < 0 ? verdict(lane, n) : n;
}

static int smc_health(struct braid_lane *lane, struct braid_health *ret)
{
	int err;

	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* another thread moves the link */
	ret->unacked = lane->tx.f_sent != lane->tx.f_peer_acked;
	err = braid_lane_stuck(lane, &conn_of(lane)->progress, STUCK) ? -ETIMEDOUT : 0;
	braid_unlock(&lane->link->lock);
	return err;
}

static void smc_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	const struct smc_conn *w = conn_of(lane);

	snprintf(ret->text, sizeof(ret->text), "%s%s%s", kind_text(&w->mode),
		 w->mode.ib[0] ? " over " : "", w->mode.ib);
}

/* Checks the kernel only: whether an interface can do SMC shows when a lane connects. */
static int smc_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len)
{
	static char here;
	struct braid_smc_mode mode;
	int fd, err;

	(void)max;
	fd = braid_smc_find();
	if (fd < 0) {
		snprintf(why, len, "the kernel has no AF_SMC (%s): modprobe smc", strerror(-fd));
		return 0;
	}
	err = braid_smc_diag(fd, &mode);
	braid_smc_close(fd);
	if (err && err != -ENOENT) {
		snprintf(why, len, "the kernel does not tell SMC from a fallback to TCP (%s): "
			 "modprobe smc_diag", strerror(-err));
		return 0;
	}
	for (unsigned i = 0; i < *count; i++)
		table[i].port[BRAID_TRANSPORT_SMC] = &here;
	return 0;
}

const struct braid_transport braid_smc = {
	.name = "smc",
	.id = BRAID_TRANSPORT_SMC,
	.lane_size = sizeof(struct braid_stream),
	.probe = smc_probe,
	.usable = braid_always,
	.event_fd = braid_no_event_fd,
	.events = braid_no_events,
	.reg = braid_no_reg,
	.dereg = braid_no_dereg,
	.blob = true,
	.slow = true,
	.rest_s = BRAID_SMC_REST_S,
	.setup = braid_smc_setup,
	.setup_peer = braid_smc_setup_peer,
	.setup_ready = braid_smc_setup_ready,
	.setup_drop = braid_smc_setup_drop,
	.lane_open = smc_open,
	.lane_attach = braid_stream_attach,
	.lane_detach = braid_stream_detach,
	.lane_close = smc_close,
	.lane_fence = braid_no_lane,
	.arm = braid_no_arm,
	.push = smc_push,
	.poll = smc_poll,
	.blind = true,
	.health = smc_health,
	.describe = smc_describe,
};
