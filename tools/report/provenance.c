/* SPDX-License-Identifier: BSD-3-Clause */
/* provenance.c - the last part of each page: how, when and on what its figures were made. */
#include <stdint.h>
#include <string.h>

#include "tools/report/page.h"
#include "tools/text.h"

/* Facts that the page has elsewhere are left out here. */
static bool is_shown(const char *key)
{
	static const char *const not[] = { "nics", "plugin", "environment" };

	for (size_t i = 0; i < sizeof(not) / sizeof(not[0]); i++)
		if (strcmp(key, not[i]) == 0)
			return false;
	return true;
}

static void fact(json_t *table, const char *key, const json_t *value)
{
	char name[64];
	json_t *row;

	if (!json_is_string(value) && !json_is_number(value))
		return;
	snprintf(name, sizeof(name), "%s", key);
	for (char *s = name; *s; s++)
		*s = *s == '_' ? ' ' : *s;
	row = page_row(table);
	page_text(row, name);
	if (json_is_number(value))
		page_number(row, value);
	else
		page_text(row, json_string_value(value));
}

static void host(json_t *part, const json_t *h)
{
	json_t *table = page_table(part, "Host", "of the host|", false), *x;
	const char *key;

	json_object_foreach((json_t *)(uintptr_t)h, key, x)
		if (is_shown(key))
			fact(table, key, x);
	json_object_foreach(json_object_get(h, "environment"), key, x)
		fact(table, key, x);
}

static void nic_row(json_t *table, const char *name, const json_t *nic)
{
	json_t *row = page_row(table);

	page_text(row, name);
	page_members(row, nic, "driver|driver_version|firmware|mtu|speed_mbps|pcie_speed|"
		     "pcie_width|numa_node");
}

static void nics(json_t *part, const json_t *h)
{
	const json_t *devices = json_object_get(json_object_get(h, "plugin"), "devices");
	const json_t *list = json_object_get(h, "nics");
	json_t *table, *x;
	size_t i;

	if (!json_array_size(list) && !json_array_size(devices))
		return;
	table = page_table(part, "NICs", "NIC|driver|version|firmware|MTU|Mbit/s|PCIe|lanes|NUMA",
			   false);
	json_array_foreach(list, i, x)
		nic_row(table, text_of(x, "name"), x);
	json_array_foreach(devices, i, x)
		nic_row(table, text_of(x, "name"), json_object_get(x, "nic"));
}

void page_provenance(json_t *page, const json_t *doc)
{
	static const char *const keys[] = { "date", "command", "seed", "plugin", "braid", "peer" };
	const json_t *h = json_object_get(doc, "host");
	json_t *part = page_part(page, "How and where it was made");
	json_t *table = page_table(part, "", "of the report|", false);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		fact(table, keys[i], json_object_get(doc, keys[i]));
	fact(table, "schema", json_object_get(doc, "schema"));
	if (!json_is_object(h))
		return;
	host(part, h);
	nics(part, h);
}
