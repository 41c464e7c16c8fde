/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf.h - NCCL's configuration files: variables that the environment does not set.
 *
 * NCCL reads NCCL_CONF_FILE, or else .nccl.conf in the user's home, and then /etc/nccl.conf.
 * NCCL before 2.30 takes the home from the password file; 2.30 and newer take $HOME.
 */
#ifndef BRAID_TOOLS_CONF_H
#define BRAID_TOOLS_CONF_H

#define CONF_SYSTEM "/etc/nccl.conf"

/* Call each() for every NAME=VALUE line of a file's text, which is changed. */
void conf_parse(char *text, void (*each)(void *arg, const char *name, const char *value,
					 unsigned line), void *arg);

/*
 * The home directory whose .nccl.conf NCCL of `version` reads (23003 for 2.30.3; 0: unknown, take
 * the one that has the file, in the older order).  home: $HOME; passwd: the password file's
 * directory, or NULL; root: "", or a directory that stands for /.
 */
const char *conf_home(const char *home, const char *passwd, long long version, const char *root);

/*
 * Set in this process's environment what NCCL would set, so that a plugin loaded here sees the same
 * variables as in a job.  `tell`, if not NULL, is called for each variable that comes from a file.
 */
void conf_apply(void (*tell)(const char *name, const char *value, const char *file,
			     unsigned line));

#endif
