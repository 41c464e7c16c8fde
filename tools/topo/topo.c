/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo.c - `braid topo`: how near GPUs and NICs are, and which NICs a GPU should use.
 *
 * The matrix is that of `nvidia-smi topo -m`; NVLink is shown where hwloc knows it.
 */
#include "config.h"
#include "tools/report/report.h"
#include "tools/topo/topo.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "topo/choose.h"

enum { CPUS_TEXT = 1024, WORDS = 8192 };

/* The number of rows of the matrix: GPUs first, then NICs. */
static unsigned places(const struct braid_machine *m)
{
	return m->n_gpus + m->n_nics;
}

static void place_name(const struct braid_machine *m, unsigned i, char *ret, size_t len)
{
	if (i < m->n_gpus)
		snprintf(ret, len, "GPU%u", i);
	else
		snprintf(ret, len, "NIC%u", i - m->n_gpus);
}

static enum braid_distance between(const struct braid_machine *m, unsigned a, unsigned b)
{
	unsigned n = m->n_gpus;

	if (a >= n)
		return b >= n ? braid_machine_nic_nic(m, a - n, b - n) :
				braid_machine_gpu_nic(m, b, a - n);
	return b >= n ? braid_machine_gpu_nic(m, a, b - n) : braid_machine_gpu_gpu(m, a, b);
}

/* The CPUs near a place and its NUMA node, "-" where unknown; several for a bond. */
static void place_near(const struct braid_machine *m, unsigned i, char *cpus, char *numa)
{
	struct braid_cpus all = { .bits = { 0 } }, more;
	const int *spots = i < m->n_gpus ? &m->gpus[i].spot : m->nics[i - m->n_gpus].spots;
	unsigned n = i < m->n_gpus ? 1 : m->nics[i - m->n_gpus].n_spots;
	int node = -1;

	for (unsigned k = 0; k < n && spots[k] >= 0; k++) {
		braid_machine_cpus(m, spots[k], &more);
		braid_cpus_add(&all, &more);
		if (k && m->spots[spots[k]].numa != node)
			node = -1;
		else
			node = m->spots[spots[k]].numa;
	}
	snprintf(cpus, CPUS_TEXT, "-");
	if (!braid_cpus_empty(&all))
		braid_cpus_format(&all, cpus, CPUS_TEXT);
	snprintf(numa, 16, "-");
	if (node >= 0)
		snprintf(numa, 16, "%d", node);
}

/* -- the table ---------------------------------------------------------------------------- */

static int widest_cpus(const struct braid_machine *m)
{
	char cpus[CPUS_TEXT], numa[16];
	int most = (int)strlen("CPU affinity");

	for (unsigned i = 0; i < places(m); i++) {
		place_near(m, i, cpus, numa);
		if ((int)strlen(cpus) > most)
			most = (int)strlen(cpus);
	}
	return most;
}

static void print_matrix(const struct braid_machine *m)
{
	char name[16], cpus[CPUS_TEXT], numa[16];
	int width = widest_cpus(m);

	printf("%-6s", "");
	for (unsigned i = 0; i < places(m); i++) {
		place_name(m, i, name, sizeof(name));
		printf("%-4s ", name);
	}
	printf("%-*s NUMA\n", width, "CPU affinity");
	for (unsigned a = 0; a < places(m); a++) {
		place_name(m, a, name, sizeof(name));
		printf("%-5s ", name);
		for (unsigned b = 0; b < places(m); b++) {
			place_name(m, b, name, sizeof(name));
			printf("%-*s ", (int)strlen(name), braid_distance_name(between(m, a, b)));
		}
		place_near(m, a, cpus, numa);
		printf("%-*s %s\n", width, cpus, numa);
	}
}

/* Explain the words that occur in the matrix. */
static void print_legend(const struct braid_machine *m)
{
	bool seen[BRAID_DISTANCES] = { false };

	for (unsigned a = 0; a < places(m); a++)
		for (unsigned b = 0; b < places(m); b++)
			seen[between(m, a, b)] = true;
	puts("");
	for (unsigned d = 0; d < BRAID_DISTANCES; d++)
		if (seen[d])
			printf("  %-4s  %s\n", braid_distance_name(d), braid_distance_words(d));
}

