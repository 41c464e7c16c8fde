/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sys.c - the one way from a check to the system: files below a root, the job's environment, and
 * what is put together of them once (RDMA ports, interfaces, the machine).
 */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/param.h"
#include "tools/doctor/doctor_int.h"
#include "topo/machine_int.h"
#include "topo/netdev.h"
#include "topo/sys.h"

enum { FILE_MOST = 1 << 20, SPEED_MOST = 10000000 };

/* The path that fmt says, below the root. */
#define PATH(d, path, fmt)							\
	char path[PATH_LEN];							\
	do {									\
		va_list ap_;							\
										\
		va_start(ap_, fmt);						\
		path_make(d, path, fmt, ap_);					\
		va_end(ap_);							\
	} while (0)

static void path_make(const struct doctor *d, char *ret, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
static void path_make(const struct doctor *d, char *ret, const char *fmt, va_list ap)
{
	int n = snprintf(ret, PATH_LEN, "%s", d->w->root);

	if (n < PATH_LEN)
		vsnprintf(ret + n, PATH_LEN - (size_t)n, fmt, ap);
}

bool sys_line(struct doctor *d, char *ret, size_t len, const char *fmt, ...)
{
	PATH(d, path, fmt);
	return braid_sys_line(path, ret, len);
}

bool sys_number(struct doctor *d, long long *ret, const char *fmt, ...)
{
	long v;

	PATH(d, path, fmt);
	if (!braid_sys_number(path, LONG_MIN, LONG_MAX, &v))
		return false;
	*ret = v;
	return true;
}

char *sys_text(struct doctor *d, size_t *ret_len, const char *fmt, ...)
{
	char *text = NULL, *more;
	size_t len = 0;
	ssize_t n = -1;
	int fd;

	PATH(d, path, fmt);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return NULL;
	while (len < FILE_MOST) {
		more = realloc(text, len + 4096 + 1);
		if (!more)
			break;
		text = more;
		n = read(fd, text + len, 4096);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	close(fd);
	if (!text || (n < 0 && !len)) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	if (ret_len)
		*ret_len = len;
	return text;
}

const char *sys_next_line(const char *text)
{
	text = strchr(text, '\n');
	return text ? text + 1 : NULL;
}

bool sys_has(struct doctor *d, const char *fmt, ...)
{
	PATH(d, path, fmt);
	return access(path, F_OK) == 0;
}

bool sys_may(struct doctor *d, const char *fmt, ...)
{
	PATH(d, path, fmt);
	return access(path, R_OK | W_OK) == 0;
}

bool sys_link(struct doctor *d, char *ret, size_t len, const char *fmt, ...)
{
	char to[PATH_LEN];
	const char *last;
	ssize_t n;

	PATH(d, path, fmt);
	n = readlink(path, to, sizeof(to) - 1);
	if (n < 0)
		return false;
	to[n] = '\0';
	last = strrchr(to, '/');
	snprintf(ret, len, "%s", last ? last + 1 : to);
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(a, b);
}

void sys_names(struct doctor *d, struct names *ret, const char *fmt, ...)
{
	const struct dirent *e;
	DIR *dir;

	PATH(d, path, fmt);
	ret->n = 0;
	dir = opendir(path);
	while (dir && ret->n < NAMES_MAX && (e = readdir(dir)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < NAME_LEN)
			strcpy(ret->name[ret->n++], e->d_name);
	if (dir)
		closedir(dir);
	qsort(ret->name, ret->n, NAME_LEN, by_name);
}

/* -- a process ---------------------------------------------------------------------------- */

const char *sys_proc(const struct doctor *d)
{
	return d->proc;
}

static long long limit_value(const char *word)
{
	return strncmp(word, "unlimited", 9) == 0 ? -1 : strtoll(word, NULL, 10);
}

bool sys_limit(struct doctor *d, const char *name, long long *soft, long long *hard)
{
	char *text = sys_text(d, NULL, "%s/limits", d->proc), *at;

	at = text ? strstr(text, name) : NULL;
	if (at) {
		at += strlen(name);
		at += strspn(at, " ");
		*soft = limit_value(at);
		at += strcspn(at, " ");
		at += strspn(at, " ");
		*hard = limit_value(at);
	}
	free(text);
	return at != NULL;
}

bool sys_field(struct doctor *d, const char *path, const char *name, char *ret, size_t len)
{
	char *text = sys_text(d, NULL, "%s", path), *line, *rest = text;
	size_t n = strlen(name);
	bool found = false;

	while (!found && rest && (line = strsep(&rest, "\n"))) {
		if (strncmp(line, name, n) != 0)
			continue;
		line += n + strspn(line + n, " \t");
		if (*line != ':')
			continue;
		line++;
		snprintf(ret, len, "%s", line + strspn(line, " \t"));
		found = true;
	}
	free(text);
	return found;
}

/* Lines come in pairs: names, then values, each after the group. */
bool sys_snmp(struct doctor *d, const char *file, const char *group, const char *name,
	      long long *ret)
{
	char *text = sys_text(d, NULL, "%s/net/%s", d->proc, file), *rest = text;
	bool found = false;

	while (!found && rest && *rest) {
		char *names = strsep(&rest, "\n"), *values = strsep(&rest, "\n");
		char *word, *value;

		if (!values)
			break;
		word = strsep(&names, ": ");
		if (strcmp(word, group) != 0)
			continue;
		values += strcspn(values, " ");
		while ((word = strsep(&names, " ")) && (value = strsep(&values, " ")) && !found) {
			if (*word && strcmp(word, name) == 0) {
				*ret = strtoll(value, NULL, 10);
				found = true;
			}
		}
	}
	free(text);
	return found;
}

/* -- what is put together ----------------------------------------------------------------- */

const struct braid_machine *doctor_machine(struct doctor *d)
{
	if (!d->machine && braid_machine_read(d->w->root, &d->machine) < 0 &&
	    braid_machine_new(&d->machine) < 0)
		_exit(1);		/* no memory: the parent says so */
	return d->machine;
}

static void port_read(struct doctor *d, const char *dev, const char *num)
{
	struct rdma_port *p = &d->ports[d->n_ports];
	char text[TEXT_LEN], pci[NAME_LEN];

	*p = (struct rdma_port){ .num = atoi(num) };
	snprintf(p->dev, sizeof(p->dev), "%s", dev);
	snprintf(p->name, sizeof(p->name), "%.60s:%d", dev, p->num);
	snprintf(p->dir, sizeof(p->dir), "/sys/class/infiniband/%s/ports/%s", dev, num);
	if (sys_line(d, text, sizeof(text), "/sys/class/infiniband/%s/node_type", dev))
		p->iwarp = strstr(text, "RNIC") != NULL;
	if (sys_line(d, text, sizeof(text), "%s/link_layer", p->dir))
		p->roce = !p->iwarp && strcmp(text, "Ethernet") == 0;
	p->active = sys_line(d, text, sizeof(text), "%s/state", p->dir) && strstr(text, "ACTIVE");
	sys_line(d, p->netdev, sizeof(p->netdev), "%s/gid_attrs/ndevs/0", p->dir);
	p->soft = !sys_link(d, pci, sizeof(pci), "/sys/class/infiniband/%s/device", dev) ||
		  !sys_has(d, "/sys/class/infiniband/%s/device/vendor", dev);
	d->n_ports++;
}

unsigned doctor_ports(struct doctor *d, const struct rdma_port **ret)
{
	struct names devs, nums;

	if (!d->ports) {
		d->ports = calloc(PORTS_MAX, sizeof(*d->ports));
		sys_names(d, &devs, "/sys/class/infiniband");
		for (unsigned i = 0; d->ports && i < devs.n; i++) {
			sys_names(d, &nums, "/sys/class/infiniband/%s/ports", devs.name[i]);
			for (unsigned k = 0; k < nums.n && d->n_ports < PORTS_MAX; k++)
				port_read(d, devs.name[i], nums.name[k]);
		}
	}
	*ret = d->ports;
	return d->n_ports;
}

/* A route through it, or an IPv6 address. */
static bool is_addressed(const char *routes, const char *v6, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = routes; p && *p; p = sys_next_line(p))
		if (strncmp(p, name, n) == 0 && isspace((unsigned char)p[n]))
			return true;
	for (const char *p = v6; p && (p = strstr(p, name)); p += n)
		if (p > v6 && p[-1] == ' ' && (p[n] == '\n' || !p[n]))
			return true;
	return false;
}

static void iface_read(struct doctor *d, const char *name, const char *routes, const char *v6)
{
	struct iface *f = &d->ifaces[d->n_ifaces];
	char text[TEXT_LEN];
	long long v;

	*f = (struct iface){ .loopback = strcmp(name, "lo") == 0 };
	snprintf(f->name, sizeof(f->name), "%s", name);
	if (sys_number(d, &v, "/sys/class/net/%s/mtu", name))
		f->mtu = v;
	if (sys_number(d, &v, "/sys/class/net/%s/speed", name) && v > 0 && v < SPEED_MOST &&
	    v != 65535)
		f->mbps = v;
	f->up = sys_line(d, text, sizeof(text), "/sys/class/net/%s/operstate", name) &&
		(strcmp(text, "up") == 0 || strcmp(text, "unknown") == 0);
	f->physical = sys_has(d, "/sys/class/net/%s/device", name);
	f->bond = sys_has(d, "/sys/class/net/%s/bonding", name);
	f->slave = sys_has(d, "/sys/class/net/%s/bonding_slave", name);
	f->addressed = f->loopback || is_addressed(routes, v6, name);
	d->n_ifaces++;
}

/* Those that the plugin would use; false: it can't be asked. */
static bool ifaces_asked(struct doctor *d)
{
	const char *why;
	const json_t *list = json_object_get(doctor_probe(d, "interfaces", &why), "chosen"), *name;
	size_t k;

	for (unsigned i = 0; i < d->n_ifaces; i++)
		json_array_foreach(list, k, name)
			d->ifaces[i].chosen |= strcmp(d->ifaces[i].name,
						      json_string_value(name)) == 0;
	return list;
}

/* Of a recorded system, or of another network namespace: NCCL's order of names. */
static void ifaces_choose(struct doctor *d)
{
	struct braid_netdev_filter filter = { .n = 0 };
	unsigned best = UINT_MAX, rank[IFACES_MAX];
	const char *name, *text = env_param(d, "socket_ifname", &name);

	if (text)
		braid_netdev_filter_parse(text, &filter, NULL, 0);
	if (doctor_is_live(d))
		braid_netdev_filter_resolve(&filter);
	for (unsigned i = 0; i < d->n_ifaces; i++) {
		const struct iface *f = &d->ifaces[i];

		rank[i] = UINT_MAX;
		if (f->up && f->addressed && !f->slave &&
		    braid_netdev_filter_match(&filter, f->name))
			rank[i] = braid_netdev_rank(&filter, f->name, f->loopback);
		if (rank[i] < best)
			best = rank[i];
	}
	for (unsigned i = 0; i < d->n_ifaces; i++)
		d->ifaces[i].chosen = best != UINT_MAX && rank[i] == best;
}

unsigned doctor_ifaces(struct doctor *d, const struct iface **ret)
{
	struct names all;

	if (!d->ifaces) {
		char *routes = sys_text(d, NULL, "%s/net/route", d->proc);
		char *v6 = sys_text(d, NULL, "%s/net/if_inet6", d->proc);

		d->ifaces = calloc(IFACES_MAX, sizeof(*d->ifaces));
		sys_names(d, &all, "/sys/class/net");
		for (unsigned i = 0; d->ifaces && i < all.n; i++)
			if (sys_has(d, "/sys/class/net/%s/operstate", all.name[i]))
				iface_read(d, all.name[i], routes, v6);
		free(routes);
		free(v6);
		if (!ifaces_asked(d))
			ifaces_choose(d);
	}
	*ret = d->ifaces;
	return d->n_ifaces;
}

/* -- the rest ----------------------------------------------------------------------------- */

/* ROOT/probe/NAME.json stands for what would be asked. */
static json_t *probe_recorded(const struct doctor *d, const char *name, char *why, size_t len)
{
	char path[PATH_LEN];
	json_error_t err;
	json_t *o;

	snprintf(path, sizeof(path), "%s/probe/%s.json", d->w->root, name);
	o = json_load_file(path, 0, &err);
	if (!o)
		snprintf(why, len, "no file tells, and it was not recorded");
	return o;
}

const json_t *doctor_probe(struct doctor *d, const char *name, const char **ret_why)
{
	unsigned i;

	for (i = 0; i < d->n_probes; i++)
		if (strcmp(d->probes[i].name, name) == 0)
			goto found;
	if (i == PROBES_MAX) {
		*ret_why = "too many probes";
		return NULL;
	}
	d->probes[i].name = name;
	d->probes[i].json = *d->w->root ?
		probe_recorded(d, name, d->probes[i].why, sizeof(d->probes[i].why)) :
		probe_run(d, name, d->probes[i].why, sizeof(d->probes[i].why));
	d->n_probes++;
found:
	*ret_why = d->probes[i].why;
	return d->probes[i].json;
}

bool doctor_lacks_library(struct doctor *d, const char *prefix, const char *devices)
{
	const char *why, *name;
	const json_t *libs = doctor_probe(d, "libraries", &why), *x;

	if (!libs)
		doctor_skip(d, "%s: %s", prefix, why);
	for (size_t i = 0; i < json_array_size(libs); i++) {
		x = json_array_get(libs, i);
		name = json_string_value(json_object_get(x, "name"));
		if (!name || strncmp(name, prefix, strlen(prefix)) != 0)
			continue;
		if (json_is_true(json_object_get(x, "found"))) {
			doctor_ok(d, "%s is there", name);
			return false;
		}
		doctor_find(d, LEVEL_FAIL, "%s are there, but %s can't be loaded: %s", devices,
			    name, json_string_value(json_object_get(x, "why")));
		return true;
	}
	return false;
}

bool doctor_is_live(const struct doctor *d)
{
	return !*d->w->root;
}

bool doctor_in_container(struct doctor *d)
{
	return sys_has(d, "/.dockerenv") || sys_has(d, "/run/.containerenv") ||
	       env_get(d, "KUBERNETES_SERVICE_HOST");
}

bool doctor_wants(struct doctor *d, const char *transport)
{
	const char *name, *text = env_param(d, "transports", &name), *at;
	size_t n = strlen(transport);

	for (unsigned i = 0; i < braid_param_count && !text; i++)
		if (strcmp(braid_param_rows[i].name, "transports") == 0)
			text = braid_param_rows[i].def;
	for (at = text; *at; at += strspn(at, ", ")) {
		size_t len = strcspn(at, ", ");

		if (len == n && strncmp(at, transport, n) == 0)
			return true;
		at += len;
	}
	return false;
}

const char *doctor_host(const struct doctor *d)
{
	return d->w->peer;
}

int doctor_port(const struct doctor *d)
{
	return d->w->port;
}

struct doctor *doctor_new(const struct wishes *w)
{
	struct doctor *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->w = w;
	if (w->pid)
		snprintf(d->proc, sizeof(d->proc), "/proc/%d", w->pid);
	else
		snprintf(d->proc, sizeof(d->proc), "/proc/self");
	return d;
}

void doctor_free(struct doctor *d)
{
	for (unsigned i = 0; i < d->n_env; i++) {
		free(d->env[i].name);
		free(d->env[i].value);
	}
	for (unsigned i = 0; i < d->n_probes; i++)
		json_decref(d->probes[i].json);
	free(d->env);
	free(d->ports);
	free(d->ifaces);
	if (d->machine)
		braid_machine_free(d->machine);
	json_decref(d->says.list);
	json_decref(d->facts);
	free(d);
}
