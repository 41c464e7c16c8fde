/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf.h - NCCL's configuration files, which add to the environment what is not set there.
 *
 * NCCL reads NCCL_CONF_FILE, or else .nccl.conf in the user's home, and then /etc/nccl.conf.  The
 * home is that of the password file before 2.30, and $HOME since.
 */
#ifndef BRAID_TOOLS_CONF_H
#define BRAID_TOOLS_CONF_H

#define CONF_SYSTEM "/etc/nccl.conf"

/* Each NAME=VALUE of a file's text, which is changed, with the number of its line. */
void conf_parse(char *text, void (*each)(void *arg, const char *name, const char *value,
					 unsigned line), void *arg);

/*
 * Of $HOME and the password file's directory (NULL: not known) the one that NCCL of that version
 * takes, 23003 for 2.30.3, 0 for an unknown one: where there is a file, in NCCL's older order.
 * root: "" or a directory that stands for /.
 */
const char *conf_home(const char *home, const char *passwd, long long version, const char *root);

/*
 * Put into this process's environment what NCCL would, so that a plugin loaded here sees what it
 * sees in a job.  `tell`, if not NULL, is called for each variable that comes from a file.
 */
void conf_apply(void (*tell)(const char *name, const char *value, const char *file,
			     unsigned line));

#endif
