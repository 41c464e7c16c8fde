/* SPDX-License-Identifier: BSD-3-Clause */
/* smc.h - what the kernel's SMC has, for braid info and braid smc. */
#ifndef BRAID_TOOLS_SMC_H
#define BRAID_TOOLS_SMC_H

#include <jansson.h>

/*
 * Members: "kernel": it has SMC; "v2", "wmem", "rmem", "ueids", "pnetids", "devices", "groups";
 * "missing": what to do, in sentences; "why": why the kernel could not be asked.
 */
json_t *smc_json(void);
void smc_print(const json_t *smc);

#endif
