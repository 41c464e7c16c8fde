/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c - which NICs there are, opening them, asking them, and their asynchronous events.
 *
 * BRAID_TEST_FAKE_DEVICES says what this process has (ctl.h has the words).  A NIC that is new to the
 * fabric is entered there; its ports, GIDs and state are then the fabric's, its limits ours.
 */
#include "tests/fake/ctl.h"
#include "tests/fake/fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t devs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdev *devs;
static struct fctx *ctxs;

/* --- the description ---------------------------------------------------------------------------- */

struct spec {
	struct fdev *dev;
	uint32_t lid, net, v1;
	uint64_t guid;
	char netdev[IF_NAMESIZE], path[64];
	struct in6_addr addr[IPS_MAX];
	uint32_t naddrs, ifindex;
};

const char *fake_host(void)
{
	const char *host = getenv("BRAID_TEST_FAKE_HOST");

	return host && host[0] ? host : "host";
}

static bool parse_ip(const char *text, struct in6_addr *ret)
{
	struct in_addr v4;

	if (inet_pton(AF_INET6, text, ret) == 1)
		return true;
	if (inet_pton(AF_INET, text, &v4) != 1)
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
	memcpy(&ret->s6_addr[12], &v4, sizeof(v4));
	return true;
}

static bool parse_list(struct spec *s, char *text, bool pkeys)
{
	char *save, *end;

	for (char *w = strtok_r(text, "+", &save); w; w = strtok_r(NULL, "+", &save)) {
		if (pkeys) {
			if (s->dev->npkeys == PKEYS_MAX)
				return false;
			s->dev->pkey[s->dev->npkeys++] = (uint16_t)strtoul(w, &end, 16);
			if (*end)
				return false;
		} else if (s->naddrs == IPS_MAX || !parse_ip(w, &s->addr[s->naddrs++])) {
			return false;
		}
	}
	return true;
}

static bool parse_key(struct spec *s, const char *key, char *value)
{
	struct fdev *d = s->dev;
	const struct {
		const char *key;
		uint32_t *ret;
	} numbers[] = {
		{ "ports", &d->nports }, { "lid", &s->lid }, { "mtu", &d->mtu }, { "speed", &d->speed },
		{ "net", &s->net }, { "v1", &s->v1 }, { "srq", &d->has_srq }, { "imm", &d->has_imm },
		{ "dmabuf", &d->has_dmabuf }, { "linger", &d->linger_ms },
		{ "max_qp", &d->max.max_qp }, { "max_cq", &d->max.max_cq },
		{ "max_mr", &d->max.max_mr }, { "max_cqe", &d->max.max_cqe },
		{ "max_wr", &d->max.max_wr }, { "max_sge", &d->max.max_sge },
		{ "max_inline", &d->max.max_inline }, { "max_rd", &d->max.max_rd },
		{ "max_srq", &d->max.max_srq },
	};
	char *end = value;

	if (!strcmp(key, "netdev")) {
		snprintf(s->netdev, sizeof(s->netdev), "%s", value);
		return true;
	}
	if (!strcmp(key, "path")) {
		snprintf(s->path, sizeof(s->path), "%s", value);
		return true;
	}
	if (!strcmp(key, "guid")) {
		s->guid = strtoull(value, &end, 16);
		return *value && !*end;
	}
	if (!strcmp(key, "memlock")) {
		d->memlock = strtoull(value, &end, 0);
		return *value && !*end;
	}
	if (!strcmp(key, "addr"))
		return parse_list(s, value, false);
	if (!strcmp(key, "pkeys")) {
		d->npkeys = 0;
		return parse_list(s, value, true);
	}
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!strcmp(key, numbers[i].key)) {
			*numbers[i].ret = (uint32_t)strtoul(value, &end, 0);
			return *value && !*end;
		}
	return false;
}

static uint64_t hash(const char *a, const char *b)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *a; a++)
		h = (h ^ (uint8_t)*a) * UINT64_C(0x100000001b3);
	h = (h ^ '/') * UINT64_C(0x100000001b3);
	for (; *b; b++)
		h = (h ^ (uint8_t)*b) * UINT64_C(0x100000001b3);
	return h;
}

