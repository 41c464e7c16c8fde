/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * probes.c - what no file tells: libraries that load, the plugin after its init, SMC by netlink,
 * what NICs tell ethtool, and whether a peer answers.  Each runs in a process of its own, for a
 * few seconds at most: others' libraries may crash there, or hang.
 */
#include "config.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/param.h"
#include "tools/child.h"
#include "tools/doctor/doctor_int.h"
#include "tools/info.h"
#include "tools/proxy.h"
#include "tools/smc.h"
#include "topo/ips.h"
#include "topo/netdev.h"

enum { ANSWER_MS = 1000, ECHO_MS = 250, EPHEMERAL = 50007 };

/* -- libraries and the plugin ------------------------------------------------------------- */

static json_t *libraries(struct doctor *d)
{
	json_t *list = info_libraries();
	void *dl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL), *at;
	int (*get)(int *ret), v = 0;

	(void)d;
	at = dl ? dlsym(dl, "ncclGetVersion") : NULL;
	memcpy(&get, &at, sizeof(at));
	if (at)
		get(&v);
	json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o, s:i}", "name", "libnccl.so.2",
					      "for", "NCCL", "found", dl != NULL, "why",
					      dl ? json_null() : json_string(dlerror()), "version",
					      v));
	return list;
}

/* Does the loader take it?  It stays, as it would for NCCL. */
static bool loads(const char *file, char *why, size_t len)
{
	const void *dl = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!dl)
		snprintf(why, len, "%s", dlerror());
	return dl;
}

/* As NCCL looks for one name: as it is, then as a short name. */
static json_t *candidate(const char *name)
{
	char file[PATH_LEN], rccl[PATH_LEN] = "", err[INFO_ERR] = "", why[TEXT_LEN] = "";
	size_t n = strlen(name);
	struct net *net;
	json_t *o, *doc;
	bool ok;

	snprintf(file, sizeof(file), "%s", name);
	ok = loads(file, why, sizeof(why));
	if (!ok && !strchr(name, '/') &&
	    !(strncmp(name, "lib", 3) == 0 && n > 3 && strcmp(name + n - 3, ".so") == 0)) {
		snprintf(file, sizeof(file), "libnccl-net-%s.so", name);
		snprintf(rccl, sizeof(rccl), "librccl-net-%s.so", name);
		ok = loads(file, why, sizeof(why));
	}
	o = json_pack("{s:s, s:s, s:b}", "name", name, "file", file, "loaded", 0);
	if (*rccl && loads("librccl.so.1", err, sizeof(err)) && !loads(rccl, err, sizeof(err)))
		json_object_set_new(o, "rccl", json_string(rccl));	/* what RCCL misses */
	if (!ok) {
		json_object_set_new(o, "why", json_string(why));
		return o;
	}
	*err = '\0';
	net = net_load(file, 0, err, sizeof(err));
	if (!net) {
		json_object_set_new(o, "why", json_string(err));
		return o;
	}
	json_object_set_new(o, "loaded", json_true());
	json_object_set_new(o, "abi", json_integer(net->abi));
	json_object_set_new(o, "net", json_string(net->name));
	doc = info_plugin(file, 0, err);
	if (!doc) {
		json_object_set_new(o, "why", json_string(err));
		return o;
	}
	json_object_set(o, "notes", json_object_get(doc, "notes"));
	json_object_set(o, "list", json_object_get(doc, "devices"));
	json_object_set_new(o, "devices", json_integer((json_int_t)json_array_size(
						    json_object_get(doc, "devices"))));
	json_decref(doc);
	return o;
}

/* What the job's environment and NCCL's files have, the plugin is to see. */
static json_t *plugin(struct doctor *d)
{
	const char *asked = env_get(d, "NCCL_NET_PLUGIN");
	json_t *list = json_array();
	char *names, *rest, *name;
	const struct env *e;

	for (unsigned n = env_all(d, &e); n; n--, e++)
		if (strncmp(e->name, "NCCL_", 5) == 0 || strncmp(e->name, "BRAID_", 6) == 0 ||
		    strncmp(e->name, "UCX_", 4) == 0)
			setenv(e->name, e->value, 1);
	for (unsigned n = env_all(d, &e); n; n--, e++)
		if (strcmp(e->name, "NCCL_NET_PLUGIN") == 0 && !*e->value)
			return list;
	if (asked && strcasecmp(asked, "none") == 0)
		return list;
	names = rest = strdup(asked ? asked : "libnccl-net.so");
	while ((name = strsep(&rest, ",")))
		if (*name)
			json_array_append_new(list, candidate(name));
	free(names);
	return list;
}

