/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nodes.c - `braid doctor --nodes FILE`: how hosts differ, and which differences matter.
 *
 * Each line of FILE is a saved report (`braid doctor --json`), or a host that is queried by ssh,
 * many at a time.  The checks' facts are compared; the value that most hosts have counts as right.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/doctor/doctor.h"
#include "tools/opt.h"
#include "tools/text.h"

enum { NODES_MAX = 4096, AT_ONCE = 32, SSH_MS = 20000 };

/* What a difference means: the first row whose name the fact begins with. */
static const struct {
	const char *fact;
	enum level level;
	const char *why;
} rows[] = {
	{ "plugin devices", LEVEL_WARN, "Ranks have different numbers of NICs" },
	{ "plugin", LEVEL_FAIL, "Ranks with different plugins can't talk to each other" },
	{ "nccl would use", LEVEL_FAIL, "Ranks on different transports can't talk to each other" },
	{ "nccl", LEVEL_FAIL, "NCCL refuses ranks of another version" },
	{ "braid", LEVEL_WARN, "Different versions of Braid may refuse each other" },
	{ "mtu ", LEVEL_FAIL, "Large packets are lost where sizes differ: connections stall" },
	{ "env NCCL_DEBUG", LEVEL_NOTE, "Hosts log differently" },
	{ "env NCCL_HOSTID", LEVEL_OK, "It is meant to differ" },
	{ "env ", LEVEL_WARN,
	  "Ranks choose algorithms and transports differently: a job may hang" },
	{ "gid index ", LEVEL_NOTE, "One NCCL_IB_GID_INDEX is not right for all" },
	{ "rate ", LEVEL_WARN, "The slowest sets the pace" },
	{ "rdma ports active", LEVEL_WARN, "A host has fewer rails than others" },
	{ "interfaces", LEVEL_WARN,
	  "Names and numbers of interfaces differ: see NCCL_SOCKET_IFNAME" },
	{ "memlock", LEVEL_WARN, "Registrations fail on some hosts" },
	{ "secret", LEVEL_FAIL, "Ranks without the secret of the job are refused" },
	{ "gpu memory", LEVEL_WARN, "GPUDirect works on some hosts only" },
	{ "nvidia driver", LEVEL_WARN, "Hosts with different drivers are hard to reason about" },
	{ "firmware ", LEVEL_WARN, "Cards that behave differently are hard to reason about" },
	{ "", LEVEL_NOTE, "It may explain why one host is slower" },
};

struct node {
	char *name;			/* as in FILE */
	json_t *report;			/* NULL: `error` says why */
	char error[TEXT_LEN];
	struct child child;		/* ssh */
	long long until;
	bool asked, file;
};

struct nodes {
	unsigned n;
	struct node *node;
	bool refused;			/* its report can't be understood */
};

/* -- reports ------------------------------------------------------------------------------ */

/* Takes over the reference to o, which may be NULL. */
static void accept(struct nodes *all, struct node *node, json_t *o, const char *otherwise)
{
	const char *schema = json_string_value(json_object_get(o, "schema"));

	if (schema && strcmp(schema, "braid-doctor-1") == 0 &&
	    json_is_object(json_object_get(o, "facts"))) {
		json_object_set(json_object_get(o, "facts"), "braid", json_object_get(o, "braid"));
		node->report = o;
		return;
	}
	if (schema && strncmp(schema, "braid-doctor-", 13) == 0)
		snprintf(node->error, sizeof(node->error),
			 "is of schema %.40s, and this braid knows braid-doctor-1", schema);
	else if (o)
		snprintf(node->error, sizeof(node->error), "is no report of braid doctor --json");
	else
		snprintf(node->error, sizeof(node->error), "%s", otherwise);
	all->refused |= o != NULL;
	json_decref(o);
}

static void load(struct nodes *all, struct node *node)
{
	json_error_t err;
	json_t *o = json_load_file(node->name, 0, &err);

	node->file = true;
	if (!o)
		all->refused = true;
	accept(all, node, o, err.text);
}

static void run_ssh(void *arg, int fd)
{
	char *host = arg;

	dup2(fd, STDOUT_FILENO);
	execlp("ssh", "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", host, "braid",
	       "doctor", "--json", (char *)NULL);
	_exit(127);
}

static void ssh_over(struct nodes *all, struct node *node)
{
	char why[TEXT_LEN] = "ssh: ";
	bool late = node->child.fd >= 0;
	json_t *o;

	child_end(&node->child);
	if (late)
		snprintf(why, sizeof(why), "no answer within %d s", SSH_MS / 1000);
	else
		child_fate(&node->child, why + strlen(why), sizeof(why) - strlen(why));
	o = node->child.len ? json_loadb(node->child.text, node->child.len, 0, NULL) : NULL;
	child_free(&node->child);
	accept(all, node, o, why);
}