/* --- its place in the fabric -------------------------------------------------------------------- */

static void gid_add(struct fab_port *p, const union ibv_gid *gid, uint32_t type, uint32_t ifindex)
{
	for (unsigned i = 0; i < GIDS_MAX; i++)
		if (!p->gid[i].used) {
			p->gid[i] = (struct fab_gid){ *gid, type, ifindex, 1 };
			return;
		}
}

/* Of Ethernet NICs each address is there as v1 and v2, as the kernel does it. */
static void gid_add_ip(const struct spec *s, struct fab_port *p, const struct in6_addr *ip)
{
	union ibv_gid gid;

	memcpy(&gid, ip, sizeof(gid));
	if (s->dev->kind == KIND_ROCEV1 || (s->dev->kind == KIND_ROCEV2 && s->v1))
		gid_add(p, &gid, IBV_GID_TYPE_ROCE_V1, s->ifindex);
	if (s->dev->kind == KIND_ROCEV2)
		gid_add(p, &gid, IBV_GID_TYPE_ROCE_V2, s->ifindex);
}

static void port_fill(const struct spec *s, struct fab_port *p, const struct in6_addr *ips,
		      unsigned nips, const uint8_t mac[6], uint64_t guid, uint32_t lid)
{
	union ibv_gid gid = { .global = { htobe64(UINT64_C(0xfe80000000000000)), htobe64(guid) } };
	struct in6_addr own = { { { 0xfe, 0x80 } } };

	atomic_store(&p->up, 1);
	atomic_store(&p->lid, lid);
	p->nips = nips;
	memcpy(p->ip, ips, nips * sizeof(*ips));
	if (s->dev->kind == KIND_IB) {
		gid_add(p, &gid, IBV_GID_TYPE_IB, 0);
		return;
	}
	if (s->dev->kind == KIND_IWARP) {
		memset(&gid, 0, sizeof(gid));
		memcpy(gid.raw, mac, 6);
		gid_add(p, &gid, IBV_GID_TYPE_IB, s->ifindex);
		return;
	}
	memcpy(&own.s6_addr[8], mac, 3);
	own.s6_addr[8] ^= 2;
	own.s6_addr[11] = 0xff;
	own.s6_addr[12] = 0xfe;
	memcpy(&own.s6_addr[13], mac + 3, 3);
	gid_add_ip(s, p, &own);
	for (unsigned i = 0; i < nips; i++)
		if (memcmp(&ips[i], &own, sizeof(own)))
			gid_add_ip(s, p, &ips[i]);
}

/* Addresses of the interface: IPv4 first, as they lie in a GID. */
static unsigned netdev_ips(const struct spec *s, struct in6_addr *ips, uint8_t mac[6])
{
	struct ifaddrs *list = NULL;
	unsigned n = 0;

	if (!s->netdev[0] || getifaddrs(&list) < 0)
		return 0;
	for (int family = 0; family < 3; family++)
		for (struct ifaddrs *a = list; a && n < IPS_MAX; a = a->ifa_next) {
			const void *sa = a->ifa_addr;

			if (!sa || strcmp(a->ifa_name, s->netdev))
				continue;
			if (family == 0 && a->ifa_addr->sa_family == AF_PACKET) {
				memcpy(mac, ((const struct sockaddr_ll *)sa)->sll_addr, 6);
			} else if (family == 1 && a->ifa_addr->sa_family == AF_INET) {
				memset(&ips[n], 0, sizeof(ips[n]));
				ips[n].s6_addr[10] = ips[n].s6_addr[11] = 0xff;
				memcpy(&ips[n++].s6_addr[12], &((const struct sockaddr_in *)sa)->sin_addr, 4);
			} else if (family == 2 && a->ifa_addr->sa_family == AF_INET6) {
				ips[n++] = ((const struct sockaddr_in6 *)sa)->sin6_addr;
			}
		}
	freeifaddrs(list);
	return n;
}

