/* SPDX-License-Identifier: BSD-3-Clause */
/* page_topo.c - a page of braid topo: the PCI tree, and how near each GPU is to each NIC. */
#include <string.h>

#include "tools/report/page.h"
#include "tools/text.h"

/* NCCL's names for a distance, the nearest first, as `braid topo` explains them. */
static const char *const distances[] = { "X", "NV", "PIX", "PXB", "C2C", "PHB", "NODE", "SYS" };

static double nearness(const char *distance)
{
	enum { N = sizeof(distances) / sizeof(distances[0]) };

	for (size_t i = 0; i < N; i++)
		if (strncmp(distance, distances[i], strlen(distances[i])) == 0)
			return 1 - (double)i / (N - 1);
	return -1;
}

static bool uses(const json_t *gpu, const char *nic)
{
	json_t *x;
	size_t i;

	json_array_foreach(json_object_get(gpu, "uses"), i, x)
		if (strcmp(json_string_value(x), nic) == 0)
			return true;
	return false;
}

static void near_part(json_t *page, const json_t *gpus, const json_t *nics)
{
	json_t *part = page_part(page, "How near GPUs and NICs are"), *chart, *table, *row;
	json_t *gpu, *nic;
	char heads[2048] = "GPU|vendor|uses";
	size_t i, k;

	if (!json_array_size(gpus) || !json_array_size(nics)) {
		page_say(part, "This host has %zu GPUs and %zu NICs.", json_array_size(gpus),
			 json_array_size(nics));
		return;
	}
	page_say(part, "The stronger the colour, the nearer; a frame marks the NICs that the GPU "
		 "should use.");
	chart = page_heat(part, "GPU by NIC", "GPU", "NIC");
	json_array_foreach(nics, k, nic)
		if (strlen(heads) + 64 < sizeof(heads))
			strncat(strcat(heads, "|"), text_of(nic, "id"), 60);
	table = page_table(part, "The same as a table", heads, true);
	json_array_foreach(gpus, i, gpu) {
		char list[400] = "";

		row = page_row(table);
		page_members(row, gpu, "id|vendor");
		json_array_foreach(json_object_get(gpu, "uses"), k, nic)
			if (strlen(list) + 64 < sizeof(list))
				strncat(strcat(list, k ? " " : ""), json_string_value(nic), 60);
		page_text(row, list);
		json_array_foreach(nics, k, nic) {
			const json_t *far = json_object_get(gpu, "distance");
			const char *d = text_of(far, text_of(nic, "id"));

			page_cell(chart, text_of(gpu, "id"), text_of(nic, "id"), nearness(d), d,
				  uses(gpu, text_of(nic, "name")));
			page_text(row, d);
		}
	}
}

static void nic_part(json_t *page, const json_t *nics)
{
	json_t *table, *row, *nic;
	size_t i;

	if (!json_array_size(nics))
		return;
	table = page_table(page_part(page, "NICs"), "",
			   "NIC|name|interface|port|Mbit/s|link|NUMA|PCI", false);
	json_array_foreach(nics, i, nic) {
		const json_t *up = json_object_get(nic, "up");

		row = page_row(table);
		page_members(row, nic, "id|name|netdev|port|speed_mbps");
		page_mood(row, json_is_false(up) ? "bad" : "",
			  json_is_true(up) ? "up" : json_is_false(up) ? "down" : "not known");
		page_number(row, json_object_get(nic, "numa"));
		page_text(row, json_string_value(json_array_get(json_object_get(nic, "pci"), 0)));
	}
}

json_t *page_of_topo(const json_t *doc)
{
	json_t *page = page_new("braid topo"), *x;
	size_t i;

	json_array_foreach(json_object_get(doc, "notes"), i, x)
		page_say(page, "Note: %s.", json_string_value(x));
	near_part(page, json_object_get(doc, "gpus"), json_object_get(doc, "nics"));
	nic_part(page, json_object_get(doc, "nics"));
	if (*text_of(doc, "picture"))
		page_picture(page_part(page, "PCI tree"), "Host bridges, switches, GPUs and NICs",
			     text_of(doc, "picture"));
	return page;
}
