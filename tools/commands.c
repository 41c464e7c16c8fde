/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commands.c - the table of subcommands: what main() runs, `braid help` lists, and the manual page
 * and the shells' completion are made of.
 */

#include "tools/cmd.h"

static int completion(int argc, char **argv)
{
	return cmd_completion(&commands, argc, argv);
}

static const struct command rows[] = {
	{"demo", cmd_demo, "A training step's communication on this machine, checked and timed"},
	{"perf", cmd_perf, "Measure latency, bandwidth, rate and set-up, also of raw TCP"},
	{"compare", cmd_compare, "Which transport wins at which size, measured in turn"},
	{"mesh", cmd_mesh, "All pairs of many hosts: a map, and which host or path is odd"},
	{"info", cmd_info, "What the plugin offers here, and every parameter"},
	{"topo", cmd_topo, "How near GPUs and NICs are, and which a GPU should use"},
	{"smc", cmd_smc, "What the kernel's SMC has and lacks"},
	{"smc setup", cmd_smc, "Add what SMC lacks"},
	{"doctor", cmd_doctor, "What is wrong with this host, or between hosts, and what mends it"},
	{"stat", cmd_stat, "Which processes have Braid loaded, and the counters of one"},
	{"dump", cmd_dump, "What a process waits for: its messages, and the last events"},
	{"top", cmd_top, "What processes carry, second by second"},
	{"validate", cmd_validate, "Does a plugin keep its promises here, or between two hosts"},
	{"report", cmd_report, "A page for people, of the JSON that another command wrote"},
	{"diff", cmd_diff, "What has changed between two reports, and whether that is chance"},
	{"completion", completion, "A script by which a shell completes these words"},
};

const struct commands commands = { rows, sizeof(rows) / sizeof(rows[0]) };