static const char *maker(const struct braid_gpu *gpu)
{
	return gpu->vendor == 0x10de ? "NVIDIA" : "AMD";
}

/* Print ", 0000:03:00.0", and the PCIe link if it runs below what the device can. */
static void print_spot(const struct braid_spot *s, const char *before)
{
	printf("%s%s", before, s->name);
	if (braid_machine_is_slower(s))
		printf(" (PCIe %g of %g GT/s)", s->now.gts, s->most.gts);
	if (braid_machine_is_narrower(s))
		printf(" (PCIe x%u of x%u)", s->now.width, s->most.width);
}

static void print_nic(const struct braid_machine *m, unsigned i)
{
	static const char *const carriers[] = { [BRAID_CARRIER_UNKNOWN] = "",
						[BRAID_CARRIER_UP] = "",
						[BRAID_CARRIER_DOWN] = ", down" };
	const struct braid_nic *nic = &m->nics[i];

	printf("  NIC%-2u  %s", i, nic->name);
	if (*nic->netdev && strcmp(nic->netdev, nic->name) != 0)
		printf(" (%s)", nic->netdev);
	if (nic->speed_mbps)
		printf(", %g Gbit/s", (double)nic->speed_mbps / 1000);
	fputs(carriers[nic->carrier], stdout);
	if (nic->bond)
		printf(", a bond");
	if (nic->virtual_function)
		printf(", a virtual function");
	for (unsigned k = 0; k < nic->n_spots; k++)
		print_spot(&m->spots[nic->spots[k]], k ? " + " : ", ");
	putchar('\n');
}

static void print_gpu(const struct braid_machine *m, unsigned i)
{
	const struct braid_gpu *gpu = &m->gpus[i];

	printf("  GPU%-2u  %s, ", i, maker(gpu));
	if (gpu->spot < 0)
		putchar('?');
	else
		print_spot(&m->spots[gpu->spot], "");
	putchar('\n');
}

static void print_table(const struct braid_machine *m)
{
	print_matrix(m);
	print_legend(m);
	puts("");
	for (unsigned i = 0; i < m->n_gpus; i++)
		print_gpu(m, i);
	if (!m->n_gpus)
		puts("  no GPU");
	for (unsigned i = 0; i < m->n_nics; i++)
		print_nic(m, i);
	if (!m->n_nics)
		puts("  no NIC");
	puts("");
	if (!m->has_nvlink)
		puts("NVLink is not shown: this host does not report it.");
	for (unsigned i = 0; i < m->n_notes; i++)
		printf("Note: %s.\n", m->notes[i]);
}

/* -- JSON --------------------------------------------------------------------------------- */

static json_t *near_json(const struct braid_machine *m, unsigned i)
{
	char name[16], cpus[CPUS_TEXT], numa[16];
	json_t *o = json_object(), *row = json_object();

	for (unsigned k = 0; k < places(m); k++) {
		place_name(m, k, name, sizeof(name));
		json_object_set_new(row, name, json_string(braid_distance_name(between(m, i, k))));
	}
	place_name(m, i, name, sizeof(name));
	place_near(m, i, cpus, numa);
	json_object_set_new(o, "id", json_string(name));
	json_object_set_new(o, "numa", *numa == '-' ? json_null() : json_integer(atoi(numa)));
	json_object_set_new(o, "cpus", *cpus == '-' ? json_null() : json_string(cpus));
	json_object_set_new(o, "distance", row);
	return o;
}

static json_t *pci_json(const struct braid_machine *m, const int *spots, unsigned n)
{
	json_t *list = json_array();

	for (unsigned k = 0; k < n && spots[k] >= 0; k++)
		json_array_append_new(list, json_string(m->spots[spots[k]].name));
	return list;
}

static json_t *gpu_json(const struct braid_machine *m, unsigned n_gpus, unsigned i)
{
	json_t *o = near_json(m, i), *list = json_array();
	struct braid_choice c;

	json_object_set_new(o, "vendor", json_string(maker(&m->gpus[i])));
	json_object_set_new(o, "pci", pci_json(m, &m->gpus[i].spot, 1));
	if (i < n_gpus) {
		braid_choose(m, n_gpus, i, &c);
		for (unsigned k = 0; k < c.n; k++)
			json_array_append_new(list, json_string(m->nics[c.nics[k]].name));
	}
	json_object_set_new(o, "uses", list);
	return o;
}

