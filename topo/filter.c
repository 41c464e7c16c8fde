/* SPDX-License-Identifier: BSD-3-Clause */
/* filter.c - see filter.h. */
#include "topo/filter.h"

#include <errno.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ALT_IFNAME = 53 };		/* IFLA_ALT_IFNAME, which older headers lack */

static const char around[] = " \t\r\n\"'";

/* Removes blanks and quotes from both ends of a piece of text; true: there were some. */
static bool strip(const char **text, size_t *len)
{
	size_t before = *len;

	while (*len && strchr(around, (*text)[*len - 1]))
		--*len;
	while (*len && strchr(around, **text)) {
		++*text;
		--*len;
	}
	return *len != before;
}

struct marks {
	bool exclude, exact, odd;
};

/* Takes the marks that stand before a name. */
static struct marks parse_marks(const char **text, size_t *len)
{
	struct marks m = { false, false, strip(text, len) };

	while (*len && ((**text == '^' && !m.exclude) || **text == '=')) {
		m.odd |= m.exact;		/* "==", or "=^", where NCCL knows "^=" */
		m.exclude |= **text == '^';
		m.exact |= **text == '=';
		++*text;
		--*len;
		m.odd |= strip(text, len);
	}
	return m;
}

/* Takes a number up to the next colon.  -1: none is given; `bad`: it is not one of 0 to most. */
static int parse_number(const char **text, size_t *len, int most, int bad)
{
	const char *at = *text, *colon = *len ? memchr(at, ':', *len) : NULL;
	size_t n = colon ? (size_t)(colon - at) : *len, skip = colon ? n + 1 : n;
	int v = 0;

	*text += skip;
	*len -= skip;
	strip(&at, &n);
	if (!n || (n == 2 && !memcmp(at, "-1", 2)))
		return -1;
	for (; n; n--, at++) {
		if (*at < '0' || *at > '9' || v > most)
			return bad;
		v = 10 * v + (*at - '0');
	}
	return v > most ? bad : v;
}

/* "name:port:rail:plane"; false: the name is too long. */
static bool item_take(const char *text, size_t len, struct braid_filter_item *ret)
{
	const char *colon = memchr(text, ':', len), *name = text;
	size_t n = colon ? (size_t)(colon - text) : len, skip = colon ? n + 1 : n;

	strip(&name, &n);
	if (n >= sizeof(ret->name))
		return false;
	*ret = (struct braid_filter_item){ .port = -1 };
	memcpy(ret->name, name, n);
	text += skip;
	len -= skip;
	ret->port = parse_number(&text, &len, UINT8_MAX, 0);
	ret->rail = (int16_t)parse_number(&text, &len, INT16_MAX, -1);
	ret->plane = (int16_t)parse_number(&text, &len, INT16_MAX, -1);
	return true;
}

static int refuse(char *why, size_t size, const char *what, const char *name, size_t len)
{
	if (why)
		snprintf(why, size, "%s '%.*s'", what, len < 40 ? (int)len : 40, name);
	return -EINVAL;
}

/* Adds an element.  The marks of the first element count for all. */
static int element(struct braid_netdev_filter *f, const char *text, size_t len, char *why,
		   size_t why_len)
{
	bool first = !f->n && !f->exclude && !f->exact;
	struct marks m = parse_marks(&text, &len);
	struct braid_filter_item item;

	f->odd |= m.odd || (!first && (m.exclude || m.exact));
	if (first) {
		f->exclude = m.exclude;
		f->exact = m.exact;
	} else if ((m.exclude && !f->exclude) || (m.exact && !f->exact)) {
		return refuse(why, why_len, "a mark (^ or =) is for all names, and stands before "
			      "the first, but there is another one before", text, len);
	}
	if (!len)
		return 0;
	if (*text == '^')
		return refuse(why, why_len, "two marks ^ stand before", text + 1, len - 1);
	if (!item_take(text, len, &item))
		return refuse(why, why_len, "this name is too long:", text, len);
	if (!*item.name)
		return 0;
	if (f->n == BRAID_FILTER_NAMES)
		return refuse(why, why_len, "it has more than 256 names; the first one too many is",
			      text, len);
	item.exact = f->exact;
	f->item[f->n++] = item;
	return 0;
}

int braid_netdev_filter_parse(const char *text, struct braid_netdev_filter *ret, char *why,
			      size_t len)
{
	struct braid_netdev_filter f = { .n = 0 };
	int err;

	for (;; text++) {
		size_t n = strcspn(text, ",");

		err = element(&f, text, n, why, len);
		text += n;
		if (err || !*text)
			break;
	}
	if (!err)
		*ret = f;
	return err;
}

