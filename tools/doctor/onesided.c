/* SPDX-License-Identifier: BSD-3-Clause */
/* onesided.c - would NCCL use Braid for one-sided operations (RMA) here, and why not? */
#include "config.h"

#include <string.h>

#include "tools/doctor/doctor_int.h"

enum { FIRST_RMA = 23007, FIRST_V15 = 23100, FIRST_V16 = 23200 };

/* A variable with which NCCL itself has no symmetric memory; NULL: none is set so. */
static const char *turned_off(struct doctor *d)
{
	long long n;

	if (env_number(d, "NCCL_RMA_DISABLE", &n) && n)
		return "NCCL_RMA_DISABLE";
	if (env_number(d, "NCCL_WIN_ENABLE", &n) && !n)
		return "NCCL_WIN_ENABLE";
	return env_number(d, "NCCL_CUMEM_ENABLE", &n) && !n ? "NCCL_CUMEM_ENABLE" : NULL;
}

/* Is there a port that NCCL's own backend serves? */
static bool has_ib(struct doctor *d)
{
	const struct rdma_port *ports;
	unsigned n = doctor_ports(d, &ports);
	long long off;

	if (env_number(d, "NCCL_IB_DISABLE", &off) && off)
		return false;
	while (n--) {
		if (!ports[n].iwarp)
			return true;
	}
	return false;
}

void doctor_onesided(struct doctor *d)
{
	long long v = doctor_nccl_version(d);
	const char *rma = env_get(d, "BRAID_RMA"), *other = env_get(d, "NCCL_RMA_PLUGIN");
	const char *off = turned_off(d);

	if (!v) {
		doctor_skip(d, "libnccl.so.2 is not where the loader looks");
	} else if (v < FIRST_RMA) {
		doctor_ok(d, "NCCL %lld.%lld.%lld uses no other's backend for one-sided "
			  "operations; 2.30.7 and newer do", v / 10000, v / 100 % 100, v % 100);
	} else if (off) {
		doctor_find(d, LEVEL_NOTE, "%s=%s: NCCL has no one-sided operations between hosts",
			    off, env_get(d, off));
		doctor_mend_set(d, off, NULL);
	} else if (other && !strstr(other, "braid")) {
		doctor_find(d, LEVEL_NOTE, "NCCL_RMA_PLUGIN=%s: NCCL asks that first for one-sided "
			    "operations", other);
		doctor_mend_set(d, "NCCL_RMA_PLUGIN", NULL);
	} else if (rma && !strcmp(rma, "off")) {
		doctor_ok(d, "BRAID_RMA=off: NCCL's own backend does one-sided operations, if it "
			  "has one here");
	} else if ((!rma || strcmp(rma, "on") != 0) && has_ib(d)) {
		doctor_ok(d, "NCCL's own backend does one-sided operations over the InfiniBand or "
			  "RoCE port; with BRAID_RMA=on Braid does");
	} else {
		doctor_ok(d, "NCCL %lld.%lld.%lld takes Braid for one-sided operations, by v%d",
			  v / 10000, v / 100 % 100, v % 100,
			  v >= FIRST_V16 ? 16 : v >= FIRST_V15 ? 15 : 14);
	}
}
