/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doctor.h - what a check of `braid doctor` is, and the calls that it may use.
 *
 * A check is a row of its group's table: one function that looks at one thing and reports it.  It
 * reads the system through the calls below alone, so that a directory with recorded files (--root)
 * stands for a host: /sys, /proc, the environment of /proc/self/environ, and probe/NAME.json for
 * facts that no file holds.
 *
 * Checks run one after the other in a child process, which is given up if a check hangs.
 */
#ifndef BRAID_TOOLS_DOCTOR_H
#define BRAID_TOOLS_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tools/findings.h"
#include "topo/machine.h"

struct doctor;

struct check {
	const char *id;			/* "limits-memlock": a heading in docs/user/doctor.md */
	const char *title;		/* what it looks at */
	const char *why;		/* the consequence where it is wrong */
	void (*run)(struct doctor *d);
};

/* Each table is in the file of its name, and its last row is empty. */
extern const struct check doctor_limits[], doctor_kernel[], doctor_tcp[], doctor_net[],
	doctor_nic[], doctor_subnet[], doctor_rdma[], doctor_hca[], doctor_counters[],
	doctor_pcie[], doctor_gpu[], doctor_nccl[], doctor_secret[], doctor_plugin[],
	doctor_other[], doctor_peer[];
void doctor_onesided(struct doctor *d);		/* of doctor_plugin, in onesided.c */

/* -- what a check reports (verdict.c) ----------------------------------------------------- */