/* Query a window of hosts at a time, reading from each in turn for a short while. */
static void run_all(struct nodes *all)
{
	unsigned first = 0, running = 0, next = 0;

	while (next < all->n || running) {
		for (; next < all->n && running < AT_ONCE; next++) {
			struct node *node = &all->node[next];

			if (strchr(node->name, '/') || access(node->name, F_OK) == 0) {
				load(all, node);
			} else if (child_start(&node->child, run_ssh, node->name) < 0) {
				snprintf(node->error, sizeof(node->error), "ssh can't be started");
			} else {
				node->until = child_now() + SSH_MS;
				node->asked = true;
				running++;
			}
		}
		for (unsigned i = first; i < next; i++) {
			struct node *node = &all->node[i];

			if (!node->asked)
				continue;
			child_read(&node->child, 10);
			if (node->child.fd >= 0 && child_now() < node->until)
				continue;
			node->asked = false;
			running--;
			ssh_over(all, node);
		}
		while (first < next && !all->node[first].asked)
			first++;
	}
}

/* -- differences -------------------------------------------------------------------------- */

static const char *host_of(const struct node *node)
{
	const char *s = json_string_value(json_object_get(node->report, "host"));

	return s && node->file ? s : node->name;
}

/* [{"value": "9000", "hosts": ["n1", "n2"]}, ...], most hosts first; one row: all agree. */
static json_t *values_of(const struct nodes *all, const char *fact)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < all->n; i++) {
		const struct node *node = &all->node[i];
		json_t *row = NULL;
		const char *value;
		size_t k;

		if (!node->report)
			continue;
		value = json_string_value(json_object_get(json_object_get(node->report, "facts"),
							  fact));
		value = value ? value : "(none)";
		json_array_foreach(list, k, row) {
			if (strcmp(json_string_value(json_object_get(row, "value")), value) == 0)
				break;
		}
		if (k == json_array_size(list)) {
			row = json_pack("{s:s, s:[]}", "value", value, "hosts");
			json_array_append_new(list, row);
		}
		json_array_append_new(json_object_get(row, "hosts"), json_string(host_of(node)));
		while (k && json_array_size(json_object_get(row, "hosts")) >
		       json_array_size(json_object_get(json_array_get(list, k - 1), "hosts"))) {
			json_incref(row);
			json_array_remove(list, k);
			json_array_insert_new(list, --k, row);
		}
	}
	return list;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of all hosts' facts, sorted; free the array, the strings are the reports'. */
static const char **facts_of(const struct nodes *all, size_t *ret_n)
{
	json_t *seen = json_object(), *value;
	const char **list, *key;
	size_t n = 0;

	for (unsigned i = 0; i < all->n; i++)
		json_object_update(seen, json_object_get(all->node[i].report, "facts"));
	list = calloc(json_object_size(seen) + 1, sizeof(*list));
	for (unsigned i = 0; list && i < all->n; i++) {
		json_object_foreach(json_object_get(all->node[i].report, "facts"), key, value) {
			if (json_object_get(seen, key)) {
				list[n++] = key;
				json_object_del(seen, key);
			}
		}
	}
	json_decref(seen);
	if (list)
		qsort(list, n, sizeof(*list), by_text);
	*ret_n = n;
	return list;
}

static json_t *differences(const struct nodes *all)
{
	json_t *by_level[LEVELS], *ret = json_array();
	const char **facts;
	size_t n;

	for (unsigned l = 0; l < LEVELS; l++)
		by_level[l] = json_array();
	facts = facts_of(all, &n);
	for (size_t i = 0; facts && i < n; i++) {
		json_t *values = values_of(all, facts[i]);
		unsigned r = 0;

		while (strncmp(facts[i], rows[r].fact, strlen(rows[r].fact)) != 0)
			r++;
		if (json_array_size(values) > 1 && rows[r].level > LEVEL_OK)
			json_array_append_new(by_level[rows[r].level],
					      json_pack("{s:s, s:s, s:s, s:O}", "fact", facts[i],
							"level", level_name(rows[r].level), "why",
							rows[r].why, "values", values));
		json_decref(values);
	}
	free(facts);
	for (unsigned l = LEVELS; l-- > 0; ) {
		json_array_extend(ret, by_level[l]);
		json_decref(by_level[l]);
	}
	return ret;
}

/* The checks that failed at a host. */
static json_t *failing(const json_t *report)
{
	json_t *list = json_array(), *c;
	size_t i;

	json_array_foreach(json_object_get(report, "checks"), i, c) {
		if (level_of(json_string_value(json_object_get(c, "level"))) == LEVEL_FAIL)
			json_array_append(list, json_object_get(c, "id"));
	}
	return list;
}