static int fab_enter(const struct spec *s)
{
	struct fab *fab = fab_get();
	uint64_t h = hash(fake_host(), s->dev->ibv.name);
	uint8_t mac[6] = { 2, 0, (uint8_t)(h >> 24), (uint8_t)(h >> 16), (uint8_t)(h >> 8), (uint8_t)h };
	struct in6_addr ips[IPS_MAX];
	unsigned nips = netdev_ips(s, ips, mac);
	struct fab_dev *d;
	uint32_t n;

	for (unsigned i = 0; i < s->naddrs && nips < IPS_MAX; i++)
		ips[nips++] = s->addr[i];
	fab_lock();
	n = atomic_load(&fab->ndevs);
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(fab->dev[i].host, fake_host()) && !strcmp(fab->dev[i].name, s->dev->ibv.name)) {
			fab_unlock();
			return (int)i;
		}
	if (n == DEVS_MAX) {
		fab_unlock();
		errno = ENOSPC;
		return -1;
	}
	d = &fab->dev[n];
	snprintf(d->host, sizeof(d->host), "%s", fake_host());
	snprintf(d->name, sizeof(d->name), "%.*s", NAME_LEN - 1, s->dev->ibv.name);
	d->kind = (uint32_t)s->dev->kind;
	d->nports = s->dev->nports;
	d->net = s->net;
	d->guid = s->guid ? s->guid : (h | UINT64_C(0x0200000000000000));
	for (uint32_t p = 0; p < d->nports; p++) {
		uint32_t lid = s->dev->kind != KIND_IB ? 0 : s->lid ? s->lid + p : n * PORTS_MAX + p + 1;

		port_fill(s, &d->port[p], ips, nips, mac, d->guid + p + 1, lid);
	}
	atomic_store(&fab->ndevs, n + 1);
	atomic_fetch_add(&fab->routes, 1);
	fab_unlock();
	return (int)n;
}

/*
 * A piece of /sys for a NIC that has a PCI address: ibdev_path, with a link "device" to the card,
 * in which there is net/NETDEV.
 */
static void make_sys(struct fdev *d, const struct spec *s)
{
	const char *parts[] = { fake_host(), "pci0000:00", s->path, "infiniband", d->ibv.name };
	char at[IBV_SYSFS_PATH_MAX], link[IBV_SYSFS_PATH_MAX + 8];
	size_t n;

	n = (size_t)snprintf(at, sizeof(at), "%s", fab_dir());
	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]) && n < sizeof(at); i++) {
		n += (size_t)snprintf(at + n, sizeof(at) - n, "/%s", parts[i]);
		mkdir(at, 0700);
		if (i == 2 && s->netdev[0]) {
			snprintf(link, sizeof(link), "%s/net", at);
			mkdir(link, 0700);
			strncat(link, "/", sizeof(link) - strlen(link) - 1);
			strncat(link, s->netdev, sizeof(link) - strlen(link) - 1);
			mkdir(link, 0700);
		}
	}
	if (n >= sizeof(at))
		return;
	snprintf(link, sizeof(link), "%s/device", at);
	if (!symlink("../..", link) || errno == EEXIST)
		memcpy(d->ibv.ibdev_path, at, n + 1);
}

/* --- the list ----------------------------------------------------------------------------------- */

static struct fdev *dev_new(const char *text)
{
	static const struct {
		const char *name;
		enum kind kind;
	} kinds[] = {
		{ "ib", KIND_IB }, { "rocev1", KIND_ROCEV1 }, { "rocev2", KIND_ROCEV2 },
		{ "iwarp", KIND_IWARP },
	};
	char *copy = strdup(text), *save, *kind = copy ? strchr(copy, ':') : NULL, *w;
	struct fdev *d = calloc(1, sizeof(*d));
	struct spec s = { .dev = d, .v1 = 1 };
	bool good = false;
	int index;

