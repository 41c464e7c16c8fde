/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.c - RDMA devices: their libraries, which the job asks for, and what peers may write. */
#include "config.h"

#include <string.h>

#include "tools/doctor/doctor.h"
#include "topo/netdev.h"

static void library(struct doctor *d)
{
	if (no_port(d))
		return;
	if (doctor_lacks_library(d, "libibverbs", "RDMA devices"))
		doctor_mend_install(d, "libibverbs1 ibverbs-providers", "libibverbs");
	if (doctor_lacks_library(d, "librdmacm", "RDMA devices"))
		doctor_mend_install(d, "librdmacm1", "librdmacm");
}

/* Report elements that match no port; true: there were some. */
static bool hca_missed(struct doctor *d, const char *name, const char *text,
		       const struct braid_netdev_filter *f)
{
	bool hit[BRAID_FILTER_NAMES] = { false }, found = false;
	char missed[TEXT_LEN], plain[BRAID_FILTER_TEXT];
	const struct rdma_port *p;

	for (unsigned i = 0; next_port(d, &i, &p); ) {
		for (unsigned k = 0; k < f->n; k++)
			hit[k] |= braid_filter_item_match(&f->item[k], p->dev, p->num);
	}
	if (braid_filter_missed(f, hit, missed, sizeof(missed))) {
		found = true;
		doctor_find(d, f->exclude ? LEVEL_NOTE : LEVEL_WARN, "%s=%s: %s matches no RDMA "
			    "port", name, text, missed);
		doctor_mend(d, "braid info   # lists the ports");
	}
	if (f->odd) {
		found = true;
		braid_netdev_filter_format(f, plain, sizeof(plain));
		doctor_find(d, LEVEL_WARN, "%s=%s: Braid reads %s, NCCL itself something else",
			    name, text, plain);
		doctor_mend_set(d, name, plain);
	}
	return found;
}

static void hca(struct doctor *d)
{
	const char *name, *text = env_param(d, "ib_hca", &name);
	const struct rdma_port *p, *first = NULL;
	struct braid_netdev_filter f;
	char why[BRAID_FILTER_TEXT];
	unsigned active = 0;

	if (no_port(d))
		return;
	if (!text) {
		doctor_ok(d, "all RDMA devices may be used");
		return;
	}
	if (braid_netdev_filter_parse(text, &f, why, sizeof(why))) {
		doctor_find(d, LEVEL_FAIL, "%s=%s can't be read: %s", name, text, why);
		doctor_mend_set(d, name, NULL);
		return;
	}
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (p->active && !first)
			first = p;
		active += p->active && braid_netdev_port_match(&f, p->dev, (unsigned)p->num, NULL,
							      NULL);
	}
	if (active) {
		if (hca_missed(d, name, text, &f))
			return;
		doctor_ok(d, "%s=%s leaves %u active port%s", name, text, active,
			  active == 1 ? "" : "s");
		return;
	}
	doctor_find(d, LEVEL_FAIL, "%s=%s leaves no active RDMA port: all goes over TCP", name,
		    text);
	doctor_mend_set(d, name, first ? first->dev : NULL);
	hca_missed(d, name, text, &f);
}

static void kind(struct doctor *d)
{
	const struct rdma_port *p;

	if (no_port(d))
		return;
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (p->soft)
			doctor_find(d, LEVEL_NOTE, "%s is software: no faster than TCP", p->name);
		else if (p->iwarp)
			doctor_find(d, LEVEL_NOTE, "%s is iWARP: NCCL's own InfiniBand code can't "
				    "drive it, Braid does", p->name);
		else
			doctor_ok(d, "%s is %s", p->name, p->roce ? "RoCE" : "InfiniBand");
		if (p->iwarp && !p->soft)
			doctor_mend(d, "export NCCL_NET_PLUGIN=braid NCCL_NET=Braid");
	}
}

/* Do the variables say that others use the network, too? */
static bool is_shared(struct doctor *d)
{
	const char *encrypt = env_get(d, "BRAID_ENCRYPT");

	return encrypt && strcmp(encrypt, "off") != 0;
}

/* Does encryption that Braid can't do by itself leave verbs out? */
static bool is_encrypted_without(struct doctor *d)
{
	const char *encrypt = env_get(d, "BRAID_ENCRYPT");
	long long fabric = 0;

	env_number(d, "BRAID_FABRIC_ENCRYPTED", &fabric);
	return encrypt && strcmp(encrypt, "require") == 0 && fabric != 1;
}

static void strict_is_on(struct doctor *d)
{
	const struct rdma_port *p;

	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (p->active)
			doctor_ok(d, "%s: no peer gets a key of the job's memory, so both ends "
				  "copy each message", p->name);
	}
	if (doctor_transport_is_on(d, "smc"))
		doctor_ok(d, "SMC: its keys are those of the kernel's buffers in any case");
	if (!doctor_transport_is_on(d, "ucx"))
		return;
	doctor_find(d, LEVEL_WARN, "BRAID_RDMA_STRICT=1 leaves out UCX, which BRAID_TRANSPORTS "
		    "names: UCX gives keys of the job's memory to peers");
	doctor_mend_set(d, "BRAID_RDMA_STRICT", NULL);
}

static void strict(struct doctor *d)
{
	long long on = 0;

	if (no_port(d))
		return;
	if (env_number(d, "BRAID_RDMA_STRICT", &on) && on == 1) {
		strict_is_on(d);
	} else if (!doctor_transport_is_on(d, "verbs") || is_encrypted_without(d)) {
		doctor_ok(d, "Braid's own RDMA is left out");
	} else if (is_shared(d)) {
		doctor_find(d, LEVEL_NOTE, "BRAID_ENCRYPT=%s says that others use this network, "
			    "and peers get keys of the job's memory over RDMA",
			    env_get(d, "BRAID_ENCRYPT"));
		doctor_mend(d, "export BRAID_RDMA_STRICT=1   # both ends copy each message");
	} else {
		doctor_ok(d, "BRAID_RDMA_STRICT is not set: peers get keys of the job's memory, "
			  "as RDMA does without it");
	}
}

const struct check doctor_hca[] = {
	{ "rdma-library", "libibverbs and librdmacm",
	  "Without them neither NCCL nor Braid can use RDMA: all goes over TCP, silently",
	  library },
	{ "rdma-hca", "Devices that are asked for",
	  "The names match nothing that works, and RDMA is silently not used", hca },
	{ "rdma-kind", "Kind of RDMA", "Not what a training job wants", kind },
	{ "rdma-strict", "Keys of the job's memory",
	  "A peer that has a key can write more of the job's memory than it was asked to", strict },
	{ NULL, NULL, NULL, NULL },
};
