/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.c - `braid stat --metrics`: the metrics of every process of this host as one text.
 *
 * Each process answers with its own text, in the format of Prometheus.  A metric may have one
 * heading only, so the samples of all processes are put together under it.  Answers are not
 * trusted: a line that is no heading or sample of a metric of Braid's is left out.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/opt.h"
#include "tools/text.h"
#include "tools/watch/process.h"
#include "tools/watch/stat.h"

enum { METRICS_MAX = 64, NAME_LEN = 64 };

struct metric {
	char name[NAME_LEN];		/* of its samples */
	char type[16], help[200];
	char *samples;			/* whole lines */
	size_t len;
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
	snprintf(x->type, sizeof(x->type), "untyped");
	x->f = open_memstream(&x->samples, &x->len);
	m->n += x->f != NULL;
	return x->f ? x : NULL;
}

/* Is it NAME{LABELS} NUMBER, with every quote closed?  Then *ret_name is how long NAME is. */
static bool is_sample(const char *line, size_t *ret_name)
{
	const char *s = line;
	bool quoted = false;
	char *end;

	while (islower((unsigned char)*s) || *s == '_')
		s++;
	*ret_name = (size_t)(s - line);
	if (*s++ != '{')
		return false;
	for (; *s && (quoted || *s != '}'); s++) {
		if (*s == '\\' && s[1])
			s++;
		else if (*s == '"')
			quoted = !quoted;
	}
	if (*s != '}' || s[1] != ' ')
		return false;
	strtod(s + 2, &end);
	return end > s + 2 && !*end;
}

static void add_line(struct metrics *m, char *line)
{
	char name[NAME_LEN], rest[200];
	struct metric *x;
	size_t len;

	if (sscanf(line, "# TYPE %63s %15[a-z]", name, rest) == 2) {
		x = metric_of(m, name, strlen(name));
		if (x)
			snprintf(x->type, sizeof(x->type), "%.15s", rest);
	} else if (sscanf(line, "# HELP %63s %199[^\n]", name, rest) == 2) {
		x = metric_of(m, name, strlen(name));
		if (x)
			snprintf(x->help, sizeof(x->help), "%s", rest);
	} else if (is_sample(line, &len)) {
		x = metric_of(m, line, len);
		if (x)
			fprintf(x->f, "%s\n", line);
	}
}

static void add_text(struct metrics *m, char *text)
{
	char *save = NULL;

	for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save))
		add_line(m, s);
}

/* A process that is stopped, or hangs, is the one that is looked for. */
static void add_silent(struct metrics *m, const struct process *p)
{
	char line[400], host[256] = "?";

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, "\"\\\n")] = '\0';
	snprintf(line, sizeof(line), "# TYPE braid_up gauge");
	add_line(m, line);
	snprintf(line, sizeof(line), "# HELP braid_up The process answers.");
	add_line(m, line);
	snprintf(line, sizeof(line), "braid_up{host=\"%s\",pid=\"%d\"} 0", host, (int)p->pid);
	add_line(m, line);
}

/* OpenMetrics names the family of a counter without the end of its samples' name. */
static void print(struct metrics *m, bool openmetrics, FILE *to)
{
	for (unsigned i = 0; i < m->n; i++) {
		struct metric *x = &m->of[i];
		int len = (int)strlen(x->name);

		fclose(x->f);
		if (openmetrics && strcmp(x->type, "counter") == 0 && len > 6 &&
		    strcmp(x->name + len - 6, "_total") == 0)
			len -= 6;
		if (x->len) {
			fprintf(to, "# HELP %.*s %s\n", len, x->name, x->help);
			fprintf(to, "# TYPE %.*s %s\n%s", len, x->name, openmetrics && !*x->help ?
				"unknown" : x->type, x->samples);
		}
		free(x->samples);
	}
	if (openmetrics)
		fputs("# EOF\n", to);
}

int metrics_show(const char *prog, const char *dir, const char *pid, bool openmetrics,
		 const char *file)
{
	static struct process p[PROCESSES_MAX];
	static char err[PROCESSES_MAX][PROCESS_ERR];
	static char *texts[PROCESSES_MAX];
	static struct metrics m;
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
		if (texts[i]) {
			text_clean(texts[i], strlen(texts[i]) + 1, "\n");
			add_text(&m, texts[i]);
		} else if (*err[i] && !strstr(err[i], "another user's")) {
			add_silent(&m, &p[i]);
		}
		free(texts[i]);
	}
	to = opt_create(prog, file ? file : "-");
	if (!to)
		return 2;
	print(&m, openmetrics, to);
	return file ? opt_finish(prog, file, to, true) : 0;
}
