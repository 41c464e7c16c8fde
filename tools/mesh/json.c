/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - the report as JSON (docs/user/mesh.md). */
#include <jansson.h>
#include <string.h>

#include "tools/mesh/mesh.h"
#include "tools/report/report.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

/* A text that is not known is null. */
static json_t *text_json(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static json_t *hosts_json(const struct mesh_report *r)
{
	json_t *list = json_array();
	int i;

	for (i = 0; i < r->n; i++) {
		const struct mesh_host *h = &r->hosts[i];

		json_array_append_new(list, json_pack(
			"{s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:o}", "name", h->name, "address",
			text_json(h->address), "host", text_json(h->host), "kernel",
			text_json(h->kernel), "nic", text_json(h->nic), "side", text_json(h->side),
			"speed_mbps", h->speed_mbps, "error", text_json(h->why)));
	}
	return list;
}

static json_t *pair_json(const struct mesh_report *r, int from, int to)
{
	static const char *const states[] = { [MESH_OPEN] = "not-measured",
					      [MESH_DONE] = "measured", [MESH_FAILED] = "failed" };
	const struct mesh_cell *c = mesh_cell(r, from, to);
	int a = from < to ? from : to, b = from < to ? to : from;
	bool done = c->state == MESH_DONE;

	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "from",
			 r->hosts[from].name, "to", r->hosts[to].name, "state",
			 states[c->state], "bandwidth", done ? json_real(c->bytes_s) : json_null(),
			 "latency", done ? json_real(c->latency_s) : json_null(),
			 "latency_least", done && c->least_s > 0 ? json_real(c->least_s) :
			 json_null(),
			 "resent", done ? json_real(c->resent) : json_null(),
			 "cpu_share", done ? json_real(c->cpu) : json_null(),
			 "error", text_json(r->why[(size_t)a * (size_t)r->n + (size_t)b]));
}

static json_t *pairs_json(const struct mesh_report *r)
{
	json_t *list = json_array();
	int i, j;

	for (i = 0; i < r->n; i++)
		for (j = 0; j < r->n; j++)
			if (i != j)
				json_array_append_new(list, pair_json(r, i, j));
	return list;
}

/* The hosts of a finding; of a side, its groups one after the other. */
static json_t *who_json(const struct mesh_report *r, const struct mesh_finding *f, int which)
{
	json_t *list = json_array();
	int i;

	for (i = 0; i < r->n; i++)
		if (f->kind == MESH_SIDE ? r->group[i] == which : i == which)
			json_array_append_new(list, json_string(r->hosts[i].name));
	return list;
}

static json_t *finding_json(const struct mesh_report *r, const struct mesh_finding *f)
{
	static const char *const ways[] = { [MESH_BOTH] = "both", [MESH_SENDS] = "sends",
					    [MESH_RECEIVES] = "receives" };

	return json_pack("{s:s, s:s, s:o, s:o, s:f, s:f, s:f, s:s, s:s}", "kind",
			 mesh_kind_names[f->kind], "way", ways[f->way], "hosts",
			 who_json(r, f, f->a), "with", who_json(r, f, f->b), "value", f->value,
			 "others", f->others, "resent", f->resent, "text", f->text, "next",
			 f->next);
}

json_t *mesh_json(const struct mesh_report *r)
{
	json_t *found = json_array(), *o;
	int i;

	for (i = 0; i < r->nfound; i++)
		json_array_append_new(found, finding_json(r, &r->found[i]));
	o = json_pack("{s:s, s:s, s:o, s:I, s:f, s:f, s:b, s:{s:f, s:f}, s:o, s:o, s:o}",
		      "schema", "braid-mesh-1", "braid", PACKAGE_VERSION, "over",
		      text_json(r->over), "size", (json_int_t)r->size, "seconds", r->seconds,
		      "took", r->took_s, "complete",
		      r->done == r->pairs && !r->stopped, "median", "bandwidth", r->bytes_s,
		      "latency", r->latency_s, "hosts", hosts_json(r), "pairs", pairs_json(r),
		      "findings", found);
	report_stamp(o);
	return o;
}
