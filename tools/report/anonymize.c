/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * anonymize.c - a report without the names and addresses of hosts and users.
 *
 * Names are those that the report itself gives as such; they are replaced wherever they occur, also
 * within sentences.  Addresses are known by their form.  Each gets a number by which a reader can
 * still tell two of them apart.
 */
#include "tools/report/report.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/text.h"

enum { NAME_LEAST = 2 };

struct names {
	json_t *hosts, *addresses;	/* what is replaced -> by what */
	int nhosts, naddresses;
};

/* The replacement for `name`, a new one if it is not known yet. */
static const char *alias(json_t *map, const char *name, const char *kind, int *n)
{
	char text[40];

	if (!json_object_get(map, name)) {
		snprintf(text, sizeof(text), "%s-%d", kind, ++*n);
		json_object_set_new(map, name, json_string(text));
	}
	return json_string_value(json_object_get(map, name));
}

/* Also the first label of a full name: sentences have either. */
static void learn_host(struct names *n, const char *name)
{
	char first[256];
	const char *as;
	size_t dot = strcspn(name, ".");

	if (strlen(name) < NAME_LEAST || strcmp(name, "localhost") == 0 ||
	    inet_addr(name) != INADDR_NONE || strchr(name, ':'))
		return;
	snprintf(first, sizeof(first), "%.*s", (int)(dot < 255 ? dot : 255), name);
	as = alias(n->hosts, first, "host", &n->nhosts);
	if (name[dot])
		json_object_set_new(n->hosts, name, json_string(as));
}

static void learn(struct names *n, const json_t *o, bool is_name)
{
	static const char *const keys[] = { "host", "hosts", "peer", "from", "to", "remote" };
	const char *key;
	json_t *x;
	size_t i;

	if (json_is_string(o) && is_name)
		learn_host(n, json_string_value(o));
	json_array_foreach(o, i, x)
		learn(n, x, is_name);
	json_object_foreach((json_t *)(uintptr_t)o, key, x) {
		bool names = is_name && strcmp(key, "name") == 0;

		for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			names |= strcmp(key, keys[i]) == 0;
		learn(n, x, names);
	}
}

/* -- what a text has ---------------------------------------------------------------------- */

static bool in_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* How long the known host name at `s` is; 0: there is none.  The longest counts. */
static size_t host_at(const struct names *n, const char *s, const char **as)
{
	const char *name;
	json_t *x;
	size_t most = 0, len;

	json_object_foreach(n->hosts, name, x) {
		len = strlen(name);
		if (len > most && strncasecmp(s, name, len) == 0 && !in_word(s[len])) {
			most = len;
			*as = json_string_value(x);
		}
	}
	return most;
}

/* An IPv4, IPv6, MAC or GUID at `s`: digits with dots or colons.  A time of day is none. */
static size_t address_at(const char *s, char word[64])
{
	unsigned char bin[16];
	size_t n = strspn(s, "0123456789abcdefABCDEF.:"), colons = 0, i;

	while (n && (s[n - 1] == '.' || s[n - 1] == ':') && !(n > 1 && s[n - 2] == ':'))
		n--;
	for (; n > 2 && n < 64; n--) {		/* "10.0.0.1:7000": the longest that is one */
		snprintf(word, 64, "%.*s", (int)n, s);
		for (i = colons = 0; i < n; i++)
			colons += word[i] == ':';
		if (inet_pton(AF_INET, word, bin) == 1)
			return strcmp(word, "0.0.0.0") && strncmp(word, "127.", 4) ? n : 0;
		if (colons >= 2 && inet_pton(AF_INET6, word, bin) == 1)
			return strcmp(word, "::1") && strcmp(word, "::") ? n : 0;
		if ((colons == 5 && n == 17) || (colons == 3 && n == 19) ||
		    (colons == 7 && n == 23))
			return n;
	}
	return 0;
}

/* "/home/NAME" and "NAME@host" name a user. */
static size_t user_at(const char *text, const char *s)
{
	static const char *const homes[] = { "/home/", "/Users/" };
	size_t n = strcspn(s, "/ :@'\"");

	if (s[n] == '@' && n && (s == text || !in_word(s[-1])))
		return n;
	for (size_t i = 0; i < 2; i++) {
		size_t len = strlen(homes[i]);

		if ((size_t)(s - text) >= len && strncmp(s - len, homes[i], len) == 0)
			return n;
	}
	return 0;
}

static json_t *replaced(struct names *n, const char *text)
{
	char *out = NULL, word[64];
	const char *as = NULL, *s = text;
	size_t len, room;
	FILE *f = open_memstream(&out, &room);
	json_t *ret;

	if (!f)
		return json_string("");
	while (*s) {
		bool begins = s == text || !in_word(s[-1]);

		if ((len = user_at(text, s)))
			fputs("user", f);
		else if (begins && (len = host_at(n, s, &as)))
			fputs(as, f);
		else if (begins && (len = address_at(s, word)))
			fputs(alias(n->addresses, word, "address", &n->naddresses), f);
		else
			fputc(s[len++], f);
		s += len;
	}
	fclose(f);
	ret = json_string(out);
	free(out);
	return ret;
}

static void walk(struct names *n, json_t *o)
{
	const char *key;
	json_t *x;
	size_t i;
	void *next;

	json_array_foreach(o, i, x) {
		if (json_is_string(x))
			json_array_set_new(o, i, replaced(n, json_string_value(x)));
		else
			walk(n, x);
	}
	json_object_foreach_safe(o, next, key, x) {
		if (json_is_string(x))
			json_object_set_new(o, key, replaced(n, json_string_value(x)));
		else
			walk(n, x);
	}
}

void report_anonymize(json_t *doc)
{
	struct names n = { .hosts = json_object(), .addresses = json_object() };

	learn(&n, doc, false);
	walk(&n, doc);
	json_decref(n.hosts);
	json_decref(n.addresses);
}
