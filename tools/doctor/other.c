/* SPDX-License-Identifier: BSD-3-Clause */
/* other.c - SMC and UCX, which are used only where BRAID_TRANSPORTS names them. */
#include "config.h"

#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/smc.h"
#include "tools/text.h"

static json_t *run_smc(struct doctor *d)
{
	(void)d;
	return smc_json();
}

static const struct probe probe_smc = { "smc", run_smc, 1000 };

/* The answer; NULL: a reason was reported. */
static const json_t *smc(struct doctor *d)
{
	const char *why;
	const json_t *o;

	if (!doctor_transport_is_on(d, "smc")) {
		doctor_skip(d, "BRAID_TRANSPORTS does not name smc");
		return NULL;
	}
	o = doctor_probe(d, &probe_smc, &why);
	if (!o)
		doctor_skip(d, "SMC: %s", why);
	return o;
}

static void smc_kernel(struct doctor *d)
{
	const json_t *o = smc(d);

	if (!o)
		return;
	if (json_is_true(json_object_get(o, "kernel"))) {
		doctor_ok(d, "the kernel has SMC");
		return;
	}
	doctor_find(d, LEVEL_FAIL, "BRAID_TRANSPORTS names smc, but the kernel has no SMC");
	doctor_mend(d, "sudo modprobe -a smc smc_diag");
}

/* Each entry is "what is missing: the command", as braid smc prints it. */
static void smc_setup(struct doctor *d)
{
	const json_t *o = smc(d), *list;

	if (!o)
		return;
	if (!json_is_true(json_object_get(o, "kernel"))) {
		doctor_skip(d, "the kernel has no SMC");
		return;
	}
	list = json_object_get(o, "missing");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));
		const char *line = s ? strstr(s, ": braid smc setup") : NULL;

		if (!s)
			continue;
		doctor_find(d, LEVEL_FAIL, "%.*s", line ? (int)(line - s) : (int)strlen(s), s);
		if (line)
			doctor_mend(d, "sudo %s", line + 2);
		else
			doctor_mend(d, "braid smc");
	}
	if (!json_array_size(list))
		doctor_ok(d, "devices, UEIDs and pnetids are there");
}

static void smc_buffers(struct doctor *d)
{
	static const char *const names[] = { "wmem", "rmem" };
	const json_t *o = smc(d);

	if (!o)
		return;
	for (unsigned i = 0; i < 2; i++) {
		long long n = json_integer_value(json_object_get(o, names[i]));

		if (!n) {
			doctor_skip(d, "net.smc.%s is not known", names[i]);
		} else if (n < 256 << 10) {
			doctor_find(d, LEVEL_NOTE, "net.smc.%s is %lld KiB", names[i], n >> 10);
			doctor_mend(d, "sudo sysctl -w net.smc.%s=524288", names[i]);
		} else {
			doctor_ok(d, "net.smc.%s is %lld KiB", names[i], n >> 10);
		}
	}
}

static void ucx_library(struct doctor *d)
{
	const char *why;
	const json_t *libs;

	if (!doctor_transport_is_on(d, "ucx")) {
		doctor_skip(d, "BRAID_TRANSPORTS does not name ucx");
		return;
	}
	libs = doctor_probe(d, &probe_libraries, &why);
	if (!libs)
		doctor_skip(d, "libraries: %s", why);
	for (size_t i = 0; i < json_array_size(libs); i++) {
		const json_t *x = json_array_get(libs, i);

		if (strncmp(text_of(x, "name"), "libucp", 6) != 0)
			continue;
		if (json_is_true(json_object_get(x, "found"))) {
			doctor_ok(d, "%s is there", text_of(x, "name"));
			continue;
		}
		doctor_find(d, LEVEL_FAIL, "BRAID_TRANSPORTS names ucx, but %s can't be loaded: %s",
			    text_of(x, "name"), text_of(x, "why"));
		doctor_mend_install(d, "libucx0", "ucx");
	}
}

/* Do the devices of a list such as "mlx5_0:1,eth0" exist? */
static void ucx_devices(struct doctor *d)
{
	const char *list = env_get(d, "UCX_NET_DEVICES"), *at;
	unsigned bad = 0;

	if (!list || strcmp(list, "all") == 0 || *list == '^') {
		doctor_ok(d, "UCX may use all devices");
		return;
	}
	for (at = list; *at; at += strspn(at, ",")) {
		int len = (int)strcspn(at, ","), name = (int)strcspn(at, ":,");

		if (!sys_has(d, "/sys/class/net/%.*s", len, at) &&
		    !sys_has(d, "/sys/class/infiniband/%.*s", name, at)) {
			bad++;
			doctor_find(d, LEVEL_WARN, "UCX_NET_DEVICES names %.*s, which is not here",
				    len, at);
			doctor_mend_set(d, "UCX_NET_DEVICES", NULL);
		}
		at += len;
	}
	if (!bad)
		doctor_ok(d, "UCX_NET_DEVICES=%s", list);
}

/* Does the list have a transport that works between hosts? */
static void ucx_tls(struct doctor *d)
{
	static const char *const wires[] = { "all", "rc", "dc", "ud", "ib", "tcp", "srd", "gga" };
	const char *list = env_get(d, "UCX_TLS"), *at;

	if (!list || *list == '^') {
		doctor_ok(d, list ? "UCX_TLS=%s" : "UCX chooses its transports", list);
		return;
	}
	for (at = list; *at; at += strspn(at, ",")) {
		for (unsigned i = 0; i < sizeof(wires) / sizeof(wires[0]); i++) {
			if (strncmp(at, wires[i], strlen(wires[i])) == 0) {
				doctor_ok(d, "UCX_TLS=%s", list);
				return;
			}
		}
		at += strcspn(at, ",");
	}
	doctor_find(d, LEVEL_WARN, "UCX_TLS=%s has nothing that reaches another host", list);
	doctor_mend_set(d, "UCX_TLS", NULL);
}

const struct check doctor_other[] = {
	{ "smc-kernel", "SMC in the kernel", "Connections are TCP's, silently", smc_kernel },
	{ "smc-setup", "What SMC-R needs", "Connections fall back to TCP, silently", smc_setup },
	{ "smc-buffers", "SMC's buffers",
	  "A connection has one buffer in flight, and it does not grow", smc_buffers },
	{ "ucx-library", "UCX's library", "The transport that was asked for is not used",
	  ucx_library },
	{ "ucx-devices", "UCX's devices", "UCX has no way to another host, or a slower one",
	  ucx_devices },
	{ "ucx-transports", "UCX's transports", "UCX can't connect to another host", ucx_tls },
	{ NULL, NULL, NULL, NULL },
};
