/* SPDX-License-Identifier: BSD-3-Clause */
/* machine_cpu.c - the kind of CPU, and whether it runs under a hypervisor. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/machine_int.h"
#include "topo/sys.h"

enum { CPUINFO_LEN = 16384 };

/* The value of "key : value" at the head of /proc/cpuinfo. */
static bool cpuinfo(const char *text, const char *key, char *ret, size_t len)
{
	size_t key_len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		const char *value = line += *line == '\n';

		if (strncmp(line, key, key_len) != 0)
			continue;
		value += key_len + strspn(value + key_len, " \t");
		if (*value != ':')
			continue;
		value += 1 + strspn(value + 1, " \t");
		snprintf(ret, len, "%.*s", (int)strcspn(value, "\n"), value);
		return true;
	}
	return false;
}

/* On x86 a hypervisor shows as a CPU flag, and Xen as a directory in /sys. */
static bool has_flag(const char *flags)
{
	const char *word = strstr(flags, "hypervisor");

	return word && (word == flags || word[-1] == ' ') && (word[10] == ' ' || !word[10]);
}

void braid_machine_cpu(struct braid_machine *m, const char *root)
{
	char path[PATH_MAX + 32], text[CPUINFO_LEN], value[CPUINFO_LEN];
	struct braid_cpu_kind *cpu = &m->cpu;

	snprintf(path, sizeof(path), "%s/sys/hypervisor/type", root);
	m->is_virtual = braid_sys_line(path, text, sizeof(text));
	snprintf(path, sizeof(path), "%s/proc/cpuinfo", root);
	if (braid_sys_read(path, text, sizeof(text)) < 0)
		*text = '\0';
	if (cpuinfo(text, "flags", value, sizeof(value)) && has_flag(value))
		m->is_virtual = true;
	if (cpuinfo(text, "vendor_id", cpu->vendor, sizeof(cpu->vendor)))
		cpu->arch = "x86_64";
	else
		cpu->arch = cpuinfo(text, "cpu", value, sizeof(value)) ? "ppc64" : "arm64";
	cpu->family = cpuinfo(text, "cpu family", value, sizeof(value)) ? atoi(value) : -1;
	cpu->model = cpuinfo(text, "model", value, sizeof(value)) ? atoi(value) : -1;
}
