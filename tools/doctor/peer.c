/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - the way to another host, of --peer: its name, its route, packet sizes, a firewall. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/text.h"

/* The answer; NULL: a reason was reported. */
static const json_t *peer(struct doctor *d)
{
	const char *why;
	const json_t *o;

	if (!doctor_host(d)) {
		doctor_skip(d, "no --peer");
		return NULL;
	}
	o = doctor_probe(d, &probe_peer, &why);
	if (!o)
		doctor_skip(d, "%s: %s", doctor_host(d), why);
	return o;
}

static const json_t *peer_found(struct doctor *d)
{
	const json_t *o = peer(d);

	if (!o || *text_of(o, "address"))
		return o;
	doctor_skip(d, "%s has no address", doctor_host(d));
	return NULL;
}

static void name(struct doctor *d)
{
	const json_t *o = peer(d);

	if (!o)
		return;
	if (*text_of(o, "address")) {
		doctor_ok(d, "%s is %s", doctor_host(d), text_of(o, "address"));
		return;
	}
	doctor_find(d, LEVEL_FAIL, "%s has no address: %s", doctor_host(d),
		    text_of(o, "name_error"));
	doctor_mend(d, "getent hosts %s   # else: add it to /etc/hosts", doctor_host(d));
}

/* Example: 127.0.1.1, which Debian's installer writes into /etc/hosts for the host's own name. */
static bool is_loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* A route from this host to itself has the same source and destination address. */
static bool is_self(const json_t *o)
{
	return is_loopback(text_of(o, "address")) || strcmp(text_of(o, "interface"), "lo") == 0 ||
	       (*text_of(o, "address") && strcmp(text_of(o, "address"), text_of(o, "source")) == 0);
}

/* The answer if it is another host; NULL: a reason was reported. */
static const json_t *peer_elsewhere(struct doctor *d)
{
	const json_t *o = peer_found(d);

	if (!o || !is_self(o))
		return o;
	doctor_skip(d, "%s is this host itself", text_of(o, "address"));
	return NULL;
}

/* Did --peer name an address, or this host's own name? */
static bool names_this_host(struct doctor *d, const json_t *o)
{
	char own[NAME_LEN] = "";

	sys_line(d, own, sizeof(own), "/proc/sys/kernel/hostname");
	return strcmp(doctor_host(d), text_of(o, "address")) == 0 ||
	       strcmp(doctor_host(d), own) == 0 || strcmp(doctor_host(d), "localhost") == 0;
}

static void self(struct doctor *d)
{
	const json_t *o = peer_found(d);

	if (!o)
		return;
	if (!is_self(o)) {
		doctor_ok(d, "%s is another host", text_of(o, "address"));
		return;
	}
	doctor_find(d, names_this_host(d, o) ? LEVEL_NOTE : LEVEL_FAIL, "%s is %s, which is this "
		    "host itself", doctor_host(d), text_of(o, "address"));
	if (names_this_host(d, o))
		doctor_mend(d, "braid doctor --peer HOST   # another one");
	else
		doctor_mend(d, "grep -n %s /etc/hosts   # give it the address that others reach it "
			    "at", doctor_host(d));
}

static void route(struct doctor *d)
{
	const json_t *o = peer_elsewhere(d);
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);
	char value[NAME_LEN + 2];

	if (!o)
		return;
	if (!*text_of(o, "interface")) {
		doctor_find(d, LEVEL_FAIL, "there is no route to %s: %s", text_of(o, "address"),
			    text_of(o, "route_error"));
		doctor_mend(d, "ip route get %s", text_of(o, "address"));
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (strcmp(f[i].name, text_of(o, "interface")) == 0 && f[i].chosen) {
			doctor_ok(d, "%s is reached by %s", text_of(o, "address"), f[i].name);
			return;
		}
	}
	doctor_find(d, LEVEL_WARN, "%s is reached by %s, which NCCL and Braid would not use",
		    text_of(o, "address"), text_of(o, "interface"));
	snprintf(value, sizeof(value), "=%s", text_of(o, "interface"));
	doctor_mend_set(d, "NCCL_SOCKET_IFNAME", value);
}

