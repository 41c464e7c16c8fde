/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report.h - a command's JSON as a page for people: HTML or Markdown.
 *
 * Every command builds its JSON first, and the page is made from that alone.  So a page shows the
 * numbers of the JSON, and `braid report FILE.json` makes the same page later and elsewhere.
 */
#ifndef BRAID_TOOLS_REPORT_REPORT_H
#define BRAID_TOOLS_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>

struct report_to {			/* the options of a command; all zero: no page */
	const char *html, *markdown;	/* files; "-" is standard output; NULL: none */
	bool anonymize;
};

/* Rows of a command's option table (tools/opt.h). */
#define REPORT_OPTIONS(to) \
	{OPT_OUTPUT, "html", "FILE", "also write a page to look at; -: to stdout", &(to).html, 0, \
	 0}, \
	{OPT_OUTPUT, "markdown", "FILE", "the same for a ticket; -: to stdout", &(to).markdown, 0, \
	 0}, \
	{OPT_FLAG, "anonymize", NULL, "without names and addresses of hosts, in files too", \
	 &(to).anonymize, 0, 0}

/* Does a page go to standard output?  Then nothing else may. */
bool report_is_stdout(const struct report_to *to);

/*
 * Complete `doc`, a command's JSON: when (UTC) and by which command line it was made, and on what
 * kind of host, where the document does not say so itself.
 */
void report_stamp(json_t *doc);
void report_command(int argc, char **argv);	/* main() calls this once */

/* Replace names and addresses of hosts and users in all strings; equal ones stay equal. */
void report_anonymize(json_t *doc);

/* Write the JSON itself to `path`, "-" for standard output.  0, or 2 after one line on stderr. */
int report_json(const char *prog, const char *path, const json_t *doc);
/* Write the pages asked for.  0; 2 after one line on stderr (`prog`: what it starts with). */
int report_pages(const char *prog, const struct report_to *to, const json_t *doc);
/* Is the JSON needed, for a file or a page?  `json`: the file that --json names, or NULL. */
bool report_is_wanted(const struct report_to *to, const char *json);
/* Anonymize `doc` if that is asked for; write it to `json` unless that is NULL, and the pages. */
int report_write(const char *prog, const struct report_to *to, const char *json, json_t *doc);

/* This host: kernel, processor, governor, NUMA nodes, NICs with driver and firmware, versions. */
json_t *report_inventory(void);
/* A NIC by the name of an interface or an RDMA device ("mlx5_0:1"): what /sys and ethtool say. */
json_t *report_nic(const char *name);

#endif