static json_t *compare(const struct nodes *all)
{
	json_t *hosts = json_array();

	for (unsigned i = 0; i < all->n; i++) {
		const struct node *node = &all->node[i];

		json_array_append_new(hosts, node->report ?
			json_pack("{s:s, s:s, s:o}", "host", host_of(node), "source", node->name,
				  "fails", failing(node->report)) :
			json_pack("{s:s, s:s, s:s}", "host", node->name, "source", node->name,
				  "error", node->error));
	}
	return json_pack("{s:s, s:o, s:o}", "schema", "braid-doctor-nodes-1", "hosts", hosts,
			 "differences", differences(all));
}

/* -- the text ----------------------------------------------------------------------------- */

/* Print "a, b and 30 more", cut to the line. */
static void print_hosts(const json_t *list, int used)
{
	enum { LINE = 72 };
	size_t n = json_array_size(list), i;

	for (i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (i && used + (int)strlen(s) > LINE) {
			printf(" and %zu more", n - i);
			break;
		}
		used += printf("%s%s", i ? ", " : "", s);
	}
	putchar('\n');
}

static void print_difference(const json_t *diff)
{
	enum level level = level_of(json_string_value(json_object_get(diff, "level")));
	static const enum colour colours[LEVELS] = { [LEVEL_NOTE] = COLOUR_HINT,
						     [LEVEL_WARN] = COLOUR_WARN,
						     [LEVEL_FAIL] = COLOUR_BAD };
	json_t *row;
	size_t i;

	printf("%s%-4s%s  %s\n", text_colour(colours[level]), level_name(level),
	       text_colour(COLOUR_NONE), json_string_value(json_object_get(diff, "fact")));
	json_array_foreach(json_object_get(diff, "values"), i, row) {
		int used = printf("      %-20s  ",
				  json_string_value(json_object_get(row, "value")));

		print_hosts(json_object_get(row, "hosts"), used);
	}
	text_wrap(json_string_value(json_object_get(diff, "why")), 6, 0);
	putchar('\n');
}

static void print(const json_t *doc)
{
	json_t *x;
	size_t i, good = 0;

	json_array_foreach(json_object_get(doc, "hosts"), i, x) {
		good += !json_object_get(x, "error");
	}
	printf("%zu of %zu hosts compared\n\n", good,
	       json_array_size(json_object_get(doc, "hosts")));
	json_array_foreach(json_object_get(doc, "differences"), i, x) {
		print_difference(x);
	}
	if (!json_array_size(json_object_get(doc, "differences")))
		puts("They do not differ.\n");
	json_array_foreach(json_object_get(doc, "hosts"), i, x) {
		const json_t *fails = json_object_get(x, "fails");
		int used;

		if (!json_array_size(fails))
			continue;
		used = printf("%s fails: ", json_string_value(json_object_get(x, "host")));
		print_hosts(fails, used);
	}
}

/* -- the command -------------------------------------------------------------------------- */

static int read_names(const char *path, struct nodes *ret)
{
	FILE *f = fopen(path, "re");
	char line[PATH_LEN];

	if (!f)
		return opt_error("braid doctor", "%s: %s", path, strerror(errno));
	ret->node = calloc(NODES_MAX, sizeof(*ret->node));
	while (ret->node && ret->n < NODES_MAX && fgets(line, sizeof(line), f)) {
		char *name = line + strspn(line, " \t");

		name[strcspn(name, " \t\r\n#")] = '\0';
		if (*name)
			ret->node[ret->n++].name = strdup(name);
	}
	fclose(f);
	return ret->n >= 2 ? 0 :
	       opt_error("braid doctor", "%s: two lines at least, each a saved report or a host",
			 path);
}

int doctor_nodes(const struct options *w)
{
	struct nodes all = { .n = 0 };
	int rc = read_names(w->nodes, &all);
	json_t *doc, *x;
	size_t i;

	if (rc == 0) {
		run_all(&all);
		doc = compare(&all);
		if (w->json) {
			json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
			putchar('\n');
		} else {
			print(doc);
		}
		json_array_foreach(json_object_get(doc, "differences"), i, x) {
			if (level_of(json_string_value(json_object_get(x, "level"))) >=
			    (w->strict ? LEVEL_WARN : LEVEL_FAIL))
				rc = 1;
		}
		for (unsigned k = 0; k < all.n; k++) {
			if (!all.node[k].error[0])
				continue;
			rc = opt_fail("braid doctor", "[host-not-asked]", "%s: %s",
				      all.node[k].name, all.node[k].error);
		}
		if (all.refused)
			rc = 2;
		json_decref(doc);
	}
	for (unsigned k = 0; k < all.n; k++) {
		free(all.node[k].name);
		json_decref(all.node[k].report);
	}
	free(all.node);
	return rc;
}
