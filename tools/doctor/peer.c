/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - the way to another host, of --peer: its name, its route, packet sizes, a firewall. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* NULL: a reason was given. */
static const json_t *peer(struct doctor *d)
{
	const char *why;
	const json_t *o;

	if (!doctor_host(d)) {
		doctor_skip(d, "no --peer");
		return NULL;
	}
	o = doctor_probe(d, "peer", &why);
	if (!o)
		doctor_skip(d, "%s: %s", doctor_host(d), why);
	return o;
}

static const json_t *peer_found(struct doctor *d)
{
	const json_t *o = peer(d);

	if (!o || *text(o, "address"))
		return o;
	doctor_skip(d, "%s has no address", doctor_host(d));
	return NULL;
}

static void name(struct doctor *d)
{
	const json_t *o = peer(d);

	if (!o)
		return;
	if (*text(o, "address")) {
		doctor_ok(d, "%s is %s", doctor_host(d), text(o, "address"));
		return;
	}
	doctor_find(d, LEVEL_FAIL, "%s has no address: %s", doctor_host(d), text(o, "name_error"));
	doctor_mend(d, "getent hosts %s   # else: add it to /etc/hosts", doctor_host(d));
}

static void route(struct doctor *d)
{
	const json_t *o = peer_found(d);
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);

	if (!o)
		return;
	if (!*text(o, "interface")) {
		doctor_find(d, LEVEL_FAIL, "there is no route to %s: %s", text(o, "address"),
			    text(o, "route_error"));
		doctor_mend(d, "ip route get %s", text(o, "address"));
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (strcmp(f[i].name, text(o, "interface")) == 0 && f[i].chosen) {
			doctor_ok(d, "%s is reached by %s", text(o, "address"), f[i].name);
			return;
		}
	}
	doctor_find(d, strcmp(text(o, "interface"), "lo") == 0 ? LEVEL_NOTE : LEVEL_WARN,
		    "%s is reached by %s, which NCCL and Braid would not use", text(o, "address"),
		    text(o, "interface"));
	doctor_mend(d, "export NCCL_SOCKET_IFNAME==%s", text(o, "interface"));
}

static void port(struct doctor *d)
{
	const json_t *o = peer_found(d);
	long long num, answer;

	if (!o)
		return;
	num = json_integer_value(json_object_get(o, "port"));
	answer = json_is_true(json_object_get(o, "answered"));
	if (*text(o, "connected") && strcmp(text(o, "connected"), "yes") == 0) {
		doctor_ok(d, "%s port %lld takes connections", text(o, "address"), num);
	} else if (answer && doctor_port(d)) {
		doctor_find(d, LEVEL_WARN, "nobody listens at %s port %lld", text(o, "address"),
			    num);
		doctor_mend(d, "braid perf --listen %lld   # there", num);
	} else if (answer) {
		doctor_ok(d, "%s answers at port %lld: no firewall", text(o, "address"), num);
	} else {
		doctor_find(d, LEVEL_FAIL, "a firewall is between: %s port %lld: %s",
			    text(o, "address"), num, text(o, "connected"));
		doctor_mend(d, "sudo nft insert rule inet filter input %s saddr %s accept   # "
			    "there",
			    strchr(text(o, "source"), ':') ? "ip6" : "ip", text(o, "source"));
	}
}

static void mtu(struct doctor *d)
{
	const json_t *o = peer_found(d);
	long long own, fits;

	if (!o)
		return;
	own = json_integer_value(json_object_get(o, "mtu"));
	fits = json_integer_value(json_object_get(o, "path_mtu"));
	if (!own || !fits) {
		doctor_skip(d, "%s", *text(o, "mtu_error") ? text(o, "mtu_error") :
			    "the path's MTU is not told");
	} else if (fits >= own) {
		doctor_ok(d, "packets of %lld bytes arrive at %s", own, text(o, "address"));
	} else {
		doctor_find(d, LEVEL_FAIL, "MTU mismatch: %s has MTU %lld, but only %lld bytes "
			    "arrive at %s", text(o, "interface"), own, fits, text(o, "address"));
		doctor_mend(d, "sudo ip link set dev %s mtu %lld   # or raise it on the way",
			    text(o, "interface"), fits);
	}
}

const struct check doctor_peer[] = {
	{ "peer-name", "The peer's name", "Ranks can't find each other", name },
	{ "peer-route", "The route to the peer",
	  "The way there is another than the one that will be used: it may lead nowhere", route },
	{ "peer-port", "A firewall on the way",
	  "NCCL and Braid take any port: connections time out as a job starts", port },
	{ "peer-mtu", "Packet sizes on the way",
	  "Large packets are lost without a word and small ones pass: connections are made, and "
	  "stall", mtu },
	{ NULL, NULL, NULL, NULL },
};