/* A packet that a rule of this host drops is not answered, either. */
static void walled(struct doctor *d, const json_t *o, long long num)
{
	const char *source = text_of(o, "source"), *to = text_of(o, "address");
	const char *ip = strchr(source, ':') ? "ip6" : "ip", *err = text_of(o, "connected");
	char own[NAME_LEN] = "this host";

	if (json_is_true(json_object_get(o, "refused_here"))) {
		doctor_find(d, LEVEL_FAIL, "a firewall of this host: %s port %lld: %s", to, num,
			    err);
		doctor_mend(d, "sudo nft insert rule inet filter output %s daddr %s accept   "
			    "# here", ip, to);
		return;
	}
	sys_line(d, own, sizeof(own), "/proc/sys/kernel/hostname");
	doctor_find(d, LEVEL_FAIL, "a firewall is between: %s port %lld: %s; it is in the output "
		    "rules of %s, in the input rules of %s, or on the way", to, num, err, own, to);
	doctor_mend(d, "sudo nft list ruleset   # on %s, then on %s: sudo nft insert rule inet "
		    "filter input %s saddr %s accept", own, to, ip, source);
}

static void port(struct doctor *d)
{
	const json_t *o = peer_found(d);
	long long num, answer;

	if (!o)
		return;
	num = json_integer_value(json_object_get(o, "port"));
	answer = json_is_true(json_object_get(o, "answered"));
	if (*text_of(o, "connected") && strcmp(text_of(o, "connected"), "yes") == 0) {
		doctor_ok(d, "%s port %lld takes connections", text_of(o, "address"), num);
	} else if (answer && doctor_port(d)) {
		doctor_find(d, LEVEL_WARN, "nobody listens at %s port %lld", text_of(o, "address"),
			    num);
		doctor_mend(d, "braid perf --listen %lld   # there", num);
	} else if (answer) {
		doctor_ok(d, "%s answers at port %lld: no firewall", text_of(o, "address"), num);
	} else if (json_is_true(json_object_get(o, "no_neighbour"))) {
		doctor_find(d, LEVEL_FAIL, "no host of this network has the address %s, or it is "
			    "off", text_of(o, "address"));
		doctor_mend(d, "ip neigh show %s   # FAILED; is the address right?",
			    text_of(o, "address"));
	} else {
		walled(d, o, num);
	}
}

static void mtu(struct doctor *d)
{
	const json_t *o = peer_elsewhere(d);
	long long own, fits;

	if (!o)
		return;
	own = json_integer_value(json_object_get(o, "mtu"));
	fits = json_integer_value(json_object_get(o, "path_mtu"));
	if (!own || !fits) {
		doctor_skip(d, "%s", *text_of(o, "mtu_error") ? text_of(o, "mtu_error") :
			    "the path's MTU is not known");
	} else if (fits >= own) {
		doctor_ok(d, "packets of %lld bytes arrive at %s", own, text_of(o, "address"));
	} else {
		doctor_find(d, LEVEL_FAIL, "MTU mismatch: %s has MTU %lld, but only %lld bytes "
			    "arrive at %s", text_of(o, "interface"), own, fits,
			    text_of(o, "address"));
		if (json_is_true(json_object_get(o, "on_link")))
			doctor_mend(d, "sudo ip link set dev %s mtu %lld   # or %lld at the switch "
				    "and the peer", text_of(o, "interface"), fits, own);
		else
			doctor_mend(d, "tracepath -n %s   # where it gets smaller: a router or "
				    "tunnel on the way", text_of(o, "address"));
	}
}

const struct check doctor_peer[] = {
	{ "peer-name", "The peer's name", "Ranks can't find each other", name },
	{ "peer-self", "Whether the peer is another host",
	  "Its name leads back here, so no rank there can be reached", self },
	{ "peer-route", "The route to the peer",
	  "The way there is another than the one that will be used: it may lead nowhere", route },
	{ "peer-port", "A firewall on the way",
	  "NCCL and Braid take any port: connections time out as a job starts", port },
	{ "peer-mtu", "Packet sizes on the way",
	  "Large packets are lost without a word and small ones pass: connections are made, and "
	  "stall", mtu },
	{ NULL, NULL, NULL, NULL },
};