void braid_filter_item_format(const struct braid_filter_item *item, char *ret, size_t len)
{
	const int numbers[] = { item->port, item->rail, item->plane };
	size_t n = (size_t)snprintf(ret, len, "%s", item->name);
	unsigned last = 3;

	while (last && numbers[last - 1] < 0)
		last--;
	for (unsigned i = 0; i < last && n + 1 < len; i++) {
		n += (size_t)snprintf(ret + n, len - n, ":");
		if (numbers[i] >= 0 && n < len)
			n += (size_t)snprintf(ret + n, len - n, "%d", numbers[i]);
	}
}

void braid_netdev_filter_format(const struct braid_netdev_filter *f, char *ret, size_t len)
{
	size_t n = (size_t)snprintf(ret, len, "%s%s", f->exclude ? "^" : "", f->exact ? "=" : "");

	for (unsigned i = 0; i < f->n && n + 1 < len; i++) {
		if (i)
			n += (size_t)snprintf(ret + n, len - n, ",");
		braid_filter_item_format(&f->item[i], ret + n, len - n);
		n += strlen(ret + n);
	}
}

/* Finds an interface by an alternative name too long for if_nametoindex(); 0: there is none. */
static unsigned long_name_to_index(const char *name)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
		struct rtattr attr;
		char name[BRAID_FILTER_NAME];
	} ask = { .head = { .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST } };
	_Alignas(struct nlmsghdr) char answer[16384];
	const struct nlmsghdr *head = (const struct nlmsghdr *)answer;
	struct timeval most = { .tv_sec = 1 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n = -1;

	ask.attr.rta_type = ALT_IFNAME;
	ask.attr.rta_len = (unsigned short)RTA_LENGTH(strlen(name) + 1);
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	ask.head.nlmsg_len = NLMSG_LENGTH(sizeof(ask.info)) + RTA_ALIGN(ask.attr.rta_len);
	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) &&
	    send(fd, &ask, ask.head.nlmsg_len, 0) == (ssize_t)ask.head.nlmsg_len)
		n = recv(fd, answer, sizeof(answer), 0);
	if (fd >= 0)
		close(fd);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(ask.info)) || head->nlmsg_type != RTM_NEWLINK)
		return 0;
	return (unsigned)((const struct ifinfomsg *)NLMSG_DATA(head))->ifi_index;
}

static unsigned name_to_index(const char *name)
{
	return strlen(name) < IF_NAMESIZE ? if_nametoindex(name) : long_name_to_index(name);
}

void braid_netdev_filter_resolve(struct braid_netdev_filter *f)
{
	for (unsigned i = 0; i < f->n; i++) {
		unsigned index = name_to_index(f->item[i].name);
		char name[IF_NAMESIZE];

		if (!index || !if_indextoname(index, name) || !strcmp(name, f->item[i].name))
			continue;
		snprintf(f->item[i].name, sizeof(f->item[i].name), "%s", name);
		f->item[i].exact = true;
	}
}

bool braid_filter_item_match(const struct braid_filter_item *item, const char *name, int port)
{
	size_t len = strlen(item->name);

	return strncmp(name, item->name, item->exact ? len + 1 : len) == 0 &&
	       (port < 0 || item->port < 0 || item->port == port);
}

unsigned braid_filter_missed(const struct braid_netdev_filter *f, const bool *hit, char *ret,
			     size_t len)
{
	unsigned missed = 0;
	size_t n = 0;

	*ret = '\0';
	for (unsigned i = 0; i < f->n; i++) {
		char text[BRAID_FILTER_NAME + 24];

		if (hit[i])
			continue;
		braid_filter_item_format(&f->item[i], text, sizeof(text));
		if (n + strlen(text) + 5 < len)
			n += (size_t)snprintf(ret + n, len - n, "%s'%s'", missed ? ", " : "", text);
		missed++;
	}
	return missed;
}

static const struct braid_filter_item *find(const struct braid_netdev_filter *f, const char *name,
					    int port)
{
	for (unsigned i = 0; i < f->n; i++) {
		if (braid_filter_item_match(&f->item[i], name, port))
			return &f->item[i];
	}
	return NULL;
}

bool braid_netdev_filter_match(const struct braid_netdev_filter *f, const char *name)
{
	return f->n == 0 || (find(f, name, -1) != NULL) != f->exclude;
}

bool braid_netdev_port_match(const struct braid_netdev_filter *f, const char *name, unsigned num,
			     int16_t *rail, int16_t *plane)
{
	const struct braid_filter_item *item = find(f, name, (int)num);

	if (rail) {
		*rail = item ? item->rail : -1;
		*plane = item ? item->plane : -1;
	}
	return f->n == 0 || (item != NULL) != f->exclude;
}

int braid_netdev_port_number(const char *list, const char *name, unsigned num)
{
	size_t len = strlen(name);

	for (; *list; list += strcspn(list, ","), list += *list == ',') {
		const char *p = list + len;

		if (strncmp(list, name, len) || (*p == ':' && strtoul(p + 1, NULL, 10) != num))
			continue;
		if (*p == ':')
			p += strcspn(p, "=,");
		if (*p == '=')
			return atoi(p + 1);
	}
	return -1;
}