/* What NCCL loads where no plugin is asked for, or where it has forgotten which. */
static json_t *standard(struct doctor *d)
{
	char err[INFO_ERR] = "";
	struct net *net = net_load("libnccl-net.so", 0, err, sizeof(err));

	(void)d;
	return json_pack("{s:b, s:s}", "loaded", net != NULL, "net", net ? net->name : "");
}

static json_t *smc(struct doctor *d)
{
	(void)d;
	return smc_json();
}

/* -- ethtool ------------------------------------------------------------------------------ */

static int ask(int fd, const char *name, void *request)
{
	struct ifreq r = { .ifr_data = request };

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%.*s", IFNAMSIZ - 1, name);
	return ioctl(fd, SIOCETHTOOL, &r);
}

/* The counters of pauses, and of packets that were dropped. */
static json_t *nic_stats(int fd, const char *name, unsigned n)
{
	struct ethtool_gstrings *names = calloc(1, sizeof(*names) + (size_t)n * ETH_GSTRING_LEN);
	struct ethtool_stats *values = calloc(1, sizeof(*values) + n * sizeof(values->data[0]));
	json_t *o = json_object();

	if (!names || !values)
		goto out;
	*names = (struct ethtool_gstrings){ .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS,
					    .len = n };
	*values = (struct ethtool_stats){ .cmd = ETHTOOL_GSTATS, .n_stats = n };
	if (ask(fd, name, names) < 0 || ask(fd, name, values) < 0)
		goto out;
	for (unsigned i = 0; i < n; i++) {
		char key[ETH_GSTRING_LEN + 1];

		snprintf(key, sizeof(key), "%.*s", ETH_GSTRING_LEN,
			 (const char *)names->data + (size_t)i * ETH_GSTRING_LEN);
		if (strstr(key, "pause") || strstr(key, "discard") || strstr(key, "out_of_buffer"))
			json_object_set_new(o, key, json_integer((json_int_t)values->data[i]));
	}
out:
	free(names);
	free(values);
	return o;
}

static json_t *ethtool(struct doctor *d)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);
	json_t *all = json_object();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (; fd >= 0 && n; n--, f++) {
		struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };

		if (!f->physical || ask(fd, f->name, &info) < 0)
			continue;
		json_object_set_new(all, f->name,
				    json_pack("{s:s, s:s, s:o}", "driver", info.driver, "firmware",
					      info.fw_version, "stats",
					      nic_stats(fd, f->name, info.n_stats)));
	}
	return all;
}

/* -- a peer ------------------------------------------------------------------------------- */

static socklen_t addr_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void set_text(json_t *o, const char *key, const char *value)
{
	json_object_set_new(o, key, json_string(value));
}

/* Is `to` in the subnet of that entry: no router is between? */
static bool is_on_link(const struct ifaddrs *i, const struct sockaddr *to)
{
	size_t at = to->sa_family == AF_INET ? offsetof(struct sockaddr_in, sin_addr) :
					      offsetof(struct sockaddr_in6, sin6_addr);
	size_t len = to->sa_family == AF_INET ? 4 : 16;
	const uint8_t *a = (const uint8_t *)i->ifa_addr + at, *b = (const uint8_t *)to + at;

	for (size_t k = 0; i->ifa_netmask && k < len; k++)
		if ((a[k] ^ b[k]) & ((const uint8_t *)i->ifa_netmask)[at + k])
			return false;
	return i->ifa_netmask != NULL;
}

