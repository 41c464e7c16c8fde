/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.c - which devices UCX can use, each through a context of its own.
 *
 * UCX names an RDMA port "mlx5_0:1" and an interface "eth0".  A context gets those of its device,
 * the RDMA ports being the ones whose GID table names its interface; within a host UCX takes shared
 * memory besides.  What the user has set for UCX (UCX_NET_DEVICES, UCX_TLS, ...) goes before.
 */
#include "ucx/port.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"

#define IB "/sys/class/infiniband/"

/* PORT_DIR/gid_attrs/ndevs/I names the interface: "mlx5_0:1" is appended. */
static void add_rdma(char *nets, size_t size, const char *path, const char *netdev)
{
	char name[64], port[16], at[64] = "";
	size_t len = strlen(nets);
	FILE *f = fopen(path, "re");

	if (!f)
		return;
	if (fscanf(f, "%63s", at) == 1 && !strcmp(at, netdev) &&
	    sscanf(path, IB "%63[^/]/ports/%15[^/]/", name, port) == 2) {
		snprintf(at, sizeof(at), "%.40s:%.8s", name, port);
		if (!strstr(nets, at))
			snprintf(nets + len, size - len, "%s,", at);
	}
	fclose(f);
}

static void name_nets(const char *netdev, char *nets, size_t size)
{
	glob_t g;

	nets[0] = '\0';
	if (!glob(IB "*/ports/*/gid_attrs/ndevs/*", GLOB_NOSORT, NULL, &g)) {
		for (size_t i = 0; i < g.gl_pathc; i++)
			add_rdma(nets, size - strlen(netdev) - 1, g.gl_pathv[i], netdev);
		globfree(&g);
	}
	strcat(nets, netdev);		/* for which there is room */
}

struct wish {
	const char *name, *value;
	const char *end;		/* of the names by which a user may have said it */
};

/*
 * Without UCX_MM_ERROR_HANDLING UCX knows no endpoint over shared memory whose peer may die, and
 * with it all else works as before.
 *
 * Over RDMA it would have 4,096 receives for each of our lanes, 33 MiB, and take memory for what it
 * sends in pieces of 10 MiB, which the caller waits for until all of it is pinned.  But on a lane
 * there are never more than some 130 packets (FLYING in ucx.c, of two each).
 *
 * What has come through shared memory is given back by pieces, not by halves of the queue, and two
 * pieces are looked at a call, not 16: so heads are seen before most of their payload has come, and
 * that goes to its place.  (Both names of each, as below.)  Pieces are of 33 KiB, two for 64 KiB;
 * 32 of them are 1 MiB, which stays in a cache, and UCX takes memory for 128 at a time: 4 MiB, as
 * for 512 of the 8 KiB that it would have.
 */
static const struct wish wishes[] = {
	{ "MM_ERROR_HANDLING", "y", "_ERROR_HANDLING" },
	{ "RC_RX_QUEUE_LEN", "256", "_RX_QUEUE_LEN" },
	{ "UD_RX_QUEUE_LEN", "256", "_RX_QUEUE_LEN" },
	{ "RC_RX_BUFS_GROW", "256", "_RX_BUFS_GROW" },
	{ "UD_RX_BUFS_GROW", "256", "_RX_BUFS_GROW" },
	{ "RC_TX_BUFS_GROW", "128", "_TX_BUFS_GROW" },
	{ "UD_TX_BUFS_GROW", "128", "_TX_BUFS_GROW" },
	{ "FIFO_MAX_POLL", "2", "_FIFO_MAX_POLL" },
	{ "MM_FIFO_MAX_POLL", "2", "_FIFO_MAX_POLL" },
	{ "FIFO_RELEASE_FACTOR", "0.05", "_FIFO_RELEASE_FACTOR" },
	{ "MM_FIFO_RELEASE_FACTOR", "0.05", "_FIFO_RELEASE_FACTOR" },
	{ "MM_FIFO_SIZE", "32", "_FIFO_SIZE" },
	{ "MM_SEG_SIZE", "33K", "_SEG_SIZE" },
	{ "MM_RX_BUFS_GROW", "128", "_RX_BUFS_GROW" },
};

/*
 * Over sockets a rendezvous saves no copy, and its answers cost system calls: less goes unasked.
 * UCX's TCP would take 64 KiB and their header for two pieces.  (For larger ones UCX has memory of
 * 512 times their size.)  UCX 1.13 knows that name without the TCP_, which alone has such pieces.
 */
static const struct wish by_sockets[] = {
	{ "RNDV_THRESH", "128K", "_RNDV_THRESH" },
	{ "RX_SEG_SIZE", "72K", "_RX_SEG_SIZE" },
	{ "TCP_RX_SEG_SIZE", "72K", "_RX_SEG_SIZE" },
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* There is a variable UCX_...END. */
static bool said_by_user(const char *end)
{
	for (char **e = environ; e && *e; e++) {
		size_t n = strcspn(*e, "="), len = strlen(end);

		if (!strncmp(*e, "UCX_", 4) && n >= len && !strncmp(*e + n - len, end, len))
			return true;
	}
	return false;
}

static void wish(ucp_config_t *config, const struct wish *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!said_by_user(list[i].end))
			braid_ucp.config_modify(config, list[i].name, list[i].value);
	}
}

/* UCX's names of RDMA ports have a colon, and some words stand for all that there are. */
static bool may_be_rdma(const char *nets)
{
	return strchr(nets, ':') || strstr(nets, "all");
}

static ucs_status_t open_context(struct braid_ucx_port *p)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME |
			      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, .name = "braid",
		.mt_workers_shared = 1,		/* each on a thread of its own */
	};
	const char *user = getenv("UCX_NET_DEVICES");
	ucp_config_t *config;
	ucs_status_t status = braid_ucp.config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return status;
	if (!user)
		status = braid_ucp.config_modify(config, "NET_DEVICES", p->nets);
	wish(config, wishes, COUNT(wishes));
	if (!may_be_rdma(user ? user : p->nets))
		wish(config, by_sockets, COUNT(by_sockets));
	if (status == UCS_OK)
		status = braid_ucp.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
						&p->ctx);
	braid_ucp.config_release(config);
	return status;
}

int braid_ucx_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len)
{
	struct braid_ucp_guard g;
	int err = braid_ucp_load(why, len);

	(void)max;
	for (unsigned i = 0; i < *count && !err; i++) {
		struct braid_ucx_port *p = calloc(1, sizeof(*p));
		ucs_status_t status;

		if (!p)
			return -ENOMEM;
		name_nets(table[i].net.name, p->nets, sizeof(p->nets));
		p->rdma = strchr(p->nets, ':') || getenv("UCX_NET_DEVICES");
		braid_ucp_guard(&g);
		status = open_context(p);
		braid_ucp_unguard(&g);
		if (status == UCS_OK) {
			table[i].port[BRAID_TRANSPORT_UCX] = p;
			continue;
		}
		braid_info("ucx: %s can't be used: ucp_init: %s", p->nets,
			   braid_ucp.status_string(status));
		free(p);
	}
	if (!err)
		snprintf(why, len, "UCX %s", braid_ucp.version_string());
	return err == -ENOMEM ? err : 0;
}