	if (!d || !kind || kind - copy >= NAME_LEN)
		goto bad;
	*kind++ = '\0';
	w = strtok_r(kind, ",", &save);
	for (unsigned i = 0; w && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(w, kinds[i].name)) {
			d->kind = kinds[i].kind;
			good = true;
		}
	d->spec = strdup(text);
	d->nports = 1;
	d->mtu = 4096;
	d->speed = 100;
	d->npkeys = 1;
	d->pkey[0] = 0xffff;
	d->has_srq = 1;
	d->has_imm = d->kind != KIND_IWARP;
	d->linger_ms = 10000;
	d->max = (struct limits){ .max_qp = 512, .max_cq = 1024, .max_mr = 65536, .max_cqe = 65535,
		.max_wr = 4096, .max_sge = 16, .max_inline = 256, .max_rd = 16, .max_srq = 256 };
	snprintf(d->ibv.name, sizeof(d->ibv.name), "%s", copy);
	while (good && (w = strtok_r(NULL, ",", &save))) {
		char *value = strchr(w, '=');

		if (value)
			*value++ = '\0';
		good = value && parse_key(&s, w, value);
	}
	if (!good || !d->spec || d->nports < 1 || d->nports > PORTS_MAX)
		goto bad;
	s.ifindex = s.netdev[0] ? if_nametoindex(s.netdev) : 0;
	index = fab_enter(&s);
	if (index < 0)
		goto bad;
	d->index = (uint32_t)index;
	d->guid = fab_get()->dev[index].guid;
	d->ibv.node_type = d->kind == KIND_IWARP ? IBV_NODE_RNIC : IBV_NODE_CA;
	d->ibv.transport_type = d->kind == KIND_IWARP ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "uverbs%d", index);
	snprintf(d->ibv.dev_path, sizeof(d->ibv.dev_path), "/sys/class/infiniband_verbs/uverbs%d", index);
	snprintf(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), "/sys/class/infiniband/%s", d->ibv.name);
	if (s.path[0])
		make_sys(d, &s);
	free(copy);
	return d;
bad:
	fprintf(stderr, "fake libibverbs: can't make a NIC of '%s'\n", text);
	free(copy);
	free(d ? d->spec : NULL);
	free(d);
	errno = EINVAL;
	return NULL;
}

/* devs_lock held.  What was described before is the same device again. */
static struct fdev *dev_get(const char *text)
{
	struct fdev *d;

	for (d = devs; d; d = d->next)
		if (!strcmp(d->spec, text) && !strcmp(fab_get()->dev[d->index].host, fake_host()))
			return d;
	d = dev_new(text);
	if (d) {
		d->next = devs;
		devs = d;
	}
	return d;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	const char *env = getenv("BRAID_TEST_FAKE_DEVICES");
	struct ibv_device **list;
	char *copy, *save;
	int n = 0;

	if (!fab_get())
		return NULL;
	fake_init(false);
	if (call_fails(CALL_SETUP, __func__))
		return NULL;
	copy = strdup(env ? env : "");
	list = calloc(DEVS_MAX + 1, sizeof(struct ibv_device *));
	if (!copy || !list)
		goto err;
	pthread_mutex_lock(&devs_lock);
	for (char *w = strtok_r(copy, ";", &save); w && n < DEVS_MAX; w = strtok_r(NULL, ";", &save)) {
		struct fdev *d = dev_get(w);

		if (!d)
			break;
		list[n++] = &d->ibv;
	}
	pthread_mutex_unlock(&devs_lock);
	free(copy);
	fake_init(true);
	if (num)
		*num = n;
	return list;
err:
	free(copy);
	free(list);
	errno = ENOMEM;
	return NULL;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (int)TO(fdev, device)->index;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(TO(fdev, device)->guid);
}

/* --- opened ------------------------------------------------------------------------------------- */

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len);

static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

/* A forked child has no threads of ours, and what is in the fabric stays its parent's. */
static void in_child(void)
{
	for (struct fctx *c = ctxs; c; c = c->next)
		c->dead = true;
	pthread_mutex_init(&fork_lock, NULL);
	pthread_mutex_init(&devs_lock, NULL);
	mr_forked();
	calls_forked();
}

static void register_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

