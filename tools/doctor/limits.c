/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.c - limits of the job: locked memory, descriptors, threads, CPUs, shared memory. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "topo/cpus.h"

#define MIB (1LL << 20)

enum { CAP_IPC_LOCK_BIT = 14 };

static bool has_capability(struct doctor *d, int bit)
{
	char path[NAME_LEN], text[NAME_LEN];

	snprintf(path, sizeof(path), "%s/status", sys_proc(d));
	return sys_field(d, path, "CapEff", text, sizeof(text)) &&
	       (strtoull(text, NULL, 16) >> bit & 1);
}

/* A limit is mended where it is set: by the container, Slurm, the shell, or the login. */
static void mend_limit(struct doctor *d, const char *item, const char *systemd, const char *option,
		       const char *flag, long long want, long long hard)
{
	char most[32] = "unlimited";

	if (want >= 0)
		snprintf(most, sizeof(most), "%lld", want);
	if (env_get(d, "KUBERNETES_SERVICE_HOST"))
		doctor_mend(d, "systemctl show -p Limit%s containerd   # on the node: pods have "
			    "its limit", systemd);
	else if (doctor_in_container(d))
		doctor_mend(d, "docker run --ulimit %s=%lld", option, want);
	else if (env_get(d, "SLURM_JOB_ID"))
		doctor_mend(d, "printf '[Service]\\nLimit%s=infinity\\n' | "
			    "sudo SYSTEMD_EDITOR=tee systemctl edit slurmd   # its next start",
			    systemd);
	else if (hard < 0 || (want >= 0 && hard >= want))
		doctor_mend(d, "ulimit -%s %s", flag, most);
	else
		doctor_mend(d, "echo '* - %s %s' | sudo tee /etc/security/limits.d/90-%s.conf   # "
			    "for the next login", item, most, item);
}

static void memlock(struct doctor *d)
{
	const struct rdma_port *ports;
	long long soft, hard;

	if (!sys_limit(d, "Max locked memory", &soft, &hard)) {
		doctor_skip(d, "%s/limits can't be read", sys_proc(d));
		return;
	}
	doctor_fact(d, "memlock", soft < 0 ? "unlimited" : "%lld KiB", soft / 1024);
	if (soft < 0 || has_capability(d, CAP_IPC_LOCK_BIT)) {
		doctor_ok(d, soft < 0 ? "locked memory is unlimited" :
			  "this process may lock any amount (CAP_IPC_LOCK)");
		return;
	}
	if (soft >= 64 * 1024 * MIB) {
		doctor_ok(d, "%lld MiB may be locked", soft / MIB);
		return;
	}
	doctor_find(d, !doctor_ports(d, &ports) ? LEVEL_NOTE :
		    soft < 1024 * MIB ? LEVEL_FAIL : LEVEL_WARN,
		    "only %lld KiB of memory may be locked (memlock)%s", soft / 1024,
		    doctor_ports(d, &ports) ? "" : "; enough without RDMA");
	mend_limit(d, "memlock", "MEMLOCK", "memlock", "l", -1, hard);
}

static void nofile(struct doctor *d)
{
	enum { WANT = 65536, LEAST = 4096 };
	long long soft, hard;

	if (!sys_limit(d, "Max open files", &soft, &hard)) {
		doctor_skip(d, "%s/limits can't be read", sys_proc(d));
		return;
	}
	doctor_fact(d, "nofile", "%lld", soft);
	if (soft < 0 || soft >= LEAST) {
		doctor_ok(d, "%lld files may be open", soft);
		return;
	}
	doctor_find(d, soft < 1024 ? LEVEL_FAIL : LEVEL_WARN,
		    "only %lld files may be open at a time", soft);
	mend_limit(d, "nofile", "NOFILE", "nofile", "n", WANT, hard);
}

static void nproc(struct doctor *d)
{
	enum { WANT = 65536, LEAST = 4096 };
	char cgroup[PATH_LEN], text[PATH_LEN];
	long long soft, hard;

	if (!sys_limit(d, "Max processes", &soft, &hard)) {
		doctor_skip(d, "%s/limits can't be read", sys_proc(d));
		return;
	}
	if (soft >= 0 && soft < LEAST) {
		doctor_find(d, LEVEL_WARN, "only %lld processes and threads are allowed", soft);
		mend_limit(d, "nproc", "NPROC", "nproc", "u", WANT, hard);
		return;
	}
	if (sys_line(d, text, sizeof(text), "%s/cgroup", sys_proc(d)) &&
	    strncmp(text, "0::", 3) == 0) {
		snprintf(cgroup, sizeof(cgroup), "%s", text + 3);
		if (sys_number(d, &soft, "/sys/fs/cgroup%s/pids.max", cgroup) && soft < LEAST) {
			doctor_find(d, LEVEL_WARN, "the control group %s allows only %lld threads",
				    cgroup, soft);
			if (doctor_in_container(d))
				doctor_mend_container(d, "--pids-limit=-1",
						      "the kubelet's podPidsLimit is the limit");
			else
				doctor_mend(d, "echo max | sudo tee /sys/fs/cgroup%s/pids.max",
					    cgroup);
			return;
		}
	}
	doctor_ok(d, "threads are not kept short");
}