/* Report one sentence, without a full stop, that names the thing and its value. */
void doctor_ok(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doctor_skip(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doctor_find(struct doctor *d, enum level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The command that mends the last finding. */
void doctor_mend(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A fact for the comparison of hosts: "mtu eth0" is "9000". */
void doctor_fact(struct doctor *d, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* -- lines that mend (mend.c) ------------------------------------------------------------- */

/*
 * Set a variable, or unset it (value NULL): in the shell, or in the file that sets it.
 * doctor_mend_rename() sets it under another name.
 */
void doctor_mend_set(struct doctor *d, const char *name, const char *value);
void doctor_mend_rename(struct doctor *d, const char *name, const char *right, const char *value);
/* In a container: an option for Docker, or an entry of the pod's spec in Kubernetes. */
void doctor_mend_container(struct doctor *d, const char *docker, const char *pod);
void doctor_mend_install(struct doctor *d, const char *deb, const char *rpm);
bool doctor_in_container(struct doctor *d);

/* -- files, and the process of --pid (sys.c) ---------------------------------------------- */

enum { PATH_LEN = 512, TEXT_LEN = 256, NAME_LEN = 64, NAMES_MAX = 256 };

/* As braid_sys_line() and braid_sys_number(), for a path below the root. */
bool sys_line(struct doctor *d, char *ret, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
bool sys_number(struct doctor *d, long long *ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A whole file of at most 1 MiB, to be freed; NULL: it can't be read. */
char *sys_text(struct doctor *d, size_t *ret_len, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *sys_next_line(const char *text);	/* NULL: there is none */
bool sys_has(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* May this user open the file for reading and writing? */
bool sys_may(struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last component of a link's target. */
bool sys_link(struct doctor *d, char *ret, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

struct names {
	unsigned n;
	char name[NAMES_MAX][NAME_LEN];		/* sorted */
};
void sys_names(struct doctor *d, struct names *ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* "/proc/self", or that of the process of --pid. */
const char *sys_proc(const struct doctor *d);
/* A limit by its name in /proc/self/limits; -1: unlimited. */
bool sys_limit(struct doctor *d, const char *name, long long *soft, long long *hard);
/* The value of "NAME: value" in a file such as /proc/self/status. */
bool sys_field(struct doctor *d, const char *path, const char *name, char *ret, size_t len);
/* A counter of /proc/net/snmp or netstat, "Tcp", "RetransSegs". */
bool sys_snmp(struct doctor *d, const char *file, const char *group, const char *name,
	      long long *ret);

const struct braid_machine *doctor_machine(struct doctor *d);	/* never NULL */
bool doctor_is_live(const struct doctor *d);		/* this host, not a recorded one */
const char *doctor_host(const struct doctor *d);	/* the peer's, of --peer; or NULL */
int doctor_port(const struct doctor *d);		/* 0: not given */

/* -- variables (env.c) -------------------------------------------------------------------- */

/* A variable of the job, as NCCL sees it: set in the environment or in a configuration file. */
struct env {
	char *name, *value;
	const char *file;		/* the file that sets it; NULL: the environment */
	unsigned line;			/* of that file */
};
const struct env *env_find(struct doctor *d, const char *name);	/* NULL: not set */
const char *env_get(struct doctor *d, const char *name);	/* NULL: not set, or empty */
/* The user's configuration file, existing or not, or NULL; and that of $HOME if it is another. */
const char *env_conf(struct doctor *d);
const char *env_conf_other(struct doctor *d);
bool env_number(struct doctor *d, const char *name, long long *ret);
unsigned env_all(struct doctor *d, const struct env **ret);
/* The value of BRAID_NAME, or of the variable it falls back on; and which of them it is. */
const char *env_param(struct doctor *d, const char *name, const char **ret_name);
/* Does BRAID_TRANSPORTS name it? */
bool doctor_transport_is_on(struct doctor *d, const char *transport);

/* -- facts that no file holds (probe.c) --------------------------------------------------- */

struct probe {
	const char *name;		/* a recorded answer is probe/NAME.json below the root */
	json_t *(*run)(struct doctor *d);	/* in a process of its own */
	int ms;				/* time for an answer */
};
extern const struct probe probe_libraries, probe_plugin, probe_standard, probe_interfaces,
	probe_peer;

/* The answer, asked for once; NULL with a reason for doctor_skip() if there is none. */
const json_t *doctor_probe(struct doctor *d, const struct probe *p, const char **ret_why);

/* Report whether the library `prefix` can be loaded; true: it can't, and `devices` need it. */
bool doctor_lacks_library(struct doctor *d, const char *prefix, const char *devices);
long long doctor_nccl_version(struct doctor *d);	/* 22809 for 2.28.9; 0: not known */

/* -- RDMA ports (ports.c) ----------------------------------------------------------------- */

struct rdma_port {
	char dev[NAME_LEN], name[NAME_LEN + 8];		/* mlx5_0, mlx5_0:1 */
	char dir[PATH_LEN];				/* /sys/class/infiniband/mlx5_0/ports/1 */
	char netdev[NAME_LEN];				/* its interface; or "" */
	int num;
	bool roce, iwarp, active, soft;			/* neither roce nor iwarp: InfiniBand */
};
unsigned doctor_ports(struct doctor *d, const struct rdma_port **ret);
/* For each port: true with the next; the caller sets i to 0 before. */
bool next_port(struct doctor *d, unsigned *i, const struct rdma_port **ret);
bool no_port(struct doctor *d);		/* true: there is none, and the check is skipped */

/* -- interfaces (ifaces.c) ---------------------------------------------------------------- */

struct iface {
	char name[NAME_LEN];
	long long mtu, mbps;				/* 0: unknown */
	bool up, loopback, physical, addressed, bond, slave;
	bool chosen;					/* NCCL and Braid would use it */
};
unsigned doctor_ifaces(struct doctor *d, const struct iface **ret);
/* The i-th interface that would be used; NULL: no more. */
const struct iface *doctor_chosen(struct doctor *d, unsigned i);

/* -- the report (run.c, nodes.c) ---------------------------------------------------------- */

struct options {
	const char *root, *peer, *only, *nodes;
	int pid, port;
	bool json, all, list, strict;
};

/* Run the checks: a report, schema braid-doctor-1; NULL after a line on stderr. */
json_t *doctor_report(const struct options *w);
void doctor_list(void);
/* Does a comma list name checks and groups only?  If not, ret is the first unknown name. */
bool doctor_only_is_valid(const char *only, char *ret, size_t len);
int doctor_nodes(const struct options *w);

struct doctor *doctor_new(const struct options *w);
void doctor_free(struct doctor *d);

#endif