bool ctx_is_dead(struct ibv_context *ctx)
{
	struct fctx *c = to_ctx(ctx);

	if (!c->dead && !atomic_load(&fab_get()->dev[c->dev->index].fatal))
		return false;
	errno = EIO;
	return true;
}

int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fdev *d = TO(fdev, device);
	struct fctx *c;
	int nic;

	if (call_fails(CALL_SETUP, __func__))
		return NULL;
	if (atomic_load(&fab_get()->dev[d->index].fatal)) {
		errno = EIO;
		return NULL;
	}
	pthread_once(&once, register_fork);
	nic = fab_nic_take(d->index);
	c = calloc(1, sizeof(*c));
	if (nic < 0 || !c) {
		free(c);
		errno = ENOMEM;
		return NULL;
	}
	c->dev = d;
	c->nic = (unsigned)nic;
	c->ev_last = &c->ev_first;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->gone, NULL);
	pthread_mutex_init(&c->ev_lock, NULL);
	pthread_cond_init(&c->ev_acked, NULL);
	for (uint32_t p = 0; p < d->nports; p++)
		c->events_seen[p] = atomic_load(&fab_port(PORT_ID(d->index, p + 1))->events);
	c->vctx.sz = sizeof(struct verbs_context);
	c->vctx.query_port = query_port;
	c->vctx.context.device = device;
	c->vctx.context.ops.poll_cq = poll_cq;
	c->vctx.context.ops.req_notify_cq = req_notify_cq;
	c->vctx.context.ops.post_send = post_send;
	c->vctx.context.ops.post_recv = post_recv;
	c->vctx.context.ops.post_srq_recv = post_srq_recv;
	c->vctx.context.cmd_fd = -1;
	c->vctx.context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->vctx.context.num_comp_vectors = 4;
	pthread_mutex_init(&c->vctx.context.mutex, NULL);
	c->vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	if (c->vctx.context.async_fd < 0 || nic_start(c)) {
		int err = errno;

		if (c->vctx.context.async_fd >= 0)
			close(c->vctx.context.async_fd);
		fab_nic_give(c->nic);
		free(c);
		errno = err;
		return NULL;
	}
	pthread_mutex_lock(&fork_lock);
	c->next = ctxs;
	ctxs = c;
	pthread_mutex_unlock(&fork_lock);
	atomic_fetch_add(&live_ctx, 1);
	return &c->vctx.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct fctx *c = to_ctx(context);
	bool busy;

	if (!c->dead) {
		pthread_mutex_lock(&c->lock);
		busy = c->pds || c->cqs || c->channels;
		pthread_mutex_unlock(&c->lock);
		if (busy)
			return EBUSY;
		nic_stop(c);
	}
	pthread_mutex_lock(&fork_lock);
	for (struct fctx **p = &ctxs; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	pthread_mutex_unlock(&fork_lock);
	close(context->async_fd);
	while (c->ev_first) {
		struct fevent *e = c->ev_first;

		c->ev_first = e->next;
		free(e);
	}
	if (!c->dead)
		fab_nic_give(c->nic);
	free(c);
	atomic_fetch_sub(&live_ctx, 1);
	return 0;
}

/* --- asking ------------------------------------------------------------------------------------- */

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct fdev *d = to_ctx(context)->dev;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return errno;
	*attr = (struct ibv_device_attr){
		.fw_ver = "0.0.1", .node_guid = htobe64(d->guid), .sys_image_guid = htobe64(d->guid),
		.max_mr_size = UINT64_C(1) << 40, .page_size_cap = 4096, .vendor_id = 0xfa4e,
		.vendor_part_id = 1 + (uint32_t)d->kind, .hw_ver = 1,
		.max_qp = (int)d->max.max_qp, .max_qp_wr = (int)d->max.max_wr,
		.device_cap_flags = d->kind == KIND_IWARP ? 0 : IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = (int)d->max.max_sge,
		.max_sge_rd = d->kind == KIND_IWARP ? 1 : (int)d->max.max_sge,
		.max_cq = (int)d->max.max_cq, .max_cqe = (int)d->max.max_cqe, .max_mr = (int)d->max.max_mr,
		.max_pd = 1024, .max_qp_rd_atom = (int)d->max.max_rd,
		.max_res_rd_atom = (int)(d->max.max_rd * d->max.max_qp),
		.max_qp_init_rd_atom = (int)d->max.max_rd, .atomic_cap = IBV_ATOMIC_NONE, .max_ah = 1024,
		.max_srq = d->has_srq ? (int)d->max.max_srq : 0,
		.max_srq_wr = d->has_srq ? (int)d->max.max_wr : 0,
		.max_srq_sge = d->has_srq ? (int)d->max.max_sge : 0,
		.max_pkeys = (uint16_t)d->npkeys, .local_ca_ack_delay = 15, .phys_port_cnt = (uint8_t)d->nports,
	};
	return 0;
}

