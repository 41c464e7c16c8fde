/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hosts.c - HOSTFILE: a host a line, as Open MPI's, with where it is reached and which side it is
 * on; and the report that has room for all pairs of these hosts.
 *
 * Nothing that a remote shell could take for an option or a command gets past here.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mesh/mesh.h"
#include "tools/opt.h"

enum { LINE_MOST = 1000 };

/* -- a report ----------------------------------------------------------------------------- */

int mesh_report_init(struct mesh_report *r, int n)
{
	size_t n2 = (size_t)n * (size_t)n;

	r->n = n;
	r->pairs = n * (n - 1) / 2;
	r->rounds = mesh_rounds(n);
	if (!r->hosts)
		r->hosts = calloc((size_t)n, sizeof(*r->hosts));
	r->cells = calloc(n2, sizeof(*r->cells));
	r->why = calloc(n2, sizeof(*r->why));
	r->group = calloc((size_t)n, sizeof(*r->group));
	return r->hosts && r->cells && r->why && r->group ? 0 : -ENOMEM;
}

void mesh_report_fini(struct mesh_report *r)
{
	size_t i, n2 = (size_t)r->n * (size_t)r->n;

	for (i = 0; r->why && i < n2; i++)
		free(r->why[i]);
	free(r->why);
	free(r->hosts);
	free(r->cells);
	free(r->group);
	r->why = NULL;
	r->hosts = NULL;
	r->cells = NULL;
	r->group = NULL;
}

/* -- a line ------------------------------------------------------------------------------- */

struct reader {
	struct mesh_report *r;
	const char *prog, *path;
	int line;
	int at[MESH_HOSTS_MAX];		/* the line of each host */
};

static int bad(const struct reader *rd, const char *what, const char *word)
{
	opt_error(rd->prog, "%s:%d: %s%s%.60s%s [bad-hostfile]", rd->path, rd->line, what,
		  *word ? " '" : "", word, *word ? "'" : "");
	return 2;
}

/* Letters, digits and `more`; not empty, and no option. */
static bool is_plain(const char *s, const char *more, size_t most)
{
	if (*s == 0 || *s == '-' || strlen(s) >= most)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr(more, *s))
			return false;
	return true;
}

static int set_address(const struct reader *rd, struct mesh_host *h, const char *text)
{
	if (!is_plain(text, ".:%_-", sizeof(h->address)))
		return bad(rd, "this is no address:", text);
	snprintf(h->address, sizeof(h->address), "%s", text);
	return 0;
}

/* HOST, USER@HOST or HOST:ADDRESS. */
static int host_word(struct reader *rd, struct mesh_host *h, char *word)
{
	char *colon = strchr(word, ':'), *at;
	int i;

	if (colon)
		*colon = 0;
	if (!is_plain(word, "._@-", sizeof(h->name)) || (colon && colon[1] == ':'))
		return bad(rd, "this is no host name, such as node1 or me@node1:10.0.0.1:", word);
	for (i = 0; i < rd->r->n; i++)
		if (strcmp(rd->r->hosts[i].name, word) == 0)
			return opt_error(rd->prog, "%s:%d: host '%s' is already in line %d "
					 "[bad-hostfile]", rd->path, rd->line, word, rd->at[i]);
	if (rd->r->n == MESH_HOSTS_MAX)
		return bad(rd, "that is one host more than braid mesh takes, 512:", word);
	snprintf(h->name, sizeof(h->name), "%s", word);
	at = strchr(word, '@');
	snprintf(h->address, sizeof(h->address), "%s", at ? at + 1 : word);
	return colon ? set_address(rd, h, colon + 1) : 0;
}

static int setting(const struct reader *rd, struct mesh_host *h, char *word)
{
	static const char *const sides[] = { "side=", "switch=", "rail=" };
	unsigned i;

	if (strncmp(word, "address=", 8) == 0)
		return set_address(rd, h, word + 8);
	if (strncmp(word, "slots=", 6) == 0 || strncmp(word, "max_slots=", 10) == 0 ||
	    strncmp(word, "max-slots=", 10) == 0)
		return 0;
	for (i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
		if (strncmp(word, sides[i], strlen(sides[i])) != 0)
			continue;
		if (!is_plain(word + strlen(sides[i]), "._-", sizeof(h->side)))
			return bad(rd, "this is no name of a side:", word);
		snprintf(h->side, sizeof(h->side), "%s", word + strlen(sides[i]));
		return 0;
	}
	return bad(rd, "a host may have address=, side=, switch=, rail= and slots=, but not",
		   word);
}

static int read_line(struct reader *rd, char *text)
{
	struct mesh_host h = { .name = "" };
	char *save = NULL, *word;
	int rc;

	for (word = text; *word; word++)
		if ((unsigned char)*word < ' ' && !strchr("\t\r\n", *word))
			return bad(rd, "there is a control character in this line", "");
	text[strcspn(text, "#\r\n")] = 0;
	word = strtok_r(text, " \t", &save);
	if (!word)
		return 0;
	rc = host_word(rd, &h, word);
	while (!rc && (word = strtok_r(NULL, " \t", &save)) != NULL)
		rc = setting(rd, &h, word);
	if (rc)
		return rc;
	rd->at[rd->r->n] = rd->line;
	rd->r->hosts[rd->r->n++] = h;
	return 0;
}

/* -- the file ----------------------------------------------------------------------------- */

static int read_all(struct reader *rd, FILE *f)
{
	char text[LINE_MOST + 2];
	size_t len;
	int rc = 0, c;

	while (!rc) {
		for (len = 0; (c = getc(f)) != EOF && c != '\n' && len <= LINE_MOST;)
			text[len++] = c ? (char)c : '\1';
		text[len] = 0;
		rd->line++;
		if (len > LINE_MOST)
			rc = bad(rd, "this line has more than 1000 characters", "");
		else
			rc = read_line(rd, text);
		if (c == EOF)
			break;
	}
	return rc;
}

int mesh_hosts_read(struct mesh_report *r, const char *prog, const char *path)
{
	struct reader rd = { .r = r, .prog = prog, .path = path };
	FILE *f = opt_is_stdout(path) ? stdin : fopen(path, "re");
	int rc;

	if (!f)
		return opt_error(prog, "%s: %s [bad-hostfile]", path, strerror(errno));
	r->hosts = calloc(MESH_HOSTS_MAX, sizeof(*r->hosts));
	rc = r->hosts ? read_all(&rd, f) : opt_error(prog, "no memory");
	if (!rc && ferror(f))
		rc = opt_error(prog, "%s: %s [bad-hostfile]", path, strerror(errno));
	if (!rc && r->n < 2)
		rc = opt_error(prog, "%s has %s; a mesh needs two or more [bad-hostfile]", path,
			       r->n ? "one host" : "no host");
	if (f != stdin)
		fclose(f);
	if (!rc && mesh_report_init(r, r->n) != 0)
		rc = opt_error(prog, "no memory");
	return rc;
}
