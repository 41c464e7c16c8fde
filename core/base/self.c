/* SPDX-License-Identifier: BSD-3-Clause */
/* self.c - see self.h. */
#include "core/base/self.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/os.h"
#include "topo/sys.h"

struct braid_self braid_self;

/* A number for this boot of this host, and for the network namespace; 0: unknown. */
static uint16_t place(void)
{
	uint64_t hash = 0xcbf29ce484222325u;	/* FNV-1a */
	char text[128] = "";
	struct stat st = { 0 };
	size_t len;

	if (!braid_sys_line("/proc/sys/kernel/random/boot_id", text, 64) ||
	    stat("/proc/self/ns/net", &st))
		return 0;
	len = strlen(text);
	snprintf(text + len, sizeof(text) - len, " %llu", (unsigned long long)st.st_ino);
	for (const char *p = text; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
	hash ^= hash >> 32;
	hash ^= hash >> 16;
	return (uint16_t)hash ? (uint16_t)hash : 1;
}

int braid_self_init(void)
{
	int err = braid_os->random(braid_self.process, sizeof(braid_self.process));

	if (err)
		return err;
	braid_self.pid = (uint32_t)getpid();
	if (gethostname(braid_self.host, sizeof(braid_self.host) - 1))
		strcpy(braid_self.host, "unknown");
	braid_self.place = place();
	return 0;
}