/* "tmpfs /dev/shm tmpfs rw,nosuid,size=65536k 0 0"; without a size it is half of the memory. */
static void shm(struct doctor *d)
{
	char *text = sys_text(d, NULL, "%s/mounts", sys_proc(d)), *at, *size = NULL, *end;
	long long bytes = 0;

	at = text ? strstr(text, " /dev/shm ") : NULL;
	if (at) {
		at[strcspn(at, "\n")] = '\0';
		size = strstr(at, "size=");
	}
	if (size) {
		bytes = strtoll(size + 5, &end, 10);
		bytes *= *end == 'k' ? 1024 : *end == 'm' ? MIB : *end == 'g' ? 1024 * MIB : 1;
	}
	if (!text) {
		doctor_skip(d, "%s/mounts can't be read", sys_proc(d));
	} else if (!at) {
		doctor_find(d, LEVEL_FAIL, "/dev/shm is not mounted");
		doctor_mend(d, "sudo mount -t tmpfs tmpfs /dev/shm");
	} else if (size && bytes < 1024 * MIB) {
		doctor_find(d, bytes <= 64 * MIB ? LEVEL_FAIL : LEVEL_WARN,
			    "/dev/shm has only %lld MiB", bytes / MIB);
		if (doctor_in_container(d))
			doctor_mend_container(d, "--shm-size=8g", "mount an emptyDir of medium "
					      "Memory at /dev/shm");
		else
			doctor_mend(d, "sudo mount -o remount,size=8g /dev/shm");
	} else if (size) {
		doctor_ok(d, "/dev/shm has %lld MiB", bytes / MIB);
	} else {
		doctor_ok(d, "/dev/shm may have half of the memory");
	}
	free(text);
}

static unsigned count(const struct braid_cpus *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < BRAID_CPUS_WORDS; i++)
		n += (unsigned)__builtin_popcountll(c->bits[i]);
	return n;
}

static void cpus(struct doctor *d)
{
	const struct braid_machine *m = doctor_machine(d);
	unsigned want = 2 * (m->n_gpus ? m->n_gpus : 1), n;
	char path[NAME_LEN], text[1024];
	struct braid_cpus set;

	snprintf(path, sizeof(path), "%s/status", sys_proc(d));
	if (!sys_field(d, path, "Cpus_allowed_list", text, sizeof(text)) ||
	    braid_cpus_parse(text, &set) < 0) {
		doctor_skip(d, "%s does not tell the CPUs", path);
		return;
	}
	n = count(&set);
	if (n >= (m->n_gpus ? 2 : 1)) {		/* enough for one rank */
		doctor_ok(d, "%u CPUs may be used", n);
		return;
	}
	doctor_find(d, LEVEL_WARN, "this process may use only %u CPU%s (%s), and %u GPUs are there",
		    n, n == 1 ? "" : "s", text, m->n_gpus);
	if (env_get(d, "SLURM_JOB_ID"))
		doctor_mend(d, "srun --cpus-per-task=%u --cpu-bind=none", want);
	else if (env_get(d, "KUBERNETES_SERVICE_HOST"))
		doctor_mend_container(d, "", "ask for more CPUs (resources)");
	else if (doctor_in_container(d))
		doctor_mend(d, "docker run --cpuset-cpus=0-%u", want - 1);
	else
		doctor_mend(d, "taskset -pc 0-%u $$", want - 1);
}

/* Each line of rdma.max is "mlx5_0 hca_handle=max hca_object=2000". */
static void cgroup_rdma(struct doctor *d)
{
	char group[PATH_LEN], *text, *rest, *line;
	const struct rdma_port *ports;

	if (!doctor_ports(d, &ports)) {
		doctor_skip(d, "no RDMA device");
		return;
	}
	if (!sys_line(d, group, sizeof(group), "%s/cgroup", sys_proc(d)) ||
	    strncmp(group, "0::", 3) != 0) {
		doctor_skip(d, "no unified control group");
		return;
	}
	rest = text = sys_text(d, NULL, "/sys/fs/cgroup%s/rdma.max", group + 3);
	while (rest && (line = strsep(&rest, "\n"))) {
		int n = (int)strcspn(line, " ");

		if (!line[n] || (strstr(line, "hca_handle=max") && strstr(line, "hca_object=max")))
			continue;
		doctor_find(d, LEVEL_WARN, "the control group %s limits %s", group + 3, line);
		doctor_mend(d, "echo '%.*s hca_handle=max hca_object=max' | "
			    "sudo tee /sys/fs/cgroup%s/rdma.max", n, line, group + 3);
	}
	if (text)
		doctor_ok(d, "the control group's limits of RDMA were read");
	else
		doctor_ok(d, "no control group limits RDMA");
	free(text);
}

const struct check doctor_limits[] = {
	{ "limits-memlock", "Memory that may be locked",
	  "RDMA locks the memory it touches; beyond the limit registration fails with \"cannot "
	  "allocate memory\", or everything goes over TCP", memlock },
	{ "limits-nofile", "Files that may be open",
	  "Each connection takes descriptors; large jobs end with \"too many open files\"",
	  nofile },
	{ "limits-threads", "Threads that may run",
	  "NCCL starts threads for each communicator; beyond the limit it can't", nproc },
	{ "limits-shm", "Size of /dev/shm",
	  "GPUs of one host exchange data there; if it is full NCCL ends with \"unable to write "
	  "to shared memory\", or a bus error", shm },
	{ "limits-cpus", "CPUs that may be used",
	  "NCCL's proxy threads poll; where they share a CPU with the program, or each other, "
	  "latency is a time slice", cpus },
	{ "limits-rdma", "Control group's limits of RDMA",
	  "Beyond them queue pairs and registrations are refused", cgroup_rdma },
	{ NULL, NULL, NULL, NULL },
};
