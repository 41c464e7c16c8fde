/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_int.h - the state of a run, kept between checks. */
#ifndef BRAID_TOOLS_DOCTOR_INT_H
#define BRAID_TOOLS_DOCTOR_INT_H

#include "tools/doctor/doctor.h"

enum { ENV_MAX = 4096, PORTS_MAX = 64, IFACES_MAX = 256, PROBES_MAX = 8 };

struct doctor {
	const struct options *w;
	char proc[32];

	struct findings findings;	/* of the current check */
	json_t *facts;

	/* read once, when first asked for */
	struct env *env;
	unsigned n_env;
	char conf[PATH_LEN];		/* the user's configuration file, existing or not */
	char conf_other[PATH_LEN];	/* that of $HOME, if NCCL's versions differ about it */
	struct braid_machine *machine;
	struct rdma_port *ports;
	unsigned n_ports;
	struct iface *ifaces;
	unsigned n_ifaces;
	struct {
		const struct probe *probe;
		json_t *json;
		char why[TEXT_LEN];
	} probes[PROBES_MAX];
	unsigned n_probes;
};

#endif