/* Which of our addresses, and whose interface, the kernel would take. */
static void peer_route(json_t *o, const struct sockaddr *to)
{
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union braid_netdev_addr own = { .sa = { .sa_family = AF_UNSPEC } };
	socklen_t len = sizeof(own);
	char name[INET6_ADDRSTRLEN];
	struct ifaddrs *all = NULL;

	if (connect(fd, to, addr_len(to)) < 0 || getsockname(fd, &own.sa, &len) < 0) {
		set_text(o, "route_error", strerror(errno));
		close(fd);
		return;
	}
	getnameinfo(&own.sa, len, name, sizeof(name), NULL, 0, NI_NUMERICHOST);
	set_text(o, "source", name);
	if (getifaddrs(&all) == 0) {
		for (struct ifaddrs *i = all; i; i = i->ifa_next) {
			struct ifreq r = { .ifr_name = "" };

			if (!i->ifa_addr || i->ifa_addr->sa_family != own.sa.sa_family ||
			    !braid_netdev_same_ip(i->ifa_addr, &own.sa))
				continue;
			set_text(o, "interface", i->ifa_name);
			json_object_set_new(o, "on_link", json_boolean(is_on_link(i, to)));
			snprintf(r.ifr_name, sizeof(r.ifr_name), "%.*s", IFNAMSIZ - 1, i->ifa_name);
			if (ioctl(fd, SIOCGIFMTU, &r) == 0)
				json_object_set_new(o, "mtu", json_integer(r.ifr_mtu));
		}
		freeifaddrs(all);
	}
	close(fd);
}

/* Who refuses has been reached. */
static void peer_connect(json_t *o, const struct sockaddr *to)
{
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (connect(fd, to, addr_len(to)) < 0)
		err = errno;
	if (err == EINPROGRESS) {
		err = ETIMEDOUT;
		if (poll(&p, 1, ANSWER_MS) > 0)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	}
	close(fd);
	set_text(o, "connected", err ? strerror(err) : "yes");
	json_object_set_new(o, "answered", json_boolean(!err || err == ECONNREFUSED));
}

/* One echo of an IP packet of `size` bytes that may not be cut; did an answer come? */
static bool echo(int fd, bool v6, unsigned size)
{
	static unsigned char packet[65536], answer[65536];
	static uint16_t number;
	const unsigned head = v6 ? 40 : 20;
	long long until = child_now() + ECHO_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (size < head + 8 || size > sizeof(packet))
		return false;
	packet[0] = v6 ? ICMP6_ECHO_REQUEST : ICMP_ECHO;
	packet[6] = (unsigned char)(++number >> 8);
	packet[7] = (unsigned char)number;
	if (send(fd, packet, size - head, 0) < 0)
		return false;
	while (poll(&p, 1, (int)(until - child_now())) > 0) {
		ssize_t n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);

		if (n == (ssize_t)(size - head) && answer[6] == packet[6] && answer[7] == packet[7])
			return true;
		if (n < 0 || child_now() >= until)
			break;
	}
	return false;
}

/* The largest packet that arrives, of usual sizes below ours. */
static void peer_mtu(json_t *o, const struct sockaddr *to)
{
	static const unsigned sizes[] = { 9000, 8192, 4200, 2048, 1500, 1450, 1400, 1280, 576 };
	unsigned own = (unsigned)json_integer_value(json_object_get(o, "mtu"));
	bool v6 = to->sa_family == AF_INET6;
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC,
			v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
	int probe = IP_PMTUDISC_PROBE, room = 1 << 20;
	unsigned least = v6 ? 1280 : 576;

	if (fd < 0) {
		set_text(o, "mtu_error", "this user may not ping: sudo sysctl -w "
			 "net.ipv4.ping_group_range='0 2147483647'");
		return;
	}
	own = own > 65535 ? 65535 : own;
	setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
		   &probe, sizeof(probe));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (connect(fd, to, addr_len(to)) < 0 || (!echo(fd, v6, 84) && !echo(fd, v6, 84))) {
		set_text(o, "mtu_error", "the peer does not answer pings");
	} else if (echo(fd, v6, own) || echo(fd, v6, own)) {
		json_object_set_new(o, "path_mtu", json_integer(own));
	} else {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			if (sizes[i] >= own || sizes[i] < least ||
			    (!echo(fd, v6, sizes[i]) && sizes[i] > least))
				continue;
			json_object_set_new(o, "path_mtu", json_integer(sizes[i]));
			break;
		}
	}
	close(fd);
}

