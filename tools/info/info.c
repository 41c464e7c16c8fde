/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info.c - `braid info`: what a plugin offers on this machine, and Braid's parameters.
 *
 * The plugin is queried through its ABI (plugin.c), so the command works for any NCCL net plugin;
 * the parameters are Braid's own.  Facts go into one JSON document, from which the text is printed.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tools/cmd.h"
#include "tools/conf.h"
#include "tools/info/info.h"
#include "tools/opt.h"
#include "tools/proxy.h"
#include "tools/smc.h"
#include "tools/text.h"

#ifdef HAVE_RDMA
#define USED "UCX is used if BRAID_TRANSPORTS names it"
#else
#define USED "this build uses neither of the first two"
#endif

/* -- the parameters ----------------------------------------------------------------------- */

static const void *const values[] = {
#define P_INT(name, ...) &braid_param.name,
#define P_SIZE(name, ...) &braid_param.name,
#define P_STR(name, ...) braid_param.name,
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
};

static json_t *param_json(const struct braid_param_row *row, const void *value)
{
	char now[BRAID_PARAM_STR_MAX], range[100], def[BRAID_PARAM_STR_MAX];

	snprintf(now, sizeof(now), "%s", row->type == BRAID_PARAM_STR ? (const char *)value : "");
	snprintf(def, sizeof(def), "%s", row->def);
	if (row->type != BRAID_PARAM_STR) {
		braid_param_format(row, *(const int64_t *)value, now, sizeof(now));
		braid_param_format(row, strtoll(row->def, NULL, 10), def, sizeof(def));
	}
	braid_param_range(row, range, sizeof(range));
	return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s}", "name", row->name, "value", now,
			 "default", def, "range", range, "fallback", row->fallback, "help",
			 row->help);
}

static json_t *params_json(void)
{
	json_t *list = json_array();
	unsigned i;

	for (i = 0; i < braid_param_count; i++)
		json_array_append_new(list, param_json(&braid_param_rows[i], values[i]));
	return list;
}

/* -- the text ----------------------------------------------------------------------------- */

static const char *text_or_dash(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "-";
}

static long long number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void print_list(const char *head, const json_t *list, const char *before,
		       const char *between)
{
	json_t *x;
	size_t i;

	printf("%s", head);
	json_array_foreach(list, i, x) {
		if (i)
			printf("%s", between);
		if (json_is_integer(x))
			printf("%s%lld", before, (long long)json_integer_value(x));
		else
			printf("%s", json_string_value(x));
	}
	putchar('\n');
}

static void print_device(const json_t *d)
{
	const json_t *transports = json_object_get(d, "transports");

	printf("\ndevice %lld     %s\n", number_of(d, "index"), text_or_dash(d, "name"));
	printf("  address    %s\n", text_or_dash(d, "address"));
	if (json_array_size(transports))
		print_list("  transports ", transports, "", ", ");
	printf("  speed      %g Gbit/s\n", (double)number_of(d, "speed_mbps") / 1000);
	printf("  PCI        %s\n", text_or_dash(d, "pci_path"));
	printf("  guid       %s, port %lld\n", text_or_dash(d, "guid"), number_of(d, "port"));
	print_list("  memory     ", json_object_get(d, "memory"), "", " ");
	printf("  limits     %lld comms, %lld receives in one, %lld MiB a message\n",
	       number_of(d, "max_comms"), number_of(d, "max_recvs"),
	       number_of(d, "max_p2p_bytes") >> 20);
}

static void print_plugin(const json_t *doc)
{
	const json_t *p = json_object_get(doc, "plugin"), *list = json_object_get(p, "devices");
	json_t *x;
	size_t i;

	printf("plugin     %s\n", text_or_dash(p, "path"));
	printf("name       %s\n", text_or_dash(p, "name"));
	json_array_foreach(json_object_get(doc, "conf"), i, x)
		printf("%s %s=%s (%s:%lld)\n", i ? "          " : "set       ",
		       text_or_dash(x, "name"), text_or_dash(x, "value"), text_or_dash(x, "file"),
		       number_of(x, "line"));
	print_list("ABI        ", json_object_get(p, "abis"), "v", " ");
	printf("           asked through v%lld; DMA-BUF registration %s, NIC fusion %s\n",
	       number_of(p, "abi"), json_is_true(json_object_get(p, "dmabuf")) ? "yes" : "no",
	       json_is_true(json_object_get(p, "fusion")) ? "yes" : "no");
	if (json_array_size(json_object_get(p, "rma_abis")))
		print_list("RMA ABI    ", json_object_get(p, "rma_abis"), "v", " ");
	else
		puts("RMA ABI    none");
	json_array_foreach(json_object_get(p, "notes"), i, x)
		printf("%s %s\n", i ? "          " : "notes     ", json_string_value(x));
	if (json_is_string(json_object_get(p, "warning")))
		printf("warning    %s\n", text_or_dash(p, "warning"));
	if (json_array_size(list) == 0)
		puts("\nno devices");
	json_array_foreach(list, i, x)
		print_device(x);
	putchar('\n');
	smc_print(json_object_get(doc, "smc"));
	puts("\noptional libraries on this host; " USED);
	json_array_foreach(json_object_get(doc, "libraries"), i, x)
		printf("  %-16s  %-27s %s\n", text_or_dash(x, "name"), text_or_dash(x, "for"),
		       json_is_true(json_object_get(x, "found")) ? "found" :
		       strstr(text_or_dash(x, "why"), "No such file") ? "not installed" :
		       text_or_dash(x, "why"));
}

