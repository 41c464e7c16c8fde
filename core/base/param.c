/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * param.c - param.def turned into a table, and the environment into braid_param.
 *
 * The rows, the defaults and the offsets of the values are expanded from the same list, so
 * index i means the same parameter in all of them.  Values are read through secure_getenv only;
 * the environment is walked for one thing, names that look like ours and are not.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* secure_getenv, environ */
#endif
#include "core/base/param.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/words.h"

enum {
	RANGE_MAX = 96,			/* of the text for a range, with its NUL */
	ENV_NAME_MAX = BRAID_PARAM_VARIABLE, /* of a name, with its NUL; longer ones are cut */
	QUOTE_MAX = 64,			/* bytes of a value quoted in a line */
};

static const char env_prefix[] = "BRAID_";

/* Our variables that are no parameters: the tests' switches, and the commit of a build. */
static const char env_test[] = "BRAID_TEST_";
static const char env_perf[] = "BRAID_PERF_KEY";	/* of the command */
static const char env_secret[] = "BRAID_SECRET";	/* core/base/job_secret.h */
static const char env_git[] = "BRAID_GIT";

static const char transports[] =	/* the words of that row */
#define BRAID_TRANSPORTS_ALL
#define BRAID_TRANSPORT(folder, table, word, ...) word ","
#include "core/base/transports.def"
#undef BRAID_TRANSPORT
#undef BRAID_TRANSPORTS_ALL
;

