/* SPDX-License-Identifier: BSD-3-Clause */
/* links.c - see links.h. */
#include "topo/links.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topo/nl.h"
#include "topo/sys.h"

enum { KIND = 16, DEPTH_MAX = 4, DUMP_ROOM = 32768, WAIT_S = 1, DUMPS_MAX = 8 };

struct row {
	unsigned ifindex;
	unsigned master;		/* ifindex of its bridge or bond; 0: none */
	bool elsewhere;			/* its other end is in another namespace */
	char kind[KIND], port_kind[KIND];	/* "": hardware, loopback; "": no port */
};

struct braid_links {
	size_t n, room;
	bool torn;			/* the table changed while the kernel sent it */
	struct row *row;
};

/* --- rtnetlink ----------------------------------------------------------------------------- */

static void copy_string(struct braid_nl word, char ret[KIND])
{
	size_t n = word.len < KIND - 1 ? word.len : KIND - 1;

	memset(ret, 0, KIND);
	memcpy(ret, word.at, n);
}

static void read_info(struct braid_nl info, struct row *row)
{
	struct braid_nl word;
	unsigned type;

	while (braid_nl_attr(&info, &type, &word)) {
		if (type == IFLA_INFO_KIND)
			copy_string(word, row->kind);
		else if (type == IFLA_INFO_SLAVE_KIND)
			copy_string(word, row->port_kind);
	}
}

static int row_add(struct braid_links *l, struct braid_nl body)
{
	struct row row = { .ifindex = 0 }, *grown;
	struct ifinfomsg m;
	struct braid_nl value;
	unsigned type;

	if (!braid_nl_get(&body, &m, sizeof(m)))
		return 0;
	row.ifindex = (unsigned)m.ifi_index;
	while (braid_nl_attr(&body, &type, &value)) {
		row.elsewhere |= type == IFLA_LINK_NETNSID;
		if (type == IFLA_LINKINFO)
			read_info(value, &row);
		else if (type == IFLA_MASTER)
			braid_nl_get(&value, &row.master, sizeof(row.master));
	}
	if (l->n == l->room) {
		l->room = l->room ? 2 * l->room : 32;
		grown = realloc(l->row, l->room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		l->row = grown;
	}
	l->row[l->n++] = row;
	return 0;
}

static int request_links(int fd)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg m;
	} q = {
		.h = { .nlmsg_len = sizeof(q), .nlmsg_type = RTM_GETLINK,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.m = { .ifi_family = AF_UNSPEC },
	};
	struct timeval wait = { .tv_sec = WAIT_S };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return send(fd, &q, sizeof(q), 0) == sizeof(q) ? 0 : -errno;
}

/*
 * Adds the interfaces of one datagram.  0: more is to come; 1: that was all; or a negative errno.
 * -EAGAIN: interfaces came or went meanwhile, so some may be missing.
 */
static int add_links(struct braid_links *l, struct braid_nl got)
{
	struct braid_nl body;
	struct nlmsghdr h;
	int err = 0;

	while (!err && braid_nl_msg(&got, &h, &body)) {
		if (h.nlmsg_flags & NLM_F_DUMP_INTR)
			l->torn = true;
		if (h.nlmsg_type == NLMSG_DONE)
			return l->torn ? -EAGAIN : 1;
		if (h.nlmsg_type == NLMSG_ERROR)
			return -EIO;
		err = h.nlmsg_type == RTM_NEWLINK ? row_add(l, body) : 0;
	}
	return err;
}

/* Read the kernel's whole answer once.  Returns as add_links(). */
static int dump(struct braid_links *l, int fd, char *buf)
{
	int err = request_links(fd);

	l->n = 0;
	l->torn = false;
	while (!err) {
		ssize_t got = recv(fd, buf, DUMP_ROOM, 0);

		if (got <= 0)
			err = got < 0 && errno == EINTR ? 0 : -EIO;
		else
			err = add_links(l, (struct braid_nl){ buf, (size_t)got });
	}
	return err;
}

struct braid_links *braid_links_load(void)
{
	struct braid_links *l = calloc(1, sizeof(*l));
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), err = -EAGAIN;
	char *buf = malloc(DUMP_ROOM);

	if (!l || fd < 0 || !buf)
		err = -EIO;
	for (unsigned i = 0; err == -EAGAIN && i < DUMPS_MAX; i++)
		err = dump(l, fd, buf);
	if (fd >= 0)
		close(fd);
	free(buf);
	if (err == 1 || err == -EAGAIN)		/* most interfaces are better than none */
		return l;
	braid_links_free(l);
	return NULL;
}