static enum ibv_mtu mtu_enum(uint32_t mtu)
{
	return mtu >= 4096 ? IBV_MTU_4096 : mtu >= 2048 ? IBV_MTU_2048 : mtu >= 1024 ? IBV_MTU_1024 :
	       mtu >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	/* lanes and their speed, what comes next above what is asked for */
	static const struct {
		uint32_t gbps;
		uint8_t width, speed;
	} rates[] = {
		{ 10, 2, 1 }, { 25, 1, 32 }, { 40, 2, 4 }, { 56, 2, 16 }, { 100, 2, 32 }, { 200, 2, 64 },
		{ UINT32_MAX, 2, 128 },
	};
	struct fdev *d = to_ctx(context)->dev;
	struct ibv_port_attr a = { 0 };
	struct fab_port *p;
	unsigned i = 0;

	if (call_fails(CALL_SETUP, "ibv_query_port") || ctx_is_dead(context))
		return errno;
	if (port < 1 || port > d->nports)
		return EINVAL;
	p = fab_port(PORT_ID(d->index, port));
	while (d->speed > rates[i].gbps)
		i++;
	a.state = atomic_load(&p->up) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = mtu_enum(d->mtu);
	a.gid_tbl_len = d->kind == KIND_IWARP ? 1 : GIDS_MAX;
	a.max_msg_sz = 1u << 30;
	a.pkey_tbl_len = (uint16_t)d->npkeys;
	a.lid = (uint16_t)atomic_load(&p->lid);
	a.sm_lid = d->kind == KIND_IB;
	a.max_vl_num = 1;
	a.subnet_timeout = 18;
	a.active_width = rates[i].width;
	a.active_speed = rates[i].speed;
	a.phys_state = atomic_load(&p->up) ? 5 : 3;
	a.link_layer = d->kind == KIND_IB ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	if (d->kind == KIND_ROCEV1 || d->kind == KIND_ROCEV2)
		a.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
	memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int gid_get(struct ibv_context *context, uint32_t port, uint32_t index, struct fab_gid *ret)
{
	struct fdev *d = to_ctx(context)->dev;

	if (port < 1 || port > d->nports || index >= GIDS_MAX)
		return EINVAL;
	fab_lock();
	*ret = fab_port(PORT_ID(d->index, port))->gid[index];
	fab_unlock();
	return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct fab_gid g;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return -1;
	if (index < 0 || gid_get(context, port, (uint32_t)index, &g)) {
		errno = EINVAL;
		return -1;
	}
	*gid = g.gid;			/* an empty entry is all zeros */
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry e;
	struct fab_gid g;
	int err;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return errno;
	if (flags)
		return EOPNOTSUPP;
	err = gid_get(context, port, index, &g);
	if (err)
		return err;
	if (!g.used)
		return ENODATA;
	e = (struct ibv_gid_entry){ g.gid, index, port, g.type, g.ifindex };
	memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t max, uint32_t flags, size_t size)
{
	struct fdev *d = to_ctx(context)->dev;
	size_t n = 0;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return -errno;
	if (flags || size < sizeof(*entries))
		return -EINVAL;
	for (uint32_t port = 1; port <= d->nports; port++)
		for (uint32_t i = 0; i < GIDS_MAX && n < max; i++) {
			struct fab_gid g;

			if (!gid_get(context, port, i, &g) && g.used)
				entries[n++] = (struct ibv_gid_entry){ g.gid, i, port, g.type, g.ifindex };
		}
	return (ssize_t)n;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	struct fdev *d = to_ctx(context)->dev;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return -1;
	if (port < 1 || port > d->nports || index < 0 || (uint32_t)index >= d->npkeys) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(d->pkey[index]);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	struct fdev *d = to_ctx(context)->dev;

	for (uint32_t i = 0; port >= 1 && port <= d->nports && i < d->npkeys; i++)
		if (d->pkey[i] == be16toh(pkey))
			return (int)i;
	errno = EINVAL;
	return -1;
}

/* --- protection domains, address handles -------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fctx *c = to_ctx(context);
	struct fpd *pd;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->ibv.context = context;
	pthread_mutex_lock(&c->lock);
	pd->ibv.handle = c->pds++;
	pthread_mutex_unlock(&c->lock);
	atomic_fetch_add(&live_pd, 1);
	return &pd->ibv;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct fpd *pd = TO(fpd, ibv);
	struct fctx *c = to_ctx(ibv->context);

	if (atomic_load(&pd->users))
		return EBUSY;
	if (!c->dead) {
		pthread_mutex_lock(&c->lock);
		c->pds--;
		pthread_mutex_unlock(&c->lock);
	}
	free(pd);
	atomic_fetch_sub(&live_pd, 1);
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct fdev *d = to_ctx(pd->context)->dev;
	struct fab_gid g = { 0 };
	struct ibv_ah *ah;

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(pd->context))
		return NULL;
	errno = EINVAL;
	if (attr->port_num < 1 || attr->port_num > d->nports)
		return NULL;
	if (d->kind == KIND_IWARP) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (d->kind == KIND_IB ? !attr->dlid || attr->dlid == 0xffff : !attr->is_global)
		return NULL;
	if (attr->is_global && (gid_get(pd->context, attr->port_num, attr->grh.sgid_index, &g) || !g.used))
		return NULL;
	/* RoCE resolves the address now, and there is nobody there */
	if (d->kind != KIND_IB) {
		uint32_t net = fab_get()->dev[d->index].net, id;

		fab_lock();
		id = fab_find_gid(&attr->grh.dgid, g.type, net, PORT_NONE);
		fab_unlock();
		if (id == PORT_NONE) {
			errno = ETIMEDOUT;
			return NULL;
		}
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->context = pd->context;
	ah->pd = pd;
	atomic_fetch_add(&TO(fpd, pd)->users, 1);
	atomic_fetch_add(&live_ah, 1);
	return ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	atomic_fetch_sub(&TO(fpd, ah->pd)->users, 1);
	free(ah);
	atomic_fetch_sub(&live_ah, 1);
	return 0;
}

/* --- asynchronous events ------------------------------------------------------------------------ */

void ctx_event(struct fctx *c, enum ibv_event_type type, void *element, int port)
{
	struct fevent *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	if (!e)
		return;
	e->event.event_type = type;
	if (element)
		e->event.element.qp = element;
	else
		e->event.element.port_num = port;
	pthread_mutex_lock(&c->ev_lock);
	*c->ev_last = e;
	c->ev_last = &e->next;
	if (write(c->vctx.context.async_fd, &one, sizeof(one)) < 0)
		perror("fake libibverbs: eventfd");
	pthread_mutex_unlock(&c->ev_lock);
}

/* What nobody has asked for yet, of an object that goes. */
void ctx_events_drop(struct fctx *c, void *element)
{
	pthread_mutex_lock(&c->ev_lock);
	for (struct fevent **p = &c->ev_first; *p;) {
		struct fevent *e = *p;
		uint64_t one;

		if ((void *)e->event.element.qp != element) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		free(e);
		if (read(c->vctx.context.async_fd, &one, sizeof(one)) < 0)
			perror("fake libibverbs: eventfd");
	}
	for (c->ev_last = &c->ev_first; *c->ev_last; c->ev_last = &(*c->ev_last)->next)
		;
	pthread_mutex_unlock(&c->ev_lock);
}

/* Until all that was given out of an object is acknowledged, as the real thing does. */
void ctx_events_wait(struct fctx *c, const unsigned *given, const uint32_t *acked)
{
	pthread_mutex_lock(&c->ev_lock);
	while (*given != *acked) {
		struct timespec ts;

		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec += 5;
		if (pthread_cond_timedwait(&c->ev_acked, &c->ev_lock, &ts) == ETIMEDOUT)
			fprintf(stderr, "fake libibverbs: waiting for events to be acknowledged\n");
	}
	pthread_mutex_unlock(&c->ev_lock);
}

static bool is_cq_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_CQ_ERR;
}