static void print_params(const json_t *doc)
{
	const json_t *p;
	char name[64];
	size_t i, c;

	puts("");
	json_array_foreach(json_object_get(doc, "params"), i, p) {
		snprintf(name, sizeof(name), "BRAID_%s", text_or_dash(p, "name"));
		for (c = 0; name[c]; c++)
			if (name[c] >= 'a' && name[c] <= 'z')
				name[c] = (char)(name[c] - 'a' + 'A');
		printf("%s = %s\n", name,
		       *text_or_dash(p, "value") ? text_or_dash(p, "value") : "(empty)");
		printf("        default %s, %s",
		       *text_or_dash(p, "default") ? text_or_dash(p, "default") : "(empty)",
		       text_or_dash(p, "range"));
		if (json_is_string(json_object_get(p, "fallback")))
			printf("; else %s", text_or_dash(p, "fallback"));
		putchar('\n');
		text_wrap(text_or_dash(p, "help"), 8, 0);
	}
}

/* -- the command -------------------------------------------------------------------------- */

struct options {
	const char *plugin, *peer;
	int abi;
	bool params, json, verbose;
};

static json_t *conf_lines;

static void conf_line(const char *name, const char *value, const char *file, unsigned line)
{
	json_array_append_new(conf_lines, json_pack("{s:s, s:s, s:s, s:i}", "name", name, "value",
						    braid_param_hides(name) ? "(hidden)" : value,
						    "file", file, "line", (int)line));
}

static int info(const struct options *w)
{
	char err[INFO_ERR] = "";
	json_t *doc, *plugin, *peer;
	int bad;

	/* In a job NCCL does this, before the plugin reads its parameters. */
	conf_lines = json_array();
	conf_apply(conf_line);
	bad = braid_param_load();

	net_log_verbose(w->verbose);
	plugin = info_plugin(w->plugin, w->abi, err);
	if (!plugin)
		return opt_fail("braid info", "[no-plugin]", "%s", err);
	doc = json_pack("{s:s, s:o, s:o, s:o, s:o}", "schema", "braid-info-1", "plugin", plugin,
			"smc", smc_json(), "libraries", info_libraries(), "params",
			params_json());
	json_object_set_new(doc, "conf", conf_lines);
	peer = w->peer ? info_peer(plugin, w->peer, err) : NULL;
	if (w->peer && !peer) {
		json_decref(doc);
		return opt_fail("braid info", "[no-such-host]", "%s", err);
	}
	if (peer)
		json_object_set_new(doc, "peer", peer);
	if (peer && !w->json) {
		info_peer_print(peer);
	} else if (w->json) {
		json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
		putchar('\n');
	} else {
		print_plugin(doc);
		if (w->params)
			print_params(doc);
	}
	json_decref(doc);
	return bad ? 1 : 0;
}

int cmd_info(int argc, char **argv)
{
	struct options w = { .abi = 0 };
	const struct opt rows[] = {
		{OPT_TEXT, "peer", "HOST", "by which addresses devices would go there, in order",
		 &w.peer, 0, 0},
		{OPT_FLAG, "params", NULL, "every parameter: its value now, default, range",
		 &w.params, 0, 0},
		{OPT_FLAG, "json", NULL, "everything as JSON", &w.json, 0, 0},
		{OPT_TEXT, "plugin", "PATH", "any NCCL net plugin's .so", &w.plugin, 0, 0},
		{OPT_INT, "abi", "V", "ask through this ABI version (the newest)", &w.abi,
		 NET_ABI_OLDEST, NET_ABI_NEWEST},
		{OPT_FLAG, "verbose", NULL, "print what the plugin logs", &w.verbose, 0, 0},
		OPT_SUCH_AS("braid info", "devices, transports, and why an RDMA port is not used"),
		OPT_SUCH_AS("braid info --peer node2", "which addresses would be used, and why"),
		OPT_SUCH_AS("BRAID_TRANSPORTS=tcp braid info --params",
			    "what a job with this variable would have"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid info", "What the plugin offers on this machine.", rows, argc,
			argv);
	if (end != OPT_RUN)
		return end;
	return plugin_find("braid info", &w.plugin) ? 1 : info(&w);
}