void braid_links_free(struct braid_links *l)
{
	if (l)
		free(l->row);
	free(l);
}

static const struct row *row_of(const struct braid_links *l, unsigned ifindex)
{
	for (size_t i = 0; l && i < l->n; i++) {
		if (l->row[i].ifindex == ifindex)
			return &l->row[i];
	}
	return NULL;
}

unsigned braid_link_vrf(const struct braid_links *l, unsigned ifindex)
{
	const struct row *row = row_of(l, ifindex);

	for (unsigned i = 0; row && i < DEPTH_MAX; i++) {
		if (!strcmp(row->kind, "vrf"))
			return row->ifindex;
		row = row->master ? row_of(l, row->master) : NULL;
	}
	return 0;
}

/* --- /sys ---------------------------------------------------------------------------------- */

static bool has(const char *sysroot, const char *name, const char *file)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/class/net/%s/%s", sysroot, name, file);
	return access(path, F_OK) == 0;
}

/* The DEVTYPE that the kernel gives to some interfaces; or "". */
static void sys_kind(const char *sysroot, const char *name, char ret[KIND])
{
	char path[PATH_MAX], text[256];
	const char *at = NULL;

	*ret = '\0';
	snprintf(path, sizeof(path), "%s/sys/class/net/%s/uevent", sysroot, name);
	if (braid_sys_read(path, text, sizeof(text)) > 0)
		at = strstr(text, "DEVTYPE=");
	if (at)
		snprintf(ret, KIND, "%.*s", (int)strcspn(at + 8, "\n"), at + 8);
	else if (has(sysroot, name, "tun_flags"))
		snprintf(ret, KIND, "tun");
}

/* Is this interface hardware, or does it stand on one that is? */
static bool is_hardware(const char *sysroot, const char *name, unsigned depth)
{
	static const char prefix[] = "lower_";
	char path[PATH_MAX];
	struct dirent *e;
	bool found = has(sysroot, name, "device");
	DIR *dir;

	if (found || !depth)
		return found;
	snprintf(path, sizeof(path), "%s/sys/class/net/%s", sysroot, name);
	dir = opendir(path);
	while (dir && !found && (e = readdir(dir))) {
		if (!strncmp(e->d_name, prefix, sizeof(prefix) - 1))
			found = is_hardware(sysroot, e->d_name + sizeof(prefix) - 1, depth - 1);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* --- conclusions --------------------------------------------------------------------------- */

static bool is_tunnel(const char *kind)
{
	static const char *const kinds[] = {
		"vxlan", "geneve", "gre", "gretap", "erspan", "ip6gre", "ip6gretap", "ip6erspan",
		"ipip", "sit", "ip6tnl", "vti", "vti6", "xfrm", "wireguard", "tun", "bareudp",
		"gtp",
		"ovpn", "amt", "l2tpeth", "ppp",
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(kind, kinds[i]))
			return true;
	}
	return false;
}

/* A guess where /sys is another namespace's: these kinds stand on others, most likely hardware. */
static bool stands_on(const char *kind)
{
	return !strcmp(kind, "bond") || !strcmp(kind, "team") || !strcmp(kind, "vlan");
}

void braid_link_leads(const struct braid_links *links, const char *sysroot, const char *name,
		      unsigned ifindex, bool sysfs, struct braid_lead_info *ret)
{
	const struct row *row = row_of(links, ifindex);
	char kind[KIND] = "";
	bool hardware = false;

	if (row)
		memcpy(kind, row->kind, KIND);
	else if (sysfs)
		sys_kind(sysroot, name, kind);
	ret->tunnel = is_tunnel(kind);
	ret->port_of = NULL;
	if ((row && !strcmp(row->port_kind, "bridge")) ||
	    (row && !strcmp(row->port_kind, "openvswitch")) ||
	    (sysfs && has(sysroot, name, "brport")))
		ret->port_of = "bridge";
	else if (row && !strcmp(row->port_kind, "team"))
		ret->port_of = "team";
	if (!ret->tunnel)
		hardware = (sysfs && is_hardware(sysroot, name, DEPTH_MAX)) ||
			   (row && (!*kind || (!sysfs && stands_on(kind))));
	ret->lead = !row && !(sysfs && has(sysroot, name, "")) ? BRAID_LEADS_UNKNOWN :
		    hardware ? BRAID_LEADS_TO_HARDWARE :
		    row && row->elsewhere && !ret->tunnel ? BRAID_LEADS_OUT : BRAID_LEADS_NOWHERE;
}