static bool is_srq_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

static bool is_port_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
	       type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_LID_CHANGE;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct fctx *c = to_ctx(context);
	struct fevent *e;
	uint64_t one;

	do {
		if (read(context->async_fd, &one, sizeof(one)) < 0)
			return -1;
		pthread_mutex_lock(&c->ev_lock);
		e = c->ev_first;
		if (e) {
			c->ev_first = e->next;
			if (!e->next)
				c->ev_last = &c->ev_first;
			if (is_cq_event(e->event.event_type))
				TO(fcq, e->event.element.cq)->async_events++;
			else if (is_srq_event(e->event.event_type))
				TO(fsrq, e->event.element.srq)->async_events++;
			else if (!is_port_event(e->event.event_type))
				TO(fqp, e->event.element.qp)->async_events++;
		}
		pthread_mutex_unlock(&c->ev_lock);
	} while (!e);
	*event = e->event;
	free(e);
	return 0;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct fctx *c;

	if (is_port_event(event->event_type))
		return;
	c = to_ctx(is_cq_event(event->event_type) ? event->element.cq->context :
		   is_srq_event(event->event_type) ? event->element.srq->context :
						     event->element.qp->context);
	pthread_mutex_lock(&c->ev_lock);
	if (is_cq_event(event->event_type))
		event->element.cq->async_events_completed++;
	else if (is_srq_event(event->event_type))
		event->element.srq->events_completed++;
	else
		event->element.qp->events_completed++;
	pthread_cond_broadcast(&c->ev_acked);
	pthread_mutex_unlock(&c->ev_lock);
}

