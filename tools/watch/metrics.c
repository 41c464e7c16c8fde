/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.c - `braid stat --metrics`: the metrics of every process of this host as one text.
 *
 * Each process answers with its own text, in the format of Prometheus.  A metric may have one
 * heading only, so the samples of all processes are put together under it; those of a histogram's
 * buckets, sum and count under the histogram's.  Answers are not trusted: a line that is no heading
 * or sample of a metric of Braid's is left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/launchers.h"
#include "tools/opt.h"
#include "tools/text.h"
#include "tools/watch/process.h"
#include "tools/watch/stat.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz_"

enum { METRICS_MAX = 64, NAME_LEN = 64, LABELS_MAX = 12, PID_LEN = 32 };

struct metric {
	char name[NAME_LEN];		/* of its samples */
	char type[16], help[200];
	char *samples;			/* whole lines */
	size_t len;
	size_t begun;			/* where the samples of the present process begin */
	FILE *f;
};

struct metrics {
	struct metric of[METRICS_MAX];
	unsigned n;
};

static struct metric *metric_of(struct metrics *m, const char *name, size_t len)
{
	struct metric *x;

	if (strncmp(name, "braid_", 6) != 0 || len >= NAME_LEN)
		return NULL;
	for (unsigned i = 0; i < m->n; i++)
		if (strlen(m->of[i].name) == len && memcmp(m->of[i].name, name, len) == 0)
			return &m->of[i];
	if (m->n == METRICS_MAX)
		return NULL;
	x = &m->of[m->n];
	snprintf(x->name, sizeof(x->name), "%.*s", (int)len, name);
	x->f = open_memstream(&x->samples, &x->len);
	m->n += x->f != NULL;
	return x->f ? x : NULL;
}

/*
 * The metric of a sample: of x_bucket, x_sum and x_count that is x, if x is a histogram.  NULL: a
 * histogram has no sample of its own name.
 */
static struct metric *metric_of_sample(struct metrics *m, const char *name)
{
	static const char *const ends[] = { "_bucket", "_sum", "_count" };
	size_t len = strlen(name);

	for (unsigned k = 0; k < sizeof(ends) / sizeof(ends[0]); k++) {
		size_t stem = len - strlen(ends[k]);

		if (len <= strlen(ends[k]) || strcmp(name + stem, ends[k]) != 0)
			continue;
		for (unsigned i = 0; i < m->n; i++)
			if (strcmp(m->of[i].type, "histogram") == 0 &&
			    strlen(m->of[i].name) == stem &&
			    memcmp(m->of[i].name, name, stem) == 0)
				return &m->of[i];
	}
	for (unsigned i = 0; i < m->n; i++)
		if (strcmp(m->of[i].name, name) == 0 && strcmp(m->of[i].type, "histogram") == 0)
			return NULL;
	return metric_of(m, name, len);
}

/* The end of a label's value, at its quote; NULL: it has none, or an escape is unknown. */
static char *value_end(char *s)
{
	for (; *s && *s != '"'; s++) {
		if (*s == '\\' && !strchr("\\\"n", *++s))
			return NULL;
		if (!*s)
			return NULL;
	}
	return *s ? s : NULL;
}

static bool is_number(const char *s)
{
	size_t digits = strspn(s, "0123456789");

	if (digits && s[digits] == '.')
		digits += 1 + strspn(s + digits + 1, "0123456789");
	return digits && !s[digits];
}

/* A sample, cut out of its line: NAME{LABEL="VALUE",...} NUMBER. */
struct sample {
	char *name, *number;
	char *label[LABELS_MAX];	/* LABEL="VALUE" */
	unsigned n;
};

/* Take the label at s, and return where it ends; NULL: there is none, or it is there twice. */
static char *cut_label(char *s, struct sample *ret)
{
	size_t len = strspn(s, LETTERS);
	char *end = len && s[len] == '=' && s[len + 1] == '"' ? value_end(s + len + 2) : NULL;

	if (!end || (end[1] != ',' && end[1] != '}') || ret->n == LABELS_MAX)
		return NULL;
	for (unsigned i = 0; i < ret->n; i++)
		if (strncmp(ret->label[i], s, len + 1) == 0)
			return NULL;
	ret->label[ret->n++] = s;
	return end + 1;
}

