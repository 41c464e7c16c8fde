/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.c - which devices UCX can use, each through a context of its own.
 *
 * UCX names an RDMA port "mlx5_0:1" and an interface "eth0".  A context gets the interface of its
 * device, and the RDMA ports whose GID table names that interface.  Within a host UCX also uses
 * shared memory.  What the user sets for UCX (UCX_NET_DEVICES, UCX_TLS, ...) takes precedence.
 *
 * UCX's TCP is used only if UCX_TLS names it.  It listens on a port of its own, where Braid's
 * handshake protects nothing, and Braid has a TCP of its own.
 */
#include "ucx/port.h"

#include <errno.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/ports.h"

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
	strcat(nets, netdev);		/* add_rdma() has left room for it */
}

struct setting {
	const char *name, *value;
	const char *end;		/* how variables end by which the user may set it */
};

static const struct setting settings[] = {
	/*
	 * Without it, UCX makes no endpoint over shared memory that reports a dead peer.  It
	 * changes nothing else.
	 */
	{ "MM_ERROR_HANDLING", "y", "_ERROR_HANDLING" },
	/*
	 * RDMA: by default UCX posts 4,096 receives a lane (33 MiB), and grows its send buffers by
	 * 10 MiB, which the caller waits for until all is pinned.  But a lane never has more than
	 * some 130 packets in flight: FLYING messages (msg.c), of two packets each.
	 */
	{ "RC_RX_QUEUE_LEN", "256", "_RX_QUEUE_LEN" },
	{ "UD_RX_QUEUE_LEN", "256", "_RX_QUEUE_LEN" },
	{ "RC_RX_BUFS_GROW", "256", "_RX_BUFS_GROW" },
	{ "UD_RX_BUFS_GROW", "256", "_RX_BUFS_GROW" },
	{ "RC_TX_BUFS_GROW", "128", "_TX_BUFS_GROW" },
	{ "UD_TX_BUFS_GROW", "128", "_TX_BUFS_GROW" },
	/*
	 * Shared memory: release the queue piece by piece, not by halves, and poll 2 pieces a call,
	 * not 16.  Then a head is seen before most of its payload has come, and that goes straight
	 * to its place.  UCX's versions differ in the prefix of these names.
	 */
	{ "FIFO_MAX_POLL", "2", "_FIFO_MAX_POLL" },
	{ "MM_FIFO_MAX_POLL", "2", "_FIFO_MAX_POLL" },
	{ "FIFO_RELEASE_FACTOR", "0.05", "_FIFO_RELEASE_FACTOR" },
	{ "MM_FIFO_RELEASE_FACTOR", "0.05", "_FIFO_RELEASE_FACTOR" },
	/*
	 * Pieces of 33 KiB: two for 64 KiB.  32 of them are 1 MiB, which stays in a cache.  Memory
	 * grows by 128 pieces, 4 MiB, as with UCX's default of 512 pieces of 8 KiB.
	 */
	{ "MM_FIFO_SIZE", "32", "_FIFO_SIZE" },
	{ "MM_SEG_SIZE", "33K", "_SEG_SIZE" },
	{ "MM_RX_BUFS_GROW", "128", "_RX_BUFS_GROW" },
};

static const struct setting by_sockets[] = {
	/* Over sockets a rendezvous saves no copy, and its answers cost system calls. */
	{ "RNDV_THRESH", "128K", "_RNDV_THRESH" },
	/*
	 * One piece for 64 KiB and their header, not two.  Not more: UCX allocates 512 times that.
	 * UCX 1.13 knows the name without TCP_, since only TCP has such pieces.
	 */
	{ "RX_SEG_SIZE", "72K", "_RX_SEG_SIZE" },
	{ "TCP_RX_SEG_SIZE", "72K", "_RX_SEG_SIZE" },
	/*
	 * As large as those received, and never larger, which UCX refuses: so either of the user's
	 * sizes, RX or TX, leaves it alone.  With UCX's 8 KiB, copying (below) is 2.5 times slower.
	 */
	{ "TX_SEG_SIZE", "72K", "X_SEG_SIZE" },
	{ "TCP_TX_SEG_SIZE", "72K", "X_SEG_SIZE" },
};