static json_t *nic_json(const struct braid_machine *m, unsigned i)
{
	const struct braid_nic *nic = &m->nics[i];
	json_t *o = near_json(m, m->n_gpus + i);

	json_object_set_new(o, "name", json_string(nic->name));
	json_object_set_new(o, "netdev", *nic->netdev ? json_string(nic->netdev) : json_null());
	json_object_set_new(o, "rdma", json_boolean(nic->rdma));
	json_object_set_new(o, "port", json_integer(nic->port));
	json_object_set_new(o, "up", nic->carrier == BRAID_CARRIER_UNKNOWN ? json_null() :
			    json_boolean(nic->carrier == BRAID_CARRIER_UP));
	json_object_set_new(o, "speed_mbps",
			    nic->speed_mbps ? json_integer(nic->speed_mbps) : json_null());
	json_object_set_new(o, "bond", json_boolean(nic->bond));
	json_object_set_new(o, "virtual_function", json_boolean(nic->virtual_function));
	json_object_set_new(o, "pci", pci_json(m, nic->spots, nic->n_spots));
	return o;
}

static json_t *machine_json(const struct braid_machine *m, unsigned n_gpus)
{
	json_t *gpus = json_array(), *nics = json_array(), *notes = json_array();

	for (unsigned i = 0; i < m->n_gpus; i++)
		json_array_append_new(gpus, gpu_json(m, n_gpus, i));
	for (unsigned i = 0; i < m->n_nics; i++)
		json_array_append_new(nics, nic_json(m, i));
	for (unsigned i = 0; i < m->n_notes; i++)
		json_array_append_new(notes, json_string(m->notes[i]));
	return json_pack("{s:s, s:b, s:o, s:o, s:o}", "schema", "braid-topo-1", "virtual",
			 m->is_virtual, "gpus", gpus, "nics", nics, "notes", notes);
}

/* -- the command -------------------------------------------------------------------------- */

struct options {
	const char *explain, *root, *hwloc;
	int gpus;
	bool json, svg, xml;
	struct report_to page;
};

/* Find "3", "GPU3" or "0000:07:00.0"; -1: there is none. */
static int gpu_find(const struct braid_machine *m, const char *text)
{
	char *end;
	long i;

	for (unsigned k = 0; k < m->n_gpus; k++) {
		if (m->gpus[k].spot >= 0 && !strcasecmp(m->spots[m->gpus[k].spot].name, text))
			return (int)k;
	}
	if (!strncasecmp(text, "GPU", 3))
		text += 3;
	i = strtol(text, &end, 10);
	return *text && !*end && i >= 0 && i < (long)m->n_gpus ? (int)i : -1;
}

static int explain(const struct braid_machine *m, const struct options *w, unsigned n_gpus)
{
	struct braid_choice c;
	char words[WORDS];
	int gpu = gpu_find(m, w->explain);

	if (gpu < 0)
		return opt_fail("braid topo", "[no-gpu]", "there is no GPU '%s'; this host has %u",
				w->explain, m->n_gpus);
	if ((unsigned)gpu >= n_gpus)
		return opt_fail("braid topo", "[no-gpu]", "GPU%d is not among the first %u", gpu,
				n_gpus);
	braid_choose(m, n_gpus, (unsigned)gpu, &c);
	braid_choice_explain(m, (unsigned)gpu, &c, words, sizeof(words));
	fputs(words, stdout);
	return 0;
}

#ifdef HAVE_HWLOC
static int read_hwloc(const char *file, struct braid_machine **ret)
{
	bool live = strcmp(file, "live") == 0;
	int err = topo_hwloc(live ? NULL : file, ret);

	if (err == -EINVAL)
		return opt_error("braid topo", "%s: hwloc can't read this", file);
	return err ? opt_error("braid topo", "%s: %s", file, strerror(-err)) : 0;
}
#else
static int read_hwloc(const char *file, struct braid_machine **ret)
{
	(void)file;
	(void)ret;
	return opt_error("braid topo", "--hwloc: this braid was built without hwloc");
}
#endif

