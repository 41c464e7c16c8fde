/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.c - `fabric COMMAND...` says a command to the fake NICs of this environment and prints
 * what came of it: tests/fake/ctl.h.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/fake/ctl.h"

int main(int argc, char **argv)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);
	long (*ctl)(const char *cmd);
	char cmd[256] = "";
	void *at;
	long n;

	at = lib ? dlsym(lib, "braid_fake_ctl") : NULL;
	if (!at) {
		fprintf(stderr, "fabric: %s\n", dlerror());
		return 1;
	}
	memcpy(&ctl, &at, sizeof(ctl));
	for (int i = 1; i < argc; i++)
		snprintf(cmd + strlen(cmd), sizeof(cmd) - strlen(cmd), " %s", argv[i]);
	n = ctl(cmd);
	printf("%ld\n", n);
	return n < 0;
}
