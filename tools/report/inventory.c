/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inventory.c - the host that a report comes from, for readers elsewhere.
 *
 * Figures of two hosts differ by kernel, firmware, NUMA node and governor before they differ by
 * anything else.  What the host does not say is left out.
 */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/report/report.h"

enum { NCCL_MS = 3000, LINE = 256 };

static void set(json_t *o, const char *key, const char *value)
{
	json_t *s = value && *value ? json_string(value) : NULL;

	if (s)
		json_object_set_new(o, key, s);
}

/* The first line of a file; "" if there is none. */
static const char *line_of(char line[LINE], const char *dir, const char *name)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	*line = '\0';
	if (f && fgets(line, LINE, f))
		line[strcspn(line, "\n")] = '\0';
	if (f)
		fclose(f);
	return line;
}

static void from_file(json_t *o, const char *key, const char *dir, const char *name)
{
	char line[LINE];

	set(o, key, line_of(line, dir, name));
}

/* The value behind "key : " in a file such as /proc/cpuinfo. */
static void from_list(json_t *o, const char *key, const char *path, const char *wanted)
{
	char line[LINE], *at;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, wanted, strlen(wanted)) != 0)
			continue;
		at = line + strlen(wanted);
		at += strspn(at, " \t:=\"");
		at[strcspn(at, "\"\n")] = '\0';
		set(o, key, at);
		break;
	}
	if (f)
		fclose(f);
}

/* -- NICs --------------------------------------------------------------------------------- */

static void driver(json_t *o, const char *netdev)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq r = { .ifr_data = (void *)&info };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%.15s", netdev);
	if (fd >= 0 && ioctl(fd, SIOCETHTOOL, &r) == 0) {
		set(o, "driver", info.driver);
		set(o, "driver_version", info.version);
		set(o, "firmware", info.fw_version);
	}
	if (fd >= 0)
		close(fd);
}

json_t *report_nic(const char *name)
{
	json_t *o = json_object();
	char base[64], dir[256], pci[300];

	snprintf(base, sizeof(base), "%.*s", (int)strcspn(name, ":"), name);
	snprintf(dir, sizeof(dir), "/sys/class/net/%s", base);
	if (access(dir, F_OK) == 0) {
		from_file(o, "mtu", dir, "mtu");
		driver(o, base);
	} else {
		snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s", base);
		from_file(o, "firmware", dir, "fw_ver");
		from_file(o, "board", dir, "board_id");
		from_file(o, "type", dir, "node_type");
	}
	snprintf(pci, sizeof(pci), "%s/device", dir);
	from_file(o, "pci_vendor", pci, "vendor");
	from_file(o, "pci_device", pci, "device");
	from_file(o, "pcie_speed", pci, "current_link_speed");
	from_file(o, "pcie_width", pci, "current_link_width");
	from_file(o, "numa_node", pci, "numa_node");
	return o;
}

/* `speed`: the file in a NIC's folder that has its speed; `key`: the member that it becomes. */
static void add_nics(json_t *list, const char *class, const char *key, const char *speed)
{
	char own[512];
	DIR *dir = opendir(class);
	struct dirent *e;
	json_t *nic;

	while (dir && (e = readdir(dir))) {
		if (*e->d_name == '.' || strcmp(e->d_name, "lo") == 0 ||
		    strcmp(e->d_name, "bonding_masters") == 0 || json_array_size(list) == 64)
			continue;
		nic = report_nic(e->d_name);
		json_object_set_new(nic, "name", json_string(e->d_name));
		snprintf(own, sizeof(own), "%s/%s", class, e->d_name);
		from_file(nic, key, own, speed);
		json_array_append_new(list, nic);
	}
	if (dir)
		closedir(dir);
}

/* -- the host ----------------------------------------------------------------------------- */

/* NCCL's library may take long to load, or crash: it is loaded in a process of its own. */
static void nccl_version(void *unused, int fd)
{
	void *dl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL), *at;
	int (*get)(int *ret), v = 0;

	(void)unused;
	at = dl ? dlsym(dl, "ncclGetVersion") : NULL;
	memcpy(&get, &at, sizeof(at));
	if (at && get(&v) == 0 && v >= 10000)
		dprintf(fd, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
	_exit(0);
}

static void add_nccl(json_t *o)
{
	struct child c;

	if (child_start(&c, nccl_version, NULL) != 0)
		return;
	child_finish(&c, NCCL_MS);
	child_end(&c);
	set(o, "nccl", c.text);
	child_free(&c);
}

static void add_governor(json_t *o)
{
	from_file(o, "governor", "/sys/devices/system/cpu/cpu0/cpufreq", "scaling_governor");
	from_file(o, "smt", "/sys/devices/system/cpu/smt", "active");
	from_file(o, "numa_nodes", "/sys/devices/system/node", "online");
}

json_t *report_inventory(void)
{
	json_t *o = json_object(), *nics = json_array();
	char name[256] = "?", load[LINE];
	struct utsname u;

	gethostname(name, sizeof(name) - 1);
	set(o, "name", name);
	if (uname(&u) == 0) {
		set(o, "kernel", u.release);
		set(o, "machine", u.machine);
	}
	from_list(o, "system", "/etc/os-release", "PRETTY_NAME");
	from_list(o, "cpu", "/proc/cpuinfo", "model name");
	json_object_set_new(o, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
	from_list(o, "memory", "/proc/meminfo", "MemTotal");
	add_governor(o);
	line_of(load, "/proc", "loadavg");
	load[strcspn(load, " ")] = '\0';
	set(o, "load", load);
	from_list(o, "gpu_driver", "/proc/driver/nvidia/version", "NVRM version");
	set(o, "braid", PACKAGE_VERSION);
	add_nccl(o);
	add_nics(nics, "/sys/class/net", "speed_mbps", "speed");
	add_nics(nics, "/sys/class/infiniband", "rate", "ports/1/rate");
	json_object_set_new(o, "nics", nics);
	return o;
}