static int read_machine(const struct options *w, struct braid_machine **ret)
{
	int err;

	if (w->hwloc)
		return read_hwloc(w->hwloc, ret);
	err = braid_machine_read(w->root, ret);
	if (err)
		opt_fail("braid topo", "[cannot-read]", "%s/sys: %s", w->root, strerror(-err));
	return !!err;
}

static void add_picture(json_t *doc, const struct braid_machine *m)
{
	char *picture = NULL;
	size_t len;
	FILE *f = open_memstream(&picture, &len);

	if (!f)
		return;
	topo_svg(m, f);
	fclose(f);
	json_object_set_new(doc, "picture", json_string(picture));
	free(picture);
}

/* The JSON, and the pages, which also have the picture. */
static int write_doc(const struct braid_machine *m, unsigned n_gpus, const struct options *w)
{
	json_t *doc = machine_json(m, n_gpus), *plain;
	int rc = 0;

	if (*w->root || w->hwloc)	/* it is another host, and was recorded */
		json_object_set_new(doc, "host", json_null());
	report_stamp(doc);
	if (report_is_wanted(&w->page, NULL))
		add_picture(doc, m);
	if (w->page.anonymize)
		report_anonymize(doc);
	if (w->json) {
		plain = json_copy(doc);
		json_object_del(plain, "picture");
		rc = report_json("braid topo", "-", plain);
		json_decref(plain);
	}
	rc |= report_pages("braid topo", &w->page, doc);
	json_decref(doc);
	return rc;
}

static int topo(const struct options *w)
{
	struct braid_machine *m;
	int rc = read_machine(w, &m);
	unsigned n_gpus;

	if (rc)
		return rc;
	n_gpus = w->gpus && (unsigned)w->gpus < m->n_gpus ? (unsigned)w->gpus : m->n_gpus;
	if (w->explain)
		rc = explain(m, w, n_gpus);
	else if (w->json || report_is_stdout(&w->page))
		;
	else if (w->xml)
		topo_xml(m);
	else if (w->svg)
		topo_svg(m, stdout);
	else
		print_table(m);
	if (report_is_wanted(&w->page, w->json ? "-" : NULL))
		rc |= write_doc(m, n_gpus, w);
	braid_machine_free(m);
	return rc;
}

int cmd_topo(int argc, char **argv)
{
	struct options w = { .root = "" };
	const struct opt rows[] = {
		{OPT_TEXT, "explain", "GPU", "which NICs this GPU should use, and why", &w.explain,
		 0, 0},
		{OPT_INT, "gpus", "N", "as if only the first N GPUs were used", &w.gpus, 1,
		 BRAID_MACHINE_GPUS},
		{OPT_FLAG, "json", NULL, "everything as JSON", &w.json, 0, 0},
		{OPT_FLAG, "svg", NULL, "a picture of the PCI tree", &w.svg, 0, 0},
		{OPT_FLAG, "xml", NULL, "a topology for NCCL_TOPO_FILE", &w.xml, 0, 0},
		{OPT_TEXT, "root", "DIR", "read DIR/sys, recorded elsewhere", &w.root, 0, 0},
		REPORT_OPTIONS(w.page),
		{OPT_TEXT, "hwloc", "FILE", "read hwloc's XML; 'live': this machine by hwloc",
		 &w.hwloc, 0, 0},
		OPT_SUCH_AS("braid topo", "the matrix"),
		OPT_SUCH_AS("braid topo --explain 3", "which NICs GPU 3 should use, and why"),
		OPT_SUCH_AS("braid topo --xml >topo.xml", "a file for NCCL_TOPO_FILE"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid topo", "How near GPUs and NICs are to each other.", rows, argc,
			argv);
	if (end != OPT_RUN)
		return end;
	if (!!w.explain + w.json + w.svg + w.xml > 1)
		return opt_error("braid topo", "one of --explain, --json, --svg and --xml");
	if (w.hwloc && *w.root)
		return opt_error("braid topo", "one of --hwloc and --root");
	return topo(&w);
}