static bool cut_sample(char *line, struct sample *ret)
{
	char *s = line + strspn(line, LETTERS);

	*ret = (struct sample){ .name = line };
	if (*s != '{')
		return false;
	while (*s != '}') {
		*s = '\0';
		s = cut_label(s + 1, ret);
		if (!s)
			return false;
	}
	*s = '\0';
	ret->number = s + 2;
	return s[1] == ' ' && is_number(ret->number);
}

static int by_label(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The name, and the labels in one order, as text to be freed; NULL: there is no memory. */
static char *series_of(struct sample *s)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	qsort(s->label, s->n, sizeof(s->label[0]), by_label);
	fputs(s->name, f);
	for (unsigned i = 0; i < s->n; i++)
		fprintf(f, "%c%s", i ? ',' : '{', s->label[i]);
	fputs("} ", f);
	fclose(f);
	return text;
}

/*
 * Add a sample unless the process has given it before.  Its PID is replaced by the one that this
 * command takes: a container has PIDs of its own, and a process may have the plugin twice.
 */
static void add_sample(struct metrics *m, struct sample *s, const char *pid)
{
	struct metric *x = metric_of_sample(m, s->name);
	char own[PID_LEN + 8], *text;

	snprintf(own, sizeof(own), "pid=\"%s\"", pid);
	for (unsigned i = 0; i < s->n; i++)
		if (strncmp(s->label[i], "pid=", 4) == 0)
			s->label[i] = s->label[--s->n];
	if (!x || s->n == LABELS_MAX)
		return;
	s->label[s->n++] = own;
	text = series_of(s);
	fflush(x->f);
	if (text && !(x->begun < x->len && strstr(x->samples + x->begun, text)))
		fprintf(x->f, "%s%s\n", text, s->number);
	free(text);
}

/* The first heading counts.  A backslash would begin an escape. */
static void add_heading(struct metrics *m, const char *name, const char *type, char *help)
{
	bool plain = !name[strspn(name, LETTERS)];
	struct metric *x = plain ? metric_of(m, name, strlen(name)) : NULL;

	if (!x)
		return;
	if (type && !*x->type && (strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
				  strcmp(type, "histogram") == 0))
		snprintf(x->type, sizeof(x->type), "%s", type);
	for (char *s = help; s && *s; s++)
		if (*s == '\\')
			*s = '?';
	if (help && !*x->help)
		snprintf(x->help, sizeof(x->help), "%s", help);
}

static void add_line(struct metrics *m, char *line, const char *pid)
{
	char name[NAME_LEN], rest[200];
	struct sample s;

	if (sscanf(line, "# TYPE %63s %15[a-z]", name, rest) == 2)
		add_heading(m, name, rest, NULL);
	else if (sscanf(line, "# HELP %63s %199[^\n]", name, rest) == 2)
		add_heading(m, name, NULL, rest);
	else if (cut_sample(line, &s))
		add_sample(m, &s, pid);
}

static void add_text(struct metrics *m, char *text, const char *pid)
{
	char *save = NULL;

	for (unsigned i = 0; i < m->n; i++) {
		fflush(m->of[i].f);
		m->of[i].begun = m->of[i].len;
	}
	for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save))
		add_line(m, s, pid);
}

/* -- a process that does not answer ----------------------------------------------------------- */

static void put_label(FILE *f, const char *label, const char *value)
{
	fprintf(f, "%s=\"", label);		/* as the process itself prints it */
	for (unsigned i = 0; *value && i < BRAID_LABEL_LEN - 1; i++, value++)
		fprintf(f, *value == '"' || *value == '\\' ? "\\%c" : "%c",
			*value < ' ' || *value > '~' ? '?' : *value);
	fputs("\",", f);
}

/* The first of these variables that is set in `env` and says something, as a label. */
static void put_variable(FILE *f, const char *label, const char *env, size_t len,
			 const char *const *names)
{
	for (; *names; names++) {
		size_t n = strlen(*names);

		for (const char *s = env; s < env + len; s += strlen(s) + 1) {
			if (strncmp(s, *names, n) == 0 && s[n] == '=' && s[n + 1] &&
			    strcmp(s + n + 1, BRAID_NO_JOB) != 0) {
				put_label(f, label, s + n + 1);
				return;
			}
		}
	}
}

static size_t environment(pid_t pid, char *ret, size_t len)
{
	char path[64];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	f = fopen(path, "re");
	n = f ? fread(ret, 1, len - 1, f) : 0;
	ret[n] = '\0';
	if (f)
		fclose(f);
	return n;
}