/* What keeps UCX's TCP from aborting the process. */
static const struct setting with_tcp[] = {
	/*
	 * One event a call.  What UCX does for one event may close the endpoint of another, and an
	 * event already fetched for that one fails an assertion of UCX 1.13: the process aborts.
	 */
	{ "MAX_POLL", "1", "_TCP_MAX_POLL" },
	{ "TCP_MAX_POLL", "1", "_TCP_MAX_POLL" },
	/*
	 * Copy what is sent.  If UCX fails to send the caller's own memory, as when the peer ends,
	 * it completes the send twice, which fails an assertion: the process aborts.
	 */
	{ "MAX_IOV", "0", "_TCP_MAX_IOV" },
	{ "TCP_MAX_IOV", "0", "_TCP_MAX_IOV" },
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* Is a variable UCX_...END set? */
static bool is_set_by_user(const char *end)
{
	for (char **e = environ; e && *e; e++) {
		size_t n = strcspn(*e, "="), len = strlen(end);

		if (!strncmp(*e, "UCX_", 4) && n >= len && !strncmp(*e + n - len, end, len))
			return true;
	}
	return false;
}

static void apply(ucp_config_t *config, const struct setting *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_set_by_user(list[i].end))
			braid_ucp.config_modify(config, list[i].name, list[i].value);
	}
}

/* UCX's names of RDMA ports have a colon; some words, such as "all", include every port. */
static bool may_be_rdma(const char *nets)
{
	return strchr(nets, ':') || strstr(nets, "all");
}

/*
 * Does the list of UCX's transports leave its TCP in?  "^" at its head inverts it; NULL is Braid's
 * own, which does not.
 */
static bool has_tcp(const char *tls)
{
	bool without, named = false;
	size_t n;

	if (!tls)
		return false;
	without = *tls == '^';
	for (tls += without; *tls; tls += n + (tls[n] == ',')) {
		n = strcspn(tls, ",");
		named |= (n == 3 && !strncmp(tls, "tcp", n)) ||
			 (n == 3 && !strncmp(tls, "all", n)) || (n == 1 && *tls == '*');
	}
	return named != without;
}

void braid_ucx_warn_listens(void)
{
	static atomic_bool warned;
	const char *tls = getenv("UCX_TLS");

	if (has_tcp(tls) && !atomic_exchange(&warned, true))
		braid_warn("ucx: UCX_TLS=%s lets UCX listen on TCP ports of its own, which Braid "
			   "can't guard: whoever reaches them can disturb or end this process; "
			   "leave tcp out, or use networks without strangers [ucx-listens]", tls);
}

/* UCX's own listeners, if UCX_TLS has its TCP; older versions have no such setting. */
static void set_ports(ucp_config_t *config)
{
	if (!braid_ports_given() || is_set_by_user("_PORT_RANGE"))
		return;
	braid_ucp.config_modify(config, "PORT_RANGE", braid_param.port_range);
	braid_ucp.config_modify(config, "TCP_PORT_RANGE", braid_param.port_range);
}

static ucs_status_t open_context(struct braid_ucx_port *p)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME |
			      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, .name = "braid",
		.mt_workers_shared = 1,		/* each on a thread of its own */
	};
	const char *user = getenv("UCX_NET_DEVICES"), *tls = getenv("UCX_TLS");
	ucp_config_t *config;
	ucs_status_t status = braid_ucp.config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return status;
	if (!user)
		status = braid_ucp.config_modify(config, "NET_DEVICES", p->nets);
	if (status == UCS_OK && !tls)
		status = braid_ucp.config_modify(config, "TLS", "^tcp");
	apply(config, settings, COUNT(settings));
	set_ports(config);
	if (!may_be_rdma(user ? user : p->nets))
		apply(config, by_sockets, COUNT(by_sockets));
	if (has_tcp(tls))
		apply(config, with_tcp, COUNT(with_tcp));
	if (status == UCS_OK)
		status = braid_ucp.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
						&p->ctx);
	braid_ucp.config_release(config);
	return status;
}

int braid_ucx_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len)
{
	struct braid_ucp_guard g;
	int err;

	(void)max;
	if (braid_param.rdma_strict) {
		snprintf(why, len, "is left out by BRAID_RDMA_STRICT");
		braid_warn("ucx: is not used: UCX gives its peers keys of the user's memory, which "
			   "BRAID_RDMA_STRICT=1 forbids [rdma-strict]");
		return 0;
	}
	err = braid_ucp_load(why, len);
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