const struct braid_param_row braid_param_rows[] = {
#define P_INT(name, def, least, most, fallback, help) \
	{ #name, BRAID_PARAM_INT, #def, least, most, NULL, fallback, help },
#define P_SIZE(name, def, least, most, fallback, help) \
	{ #name, BRAID_PARAM_SIZE, #def, least, most, NULL, fallback, help },
#define P_STR(name, def, words, fallback, help) \
	{ #name, BRAID_PARAM_STR, def, 0, 0, words, fallback, help },
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
};

enum { ROWS = sizeof(braid_param_rows) / sizeof(braid_param_rows[0]) };

const unsigned braid_param_count = ROWS;

struct braid_params braid_param = {
#define P_INT(name, def, ...) .name = def,
#define P_SIZE(name, def, ...) .name = def,
#define P_STR(name, def, ...) .name = def,
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
};

static const size_t offsets[ROWS] = {
#define P_INT(name, ...) offsetof(struct braid_params, name),
#define P_SIZE(name, ...) offsetof(struct braid_params, name),
#define P_STR(name, ...) offsetof(struct braid_params, name),
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
};

static bool from_nccl[ROWS];		/* the value came from the fall-back */

static int suffix_shift(char c)
{
	switch (c) {
	case 'k':
	case 'K':
		return 10;
	case 'm':
	case 'M':
		return 20;
	case 'g':
	case 'G':
		return 30;
	default:
		return -1;
	}
}

/* The whole text must be one decimal number; a size may end in k, m or g. */
static int parse_number(const struct braid_param_row *row, const char *text, int64_t *ret)
{
	long long v;
	char *end;

	if (!isdigit((unsigned char)text[text[0] == '-']))
		return -EINVAL;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (row->type == BRAID_PARAM_SIZE && *end) {
		int shift = suffix_shift(*end);

		if (shift < 0 || __builtin_mul_overflow(v, 1ll << shift, &v))
			return -EINVAL;
		end++;
	}
	if (*end || v < row->least || v > row->most)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* Does the text fit words like "=0-255,", as "name=3" does? */
static bool is_pair(const char *words, const char *text, size_t len)
{
	size_t name = strcspn(text, "=,");
	long least, most, v;
	char *end;

	if (sscanf(words, "=%ld-%ld,", &least, &most) != 2 || !name || text[name] != '=' ||
	    !isdigit((unsigned char)text[name + 1]))
		return false;
	v = strtol(text + name + 1, &end, 10);	/* too large: LONG_MAX */
	return end == text + len && v >= least && v <= most;
}

static bool is_word(const char *words, const char *text, size_t len)
{
	if (*words == '#')
		return braid_ports_parse(text, &(uint16_t){ 0 }, &(uint16_t){ 0 });
	if (*words == '=')
		return is_pair(words, text, len);
	for (; *words; words += strcspn(words, "|,"), words += *words != '\0') {
		if (strcspn(words, "|,") == len && strncmp(words, text, len) == 0)
			return true;
	}
	return false;
}

/* Is the text one of the allowed words or, for a list, one or more of them between commas? */
static bool is_allowed(const char *words, const char *text)
{
	if (!words || !*text)
		return true;
	if (!strchr(words, ','))
		return is_word(words, text, strlen(text));
	for (;; text++) {
		size_t len = strcspn(text, ",");

		if (!len || !is_word(words, text, len))
			return false;
		text += len;
		if (!*text)
			return true;
	}
}

static int set_row(struct braid_params *p, unsigned i, const char *text)
{
	void *place = (char *)p + offsets[i];
	size_t len;

	if (braid_param_rows[i].type != BRAID_PARAM_STR)
		return parse_number(&braid_param_rows[i], text, place);
	len = strlen(text);
	if (len >= BRAID_PARAM_STR_MAX || !is_allowed(braid_param_rows[i].words, text))
		return -EINVAL;
	memcpy(place, text, len + 1);
	return 0;
}

int braid_param_set(struct braid_params *p, const char *name, const char *text)
{
	for (unsigned i = 0; i < ROWS; i++) {
		if (strcmp(braid_param_rows[i].name, name) == 0)
			return set_row(p, i, text);
	}
	return -ENOENT;
}

int braid_param_family(const char *value)
{
	if (!strcmp(value, "AF_INET"))
		return AF_INET;
	return !strcmp(value, "AF_INET6") ? AF_INET6 : AF_UNSPEC;
}

const char *braid_param_nearest(const char *name)
{
	unsigned least = UINT_MAX;
	const char *ret = NULL;

	for (unsigned i = 0; i < ROWS; i++) {
		const char *row = braid_param_rows[i].name;
		unsigned d = braid_distance(name, row);

		/* Part of a name ("ifname") counts as nearly equal. */
		if (d > 1 && strlen(name) > 2 && strstr(row, name))
			d = 1;
		if (d < least) {
			least = d;
			ret = row;
		}
	}
	return ret;
}

void braid_param_format(const struct braid_param_row *row, int64_t value, char *ret, size_t len)
{
	static const char suffixes[] = { 'g', 'm', 'k' };

	for (int i = 0; i < 3 && row->type == BRAID_PARAM_SIZE && value; i++) {
		int64_t unit = INT64_C(1) << suffix_shift(suffixes[i]);

		if (value % unit)
			continue;
		snprintf(ret, len, "%" PRId64 "%c", value / unit, suffixes[i]);
		return;
	}
	snprintf(ret, len, "%" PRId64, value);
}

/* Describe what is allowed: "one or other", "a comma list of one, other". */
static void format_allowed(const char *words, char *ret, size_t len)
{
	bool list = strchr(words, ',');
	size_t used = (size_t)snprintf(ret, len, "%s", list ? "a comma list of " : "");
	long least, most;

	if (*words == '#') {
		snprintf(ret, len, "LOW-HIGH, two ports of 1 to 65535");
		return;
	}
	if (sscanf(words, "=%ld-%ld,", &least, &most) == 2) {
		snprintf(ret + used, len - used, "NAME=NUMBER, %ld to %ld", least, most);
		return;
	}
	while (*words && used < len) {
		size_t n = strcspn(words, "|,");

		used += (size_t)snprintf(ret + used, len - used, "%.*s%s", (int)n, words,
					 !words[n] || !words[n + 1] ? "" : list ? ", " : " or ");
		words += n + (words[n] != '\0');
	}
}

void braid_param_range(const struct braid_param_row *row, char *ret, size_t len)
{
	char least[32], most[32];

	if (row->words) {
		format_allowed(row->words, ret, len);
		return;
	}
	if (row->type == BRAID_PARAM_STR) {
		snprintf(ret, len, "at most %d bytes", BRAID_PARAM_STR_MAX - 1);
		return;
	}
	braid_param_format(row, row->least, least, sizeof(least));
	braid_param_format(row, row->most, most, sizeof(most));
	snprintf(ret, len, "%s to %s", least, most);
}

static const char *env_value(const char *name)
{
	const char *text = secure_getenv(name);

	return text && *text ? text : NULL;
}

/* "lanes" -> "BRAID_LANES"; ret holds ENV_NAME_MAX bytes. */
static void env_name(const char *name, char *ret)
{
	snprintf(ret, ENV_NAME_MAX, "%s%s", env_prefix, name);
	for (; *ret; ret++)
		*ret = (char)toupper((unsigned char)*ret);
}

static const char *wanted(const struct braid_param_row *row)
{
	switch (row->type) {
	case BRAID_PARAM_INT:
		return "a whole number, ";
	case BRAID_PARAM_SIZE:
		return "a size, ";
	case BRAID_PARAM_STR:
	default:
		return "";
	}
}

/* Read a BRAID_ variable: a bad value is an error. */
static int load_own(unsigned i, const char *name, const char *text)
{
	const struct braid_param_row *row = &braid_param_rows[i];
	char range[RANGE_MAX];

	if (set_row(&braid_param, i, text) == 0)
		return 0;
	braid_param_range(row, range, sizeof(range));
	return braid_error(-EINVAL, "environment variable %s is '%.*s', but must be %s%s "
			   "[bad-parameter]", name,
			   QUOTE_MAX, text, wanted(row), range);
}

/* A switch: for NCCL any number but 0 means on. */
static bool is_switch(const struct braid_param_row *row)
{
	return row->least == 0 && row->most == 1;
}

/* Set a value meant for NCCL, read as NCCL reads it: 0; 1: as braid_nccl_number(); or -errno. */
static int set_nccl(unsigned i, const char *text)
{
	const struct braid_param_row *row = &braid_param_rows[i];
	int64_t v;
	int rc;

	if (row->type == BRAID_PARAM_STR)
		return set_row(&braid_param, i, text);
	rc = braid_nccl_number(text, &v);
	if (rc < 0)
		return rc;
	if (is_switch(row))
		v = v != 0;
	if ((v == -1 || v == -2) && v < row->least)	/* NCCL's values for the default */
		return rc;
	if (v < row->least || v > row->most)
		return -EINVAL;
	memcpy((char *)&braid_param + offsets[i], &v, sizeof(v));
	return rc;
}

/* Read NCCL's variable for a parameter.  A value that makes no sense for Braid is only a WARN. */
static void load_fallback(unsigned i)
{
	const struct braid_param_row *row = &braid_param_rows[i];
	const char *text = env_value(row->fallback);
	char range[RANGE_MAX];
	int64_t v = 0;
	int rc;

	if (!text)
		return;
	rc = set_nccl(i, text);
	from_nccl[i] = rc >= 0;
	if (rc == 1) {
		braid_nccl_number(text, &v);
		braid_warn("environment variable %s is '%.*s', which is no number: it is taken for "
			   "%lld, as NCCL does [parameter-odd]", row->fallback, QUOTE_MAX, text,
			   (long long)v);
	}
	if (rc >= 0)
		return;
	braid_param_range(row, range, sizeof(range));
	braid_warn("environment variable %s is '%.*s', which is ignored: %s takes %s%s "
		   "[parameter-ignored]",
		   row->fallback, QUOTE_MAX, text, row->name, wanted(row), range);
}

const char *braid_param_variable(const char *name, char ret[BRAID_PARAM_VARIABLE])
{
	env_name(name, ret);
	for (unsigned i = 0; i < ROWS; i++) {
		if (from_nccl[i] && strcmp(braid_param_rows[i].name, name) == 0)
			snprintf(ret, BRAID_PARAM_VARIABLE, "%s", braid_param_rows[i].fallback);
	}
	return ret;
}

static bool is_parameter(const char *name)
{
	char ours[ENV_NAME_MAX];

	for (unsigned i = 0; i < ROWS; i++) {
		env_name(braid_param_rows[i].name, ours);
		if (strcmp(ours, name) == 0)
			return true;
	}
	return false;
}

bool braid_param_is_known(const char *name)
{
	return is_parameter(name) || strcmp(name, env_git) == 0 || strcmp(name, env_perf) == 0 ||
	       strcmp(name, env_secret) == 0 || !strncmp(name, env_test, sizeof(env_test) - 1);
}

bool braid_param_hides(const char *name)
{
	return strncmp(name, env_prefix, sizeof(env_prefix) - 1) == 0 && !is_parameter(name) &&
	       (strcasestr(name, "SEC") || strcasestr(name, "KEY") ||
		braid_distance(name, env_secret) <= 2);
}

/* Warn about an entry, "NAME=value", whose NAME looks like ours and is not. */
static void check_entry(const char *entry)
{
	size_t head = sizeof(env_prefix) - 1;
	const char *equals = strchr(entry, '=');
	char name[ENV_NAME_MAX], lower[ENV_NAME_MAX], near[ENV_NAME_MAX];
	size_t i;

	if (!equals || strncmp(entry, env_prefix, head) != 0)
		return;
	snprintf(name, sizeof(name), "%.*s", (int)(equals - entry), entry);
	if (braid_param_is_known(name))
		return;
	for (i = head; name[i]; i++)
		lower[i - head] = (char)tolower((unsigned char)name[i]);
	lower[i - head] = '\0';
	env_name(braid_param_nearest(lower), near);
	braid_warn("environment variable %s is unknown and has no effect; the nearest that exists "
		   "is %s [unknown-parameter]", name, near);
}

static void check_environment(void)
{
	if (!environ || getauxval(AT_SECURE))	/* secure_getenv() sees nothing either */
		return;
	for (char **e = environ; *e; e++)
		check_entry(*e);
}

bool braid_param_lists(const char *value, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = value; *p; p += strcspn(p, ","), p += *p == ',') {
		if (strcspn(p, ",") == len && !strncmp(p, word, len))
			return true;
	}
	return false;
}

int braid_param_load(void)
{
	static bool done;
	static int result;

	if (done)
		return result;
	done = true;
	for (unsigned i = 0; i < ROWS; i++) {
		const struct braid_param_row *row = &braid_param_rows[i];
		char name[ENV_NAME_MAX];
		const char *text;

		env_name(row->name, name);
		text = env_value(name);
		if (text && load_own(i, name, text) < 0)
			result = -EINVAL;
		else if (!text && row->fallback)
			load_fallback(i);
	}
	braid_log_info_to_stderr(!strcasecmp(braid_param.debug, "info"));
	check_environment();
	braid_nccl_log_ignored();
	return result;
}