/* Its labels are as if it had answered: the same series becomes 0. */
static void add_silent(struct metrics *m, const struct process *p, const char *pid)
{
	static const char *const jobs[] = { BRAID_JOB_VARS, NULL };
	static const char *const ranks[] = { BRAID_RANK_VARS, NULL };
	static const char *const hosts[] = { "HOSTNAME", NULL };
	static char env[128 << 10];
	char host[256] = "?", *text = NULL;
	size_t len = 0, size = environment(p->pid, env, sizeof(env));
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	gethostname(host, sizeof(host) - 1);
	fputs("# TYPE braid_up gauge\n# HELP braid_up The process answers.\nbraid_up{", f);
	put_variable(f, "job_id", env, size, jobs);
	put_variable(f, "rank", env, size, ranks);
	if (process_is_apart(p->pid, "uts"))		/* as containers have it */
		put_variable(f, "host", env, size, hosts);
	else
		put_label(f, "host", host);
	fputs("pid=\"\"} 0\n", f);
	if (fclose(f) == 0)
		add_text(m, text, pid);
	free(text);
}

/* -- all of them ------------------------------------------------------------------------------ */

/* A counter's samples end in _total: OpenMetrics names the family without that. */
static void print_metric(const struct metric *x, bool openmetrics, FILE *to)
{
	int len = (int)strlen(x->name), stem = len - 6;
	bool total = stem > 0 && strcmp(x->name + stem, "_total") == 0;
	const char *type = openmetrics ? "unknown" : "untyped";

	if (*x->type && total == (strcmp(x->type, "counter") == 0))
		type = x->type;
	if (openmetrics && strcmp(type, "counter") == 0)
		len = stem;
	fprintf(to, "# HELP %.*s %s\n", len, x->name, x->help);
	fprintf(to, "# TYPE %.*s %s\n%s", len, x->name, type, x->samples);
}

static void print(struct metrics *m, bool openmetrics, FILE *to)
{
	for (unsigned i = 0; i < m->n; i++) {
		fclose(m->of[i].f);
		if (m->of[i].samples && (*m->of[i].help || m->of[i].len))
			print_metric(&m->of[i], openmetrics, to);
		free(m->of[i].samples);
	}
	if (openmetrics)
		fputs("# EOF\n", to);
}

/* The PID as this command takes it: its own one here, and .n for a second plugin. */
static void name_of(const struct process *p, char ret[PID_LEN])
{
	const char *file = strrchr(p->path, '/'), *copy = file ? strchr(file, '.') : NULL;

	snprintf(ret, PID_LEN, "%d%.8s", (int)p->pid, copy ? copy : "");
}

/* Has the list that process before, by another path? */
static bool is_again(const struct process *p, size_t i)
{
	char name[PID_LEN], other[PID_LEN];

	name_of(&p[i], name);
	for (size_t k = i; k > 0 && p[k - 1].pid == p[i].pid; k--) {
		name_of(&p[k - 1], other);
		if (strcmp(name, other) == 0)
			return true;
	}
	return false;
}

int metrics_show(const char *prog, const char *dir, const char *pid, bool openmetrics,
		 const char *file)
{
	static struct process p[PROCESSES_MAX];
	static char err[PROCESSES_MAX][PROCESS_ERR];
	static char *texts[PROCESSES_MAX];
	static struct metrics m;
	char name[PID_LEN];
	FILE *to;
	size_t n = 1;

	if (pid && process_find(dir, pid, &p[0], err[0]))
		return opt_error(prog, "%s", err[0]);
	if (!pid)
		n = process_list(dir, p, PROCESSES_MAX);
	process_texts(p, n, "metrics", texts, err);
	if (pid && !texts[0])
		return opt_error(prog, "process %s %s", pid, err[0]);
	for (size_t i = 0; i < n; i++) {
		name_of(&p[i], name);
		if (texts[i] && !is_again(p, i)) {
			text_clean(texts[i], strlen(texts[i]) + 1, "\n");
			add_text(&m, texts[i], name);
		} else if (!texts[i] && *err[i] && !strstr(err[i], "another user's") &&
			   !is_again(p, i)) {
			add_silent(&m, &p[i], name);
		}
		free(texts[i]);
	}
	to = opt_create(prog, file ? file : "-");
	if (!to)
		return 2;
	print(&m, openmetrics, to);
	return file ? opt_finish(prog, file, to, true) : 0;
}
