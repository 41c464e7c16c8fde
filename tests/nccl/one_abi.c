/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * one_abi.c - the plugin that BRAID_TEST_PLUGIN names, offering one version of the ABI alone, ABI.
 * Built by abi.sh, once for each version.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TABLE JOIN(ncclNetPlugin_v, ABI)

/* A table's size in bytes, from version 6 on. */
static const size_t sizes[] = { 136, 152, 152, 160, 160, 176, 176 };

__attribute__((visibility("default"))) void *TABLE[22];

__attribute__((constructor)) static void take(void)
{
	const char *path = getenv("BRAID_TEST_PLUGIN");
	void *lib = path ? dlopen(path, RTLD_NOW) : NULL;
	void *table = lib ? dlsym(lib, TEXT(TABLE)) : NULL;

	if (table)
		memcpy(TABLE, table, sizes[ABI - 6]);
	else
		fprintf(stderr, "%s has no %s\n", path ? path : "BRAID_TEST_PLUGIN", TEXT(TABLE));
}