static json_t *peer(struct doctor *d)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	char port[16], name[INET6_ADDRSTRLEN];
	json_t *o = json_object();
	int err;

	snprintf(port, sizeof(port), "%d", d->w->port ? d->w->port : EPHEMERAL);
	json_object_set_new(o, "port", json_integer(atoi(port)));
	err = getaddrinfo(d->w->peer, port, &hints, &list);
	if (err) {
		set_text(o, "name_error", gai_strerror(err));
		return o;
	}
	getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof(name), NULL, 0, NI_NUMERICHOST);
	set_text(o, "address", name);
	peer_route(o, list->ai_addr);
	peer_connect(o, list->ai_addr);
	peer_mtu(o, list->ai_addr);
	freeaddrinfo(list);
	return o;
}

/* -- interfaces --------------------------------------------------------------------------- */

/* Does this process see the network of the one that is asked about? */
static bool same_network(struct doctor *d)
{
	char mine[PATH_LEN], its[PATH_LEN];

	return sys_link(d, mine, sizeof(mine), "/proc/self/ns/net") &&
	       sys_link(d, its, sizeof(its), "%s/ns/net", sys_proc(d)) && strcmp(mine, its) == 0;
}

/* The job's parameters as the plugin reads them: a variable that can't be read has no effect. */
static void read_params(struct doctor *d, struct braid_params *ret)
{
	static const char *const names[] = { "socket_ifname", "socket_family", "address" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *variable, *value = env_param(d, names[i], &variable);

		if (value)
			braid_param_set(ret, names[i], value);
	}
}

static int find_interfaces(const struct braid_params *p, struct braid_netdev *ret, char *why,
			   unsigned len)
{
	braid_ips_choose(p->address);
	return braid_netdev_find(p->socket_ifname, braid_param_family(p->socket_family), "", ret,
				 BRAID_NETDEVS_MAX, why, len);
}

/* The plugin's own choice: those it would use, and what it says of the others. */
static json_t *interfaces(struct doctor *d)
{
	static struct braid_netdev found[BRAID_NETDEVS_MAX];
	static struct braid_params p;
	json_t *list = json_array();
	char why[TEXT_LEN] = "";
	bool refused;
	int n;

	if (!same_network(d))
		return list;
	read_params(d, &p);
	n = find_interfaces(&p, found, why, sizeof(why));
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_string(found[i].name));
	refused = n == 0 && *p.address;
	*p.address = '\0';
	refused = refused && find_interfaces(&p, found, NULL, 0) > 0;
	return json_pack("{s:o, s:s, s:b}", "chosen", list, "why", why, "refused", refused);
}

/* -- apart -------------------------------------------------------------------------------- */

static const struct probe {
	const char *name;
	json_t *(*run)(struct doctor *d);
	int ms;
} probes[] = {
	{ "libraries", libraries, 2000 }, { "plugin", plugin, 2500 }, { "smc", smc, 1000 },
	{ "standard", standard, 2000 }, { "ethtool", ethtool, 1000 }, { "peer", peer, 5000 },
	{ "interfaces", interfaces, 4000 },
};

struct job {
	struct doctor *d;
	const struct probe *probe;
};

static void work(void *arg, int fd)
{
	struct job *job = arg;
	json_t *o = job->probe->run(job->d);

	json_dumpfd(o, fd, JSON_COMPACT | JSON_ENSURE_ASCII);
	/* No library gets to clean up: not all survive that. */
	_exit(0);
}

json_t *probe_run(struct doctor *d, const char *name, char *why, size_t len)
{
	struct job job = { .d = d };
	struct child c;
	json_t *o = NULL;
	bool over;

	for (unsigned i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
		if (strcmp(probes[i].name, name) == 0)
			job.probe = &probes[i];
	if (!job.probe || child_start(&c, work, &job) < 0) {
		snprintf(why, len, "no process can be started");
		return NULL;
	}
	over = child_finish(&c, job.probe->ms);
	child_end(&c);
	if (over && c.len)
		o = json_loadb(c.text, c.len, 0, NULL);
	if (!over) {
		snprintf(why, len, "no answer within %d ms", job.probe->ms);
	} else if (!o) {
		snprintf(why, len, "the process that asked was ");
		child_fate(&c, why + strlen(why), len - strlen(why));
	}
	child_free(&c);
	return o;
}
