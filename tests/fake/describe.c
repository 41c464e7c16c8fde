/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * describe.c - which NICs this process has.
 *
 * BRAID_TEST_FAKE_DEVICES describes them (see ctl.h).  A NIC that is new to the fabric is entered
 * there.  Its ports, GIDs and state belong to the fabric, its limits to this process.
 */
#include "tests/fake/fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t devs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fdev *devs;

/* In a forked child: another thread of the parent may have held the lock. */
void devs_forked(void)
{
	pthread_mutex_init(&devs_lock, NULL);
}

/* --- the description ---------------------------------------------------------------------------- */

struct spec {
	struct fdev *dev;
	uint32_t lid, net, v1, subnet, flid, router, addressed;
	uint64_t guid;
	char netdev[IF_NAMESIZE], path[64], driver[64], ndev[IF_NAMESIZE];
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
		{ "subnet", &s->subnet }, { "flid", &s->flid }, { "router", &s->router },
		{ "addressed", &s->addressed }, { "ifindex", &s->ifindex }, { "ah", &d->has_ah },
		{ "grh", &d->has_grh }, { "vectors", &d->vectors }, { "ece", &d->ece },
		{ "effective", &d->effective }, { "max_msg", &d->max.max_msg },
		{ "net", &s->net }, { "v1", &s->v1 }, { "srq", &d->has_srq },
		{ "last_wqe", &d->has_last_wqe }, { "imm", &d->has_imm },
		{ "dmabuf", &d->has_dmabuf }, { "peermem", &d->has_peermem }, { "late", &d->has_late },
		{ "direct", &d->has_direct },
		{ "linger", &d->linger_ms }, { "mpa", &d->mpa_ms }, { "sigpipe", &d->has_sigpipe },
		{ "busy", &d->busy },
		{ "busy_dials", &d->busy_dials },
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
	if (!strcmp(key, "ndev")) {
		snprintf(s->ndev, sizeof(s->ndev), "%s", value);
		return true;
	}
	if (!strcmp(key, "path")) {
		snprintf(s->path, sizeof(s->path), "%s", value);
		return true;
	}
	if (!strcmp(key, "driver")) {
		snprintf(s->driver, sizeof(s->driver), "%s", value);
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

/* An Ethernet NIC has a v1 and a v2 entry for each address, as with the kernel. */
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
	atomic_store(&p->mtu, s->dev->mtu);
	p->nips = nips;
	memcpy(p->ip, ips, nips * sizeof(*ips));
	if (s->dev->kind == KIND_IB || s->dev->kind == KIND_EFA) {
		gid.raw[6] = (uint8_t)(s->subnet >> 8);
		gid.raw[7] = (uint8_t)s->subnet;
		gid_add(p, &gid, IBV_GID_TYPE_IB, 0);
		gid.raw[4] = (uint8_t)(s->flid >> 8);
		gid.raw[5] = (uint8_t)s->flid;
		if (s->flid)
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

/* The interface's addresses as in a GID, IPv4 first. */
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
	d->subnet = s->subnet;
	d->router = s->router;
	d->guid = s->guid ? s->guid : (h | UINT64_C(0x0200000000000000));
	for (uint32_t p = 0; p < d->nports; p++) {
		uint32_t lid = s->dev->kind != KIND_IB ? 0 : s->lid ? s->lid + p : n * PORTS_MAX + p + 1;

		if (p < s->addressed) {
			port_fill(s, &d->port[p], ips, nips, mac, d->guid + p + 1, lid);
		} else {
			atomic_store(&d->port[p].up, 1);
			atomic_store(&d->port[p].mtu, s->dev->mtu);
			atomic_store(&d->port[p].lid, lid);
		}
	}
	atomic_store(&fab->ndevs, n + 1);
	atomic_fetch_add(&fab->routes, 1);
	fab_unlock();
	return (int)n;
}

/* Makes the second function: a PCI device at the same address, but with 1 as the last digit. */
static void make_direct(struct fdev *d, const char *card)
{
	char bus[IBV_SYSFS_PATH_MAX], link[IBV_SYSFS_PATH_MAX + 16];

	snprintf(d->direct_path, sizeof(d->direct_path), "%.*s1", (int)strlen(card) - 1, card);
	mkdir(d->direct_path, 0700);
	if (snprintf(bus, sizeof(bus), "%s/pci", fab_dir()) >= (int)sizeof(bus))
		return;
	mkdir(bus, 0700);
	snprintf(link, sizeof(link), "%s/subsystem", d->direct_path);
	if (symlink(bus, link) && errno != EEXIST)
		perror(link);
}

/*
 * Makes a piece of /sys for a NIC that has a PCI address: ibdev_path, with a link "device" to the
 * card's directory, which has net/NETDEV and a link "driver".
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
		if (i == 2 && s->driver[0]) {
			snprintf(link, sizeof(link), "%s/driver", at);
			if (symlink(s->driver, link) && errno != EEXIST)
				perror(link);
		}
		if (i == 2 && d->has_direct)
			make_direct(d, at);
	}
	if (n >= sizeof(at))
		return;
	snprintf(link, sizeof(link), "%s/device", at);
	if (!symlink("../..", link) || errno == EEXIST)
		memcpy(d->ibv.ibdev_path, at, n + 1);
}

/* Makes gid_attrs/ndevs: for each GID, the name of its interface in the interface's own namespace. */
static void make_ndevs(const struct fdev *d, const char *name)
{
	const char *parts[] = { "ports", "1", "gid_attrs", "ndevs" };
	char at[IBV_SYSFS_PATH_MAX + 64];
	size_t n = (size_t)snprintf(at, sizeof(at), "%s", d->ibv.ibdev_path);
	FILE *f;

	for (unsigned i = 0; i < 4; i++) {
		n += (size_t)snprintf(at + n, sizeof(at) - n, "/%s", parts[i]);
		mkdir(at, 0700);
	}
	for (unsigned i = 0; i < GIDS_MAX; i++) {
		snprintf(at + n, sizeof(at) - n, "/%u", i);
		f = fopen(at, "we");
		if (!f || fprintf(f, "%s\n", name) < 0)
			perror(at);
		if (f)
			fclose(f);
	}
}

/* --- the list ----------------------------------------------------------------------------------- */

static struct fdev *dev_new(const char *text)
{
	static const struct {
		const char *name;
		enum kind kind;
	} kinds[] = {
		{ "ib", KIND_IB }, { "rocev1", KIND_ROCEV1 }, { "rocev2", KIND_ROCEV2 },
		{ "iwarp", KIND_IWARP }, { "efa", KIND_EFA },
	};
	char *copy = strdup(text), *save, *kind = copy ? strchr(copy, ':') : NULL, *w;
	struct fdev *d = calloc(1, sizeof(*d));
	struct spec s = { .dev = d, .v1 = 1, .addressed = PORTS_MAX };
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
	d->has_srq = d->has_last_wqe = 1;
	d->has_ah = 1;
	d->vectors = 4;
	d->has_peermem = 1;
	d->has_imm = d->kind != KIND_IWARP;
	d->linger_ms = d->mpa_ms = 10000;
	d->max = (struct limits){ .max_qp = 512, .max_cq = 1024, .max_mr = 65536, .max_cqe = 65535,
		.max_wr = 4096, .max_sge = 16, .max_inline = 256, .max_rd = 16, .max_srq = 256,
		.max_msg = 1u << 30 };
	snprintf(d->ibv.name, sizeof(d->ibv.name), "%s", copy);
	while (good && (w = strtok_r(NULL, ",", &save))) {
		char *value = strchr(w, '=');

		if (value)
			*value++ = '\0';
		good = value && parse_key(&s, w, value);
	}
	if (!good || !d->spec || d->nports < 1 || d->nports > PORTS_MAX)
		goto bad;
	if (!s.ifindex && s.netdev[0])
		s.ifindex = if_nametoindex(s.netdev);
	index = fab_enter(&s);
	if (index < 0)
		goto bad;
	d->index = (uint32_t)index;
	d->guid = fab_get()->dev[index].guid;
	d->ibv.node_type = d->kind == KIND_IWARP ? IBV_NODE_RNIC :
			   d->kind == KIND_EFA ? IBV_NODE_UNSPECIFIED : IBV_NODE_CA;
	d->ibv.transport_type = d->kind == KIND_IWARP ? IBV_TRANSPORT_IWARP :
				d->kind == KIND_EFA ? IBV_TRANSPORT_UNSPECIFIED : IBV_TRANSPORT_IB;
	snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "uverbs%d", index);
	snprintf(d->ibv.dev_path, sizeof(d->ibv.dev_path), "/sys/class/infiniband_verbs/uverbs%d", index);
	snprintf(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), "/sys/class/infiniband/%s", d->ibv.name);
	if (s.path[0])
		make_sys(d, &s);
	if (s.ndev[0])
		make_ndevs(d, s.ndev);
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

/* With devs_lock held.  The same description gives the same device again. */
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
