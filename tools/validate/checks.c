/* SPDX-License-Identifier: BSD-3-Clause */
/* checks.c - the table of all checks, in the order in which they run, and which are asked for. */
#include <stdio.h>
#include <string.h>

#include "tools/text.h"
#include "tools/validate/validate.h"

static const struct vcheck *const tables[] = {
	validate_load, validate_props, validate_connect, validate_stranger, validate_data,
	validate_comms, validate_flush, validate_mr, validate_rma_table, validate_rma_group,
	validate_rma_put, validate_rma_signal, validate_rma_order, validate_rma_window,
	validate_rma_fault, validate_path, validate_iwarp, validate_smc, validate_fault,
	validate_outage, validate_heal, validate_scale, validate_perf,
};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

const struct vcheck *validate_at(unsigned i)
{
	for (unsigned t = 0; t < TABLES; t++)
		for (const struct vcheck *c = tables[t]; c->id; c++)
			if (i-- == 0)
				return c;
	return NULL;
}

const char *validate_profile(const struct vcheck *c)
{
	return c->flags & V_FAULT ? "faults" : c->flags & V_FULL ? "full" : "quick";
}

/* Does a comma list name the check itself, not only its group? */
static bool is_listed(const char *list, const char *id)
{
	for (const char *at = list; *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");

		if (strlen(id) == n && strncmp(at, id, n) == 0)
			return true;
		at += n;
	}
	return false;
}

bool validate_is_selected(const struct options *w, const struct vcheck *c)
{
	if ((c->flags & V_FAULT && !w->faults) || (w->only && !findings_named(w->only, c->id)))
		return false;
	if (w->only && is_listed(w->only, c->id))
		return true;
	if (w->profile == PROFILE_SOAK)
		return c->flags & V_SOAK;
	return w->profile == PROFILE_FULL || !(c->flags & V_FULL);
}

bool validate_only_is_valid(const char *only, char *ret, size_t len)
{
	for (const char *at = only; *at; at += strspn(at, ",")) {
		size_t n = strcspn(at, ",");
		const struct vcheck *c;

		snprintf(ret, len, "%.*s", (int)n, at);
		for (unsigned i = 0; (c = validate_at(i)); i++)
			if (findings_named(ret, c->id))
				break;
		if (!c)
			return false;
		at += n;
	}
	return true;
}

void validate_list(void)
{
	const struct vcheck *c;

	for (unsigned i = 0; (c = validate_at(i)); i++) {
		int used = printf("%-20s %-7.*s %-6s ", c->id, (int)strcspn(c->id, "-"), c->id,
				  validate_profile(c));

		text_wrap(c->title, used, used);
	}
}
