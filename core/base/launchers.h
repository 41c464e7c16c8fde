/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * launchers.h - the variables by which launchers tell a process its job and its rank; the first
 * that is set counts.
 */
#ifndef BRAID_BASE_LAUNCHERS_H
#define BRAID_BASE_LAUNCHERS_H

#define BRAID_JOB_VARS "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID"
#define BRAID_RANK_VARS "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", \
	"JOB_COMPLETION_INDEX"
#define BRAID_NO_JOB "none"		/* torchrun's word for no id */

enum { BRAID_LABEL_LEN = 64 };		/* with its NUL; longer values are cut */

#endif
