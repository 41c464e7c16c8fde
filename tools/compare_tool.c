/* SPDX-License-Identifier: BSD-3-Clause */
/* compare_tool.c - other programs as references. */
#include "tools/compare.h"
void cmp_tools_find(struct cmp_report *rep, bool here) { (void)rep, (void)here; }
bool cmp_tool_fits(const struct cmp_tool *tool, enum perf_pattern pattern, uint64_t size)
{ (void)tool, (void)pattern, (void)size; return false; }
int cmp_tool_measure(const struct cmp_way *way, enum perf_pattern pattern, uint64_t size,
		     double seconds, double *v, char *err)
{ (void)way, (void)pattern, (void)size, (void)seconds, (void)v, (void)err; return -1; }
