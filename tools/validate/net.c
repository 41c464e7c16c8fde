/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - the plugin in this process: loaded, initialised, one of its devices chosen. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/validate/far.h"

static char transport[32];

const char *net_transport(void)
{
	return transport;
}

/* Braid logs "braid: device 0: eth0 10.0.0.1, 25000 Mbit/s (assumed), verbs, tcp". */
static void on_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
static void on_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static const char unit[] = " Mbit/s";
	char text[1024], head[40];
	const char *at;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	net_log(level, flags, file, line, "%s", text);
	snprintf(head, sizeof(head), "device %d: ", the_device());
	at = strstr(text, head) ? strstr(text, unit) : NULL;
	at = at ? strchr(at, ',') : NULL;
	if (at) {
		at += strspn(at, ", ");
		snprintf(transport, sizeof(transport), "%.*s", (int)strcspn(at, ","), at);
	}
}

/* A device by number or by name; 0 if none is asked for. */
static int device(struct net *net, const char *want, int n)
{
	struct braid_net_props props;
	char *end;
	long i = want ? strtol(want, &end, 10) : 0;

	if (!want || (*want && !*end && i >= 0 && i < n))
		return (int)i;
	for (i = 0; i < n; i++)
		if (net_props(net, (int)i, &props) == ncclSuccess && props.name &&
		    strcmp(props.name, want) == 0)
			return (int)i;
	FAIL("no device '%s' among its %d", want, n);
}

void net_up(struct validate *v)
{
	struct braid_net_props props;
	const char *dev = v->w->dev;
	char err[512];

	step(v, "loading the plugin");
	v->net = net_load(v->w->plugin, v->abi, err, sizeof(err));
	if (!v->net)
		FAIL("%s", err);
	v->abi = v->net->abi;
	if (dev && *dev >= '0' && *dev <= '9')
		on_device(atoi(dev));
	step(v, "init");
	OK(net_init(v->net, (uint64_t)getpid(), NCCL_NET_TRAFFIC_CLASS_UNDEF, on_log, NULL));
	OK(net_devices(v->net, &v->ndev));
	if (v->ndev < 1 && v->check && strcmp(v->check->id, "props-devices") != 0)
		skip(v, "it has no device here: --only props-devices says what it complains of");
	if (v->ndev < 1)
		FAIL("it has no device%s%s", *net_last_warn() ? ": " : "", net_last_warn());
	v->dev = device(v->net, dev, v->ndev);
	on_device(v->dev);
	memset(&props, 0, sizeof(props));
	OK(net_props(v->net, v->dev, &props));
	snprintf(v->nic, sizeof(v->nic), "%s", props.name ? props.name : "?");
}

bool is_braid(const struct validate *v)
{
	return strcmp(v->net->name, "Braid") == 0;
}

void needs_braid(struct validate *v)
{
	if (!is_braid(v))
		skip(v, "it is about what Braid alone has, and this is %s", v->net->name);
}

void needs_abi(struct validate *v, int abi)
{
	if (v->abi < abi)
		skip(v, "it is about version %d of the interface, and this is %d", abi, v->abi);
}

void ipv6_only(void)
{
	setenv("BRAID_SOCKET_FAMILY", "AF_INET6", 1);
	setenv("NCCL_SOCKET_FAMILY", "AF_INET6", 1);
}