/* --- fork ----------------------------------------------------------------------------------------- */

static atomic_bool fork_ready;

EXPORT int ibv_fork_init(void)
{
	if (call_fails(CALL_SETUP, __func__))
		return errno;
	fork_ready = true;
	return 0;
}

/* BRAID_TEST_FAKE_FORK=unneeded: a kernel that copies pinned pages for the child. */
EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	const char *env = getenv("BRAID_TEST_FAKE_FORK");

	if (env && !strcmp(env, "unneeded"))
		return IBV_FORK_UNNEEDED;
	return fork_ready ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

/* --- words ---------------------------------------------------------------------------------------- */

#define NAMED(table, i) \
	((unsigned)(i) < sizeof(table) / sizeof((table)[0]) && (table)[i] ? (table)[i] : "unknown")

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "Work Request Flushed Error", "memory management operation error",
		"bad response error", "local access error", "remote invalid request error",
		"remote access error", "remote operation error", "transport retry counter exceeded",
		"RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request",
		"aborted error", "invalid EE context number", "invalid EE context state", "fatal error",
		"response timeout error", "general error", "TM error", "TM software rendezvous",
	};

	return NAMED(names, status);
}

EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const names[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established",
		"send queue drained", "path migrated", "path migration request error",
		"local catastrophic error", "port active", "port error", "LID change", "P_Key change",
		"SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached",
		"client reregistration", "GID table change", "WQ fatal",
	};

	return NAMED(names, event);
}

EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const names[] = {
		"no state change (NOP)", "down", "init", "armed", "active", "active defer",
	};

	return NAMED(names, state);
}

EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
	static const char *const names[] = {
		NULL, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC",
	};

	return NAMED(names, type);
}
