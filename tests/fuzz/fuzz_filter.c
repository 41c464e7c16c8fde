/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_filter.c - an interface filter against a second reading of its rules.  Input: an interface
 * name, a newline, the filter's text.
 *
 * The second reading has no table and no limits: it walks the text again for each question.  Both
 * must agree on which names match; a parsed filter holds only names that an interface could have;
 * a refused one changes nothing.  The same text as a list of ports and their numbers is read twice
 * as well.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topo/netdev.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *copy(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	assert(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

struct reading {
	unsigned n;			/* names */
	size_t longest;
	bool exclude, found;
};

static void read_name(struct reading *r, const char *first, const char *end, bool exact,
		      const char *name)
{
	size_t len;

	while (first < end && is_blank(*first))
		first++;
	for (const char *p = first; p < end; p++) {
		if (*p == ':')
			end = p;
	}
	while (end > first && is_blank(end[-1]))
		end--;
	len = (size_t)(end - first);
	if (!len)
		return;
	r->n++;
	if (len > r->longest)
		r->longest = len;
	if (strncmp(name, first, len) == 0 && (!exact || !name[len]))
		r->found = true;
}

static struct reading read_again(const char *text, const char *name)
{
	struct reading r = { 0 };
	bool exact;

	while (is_blank(*text))
		text++;
	r.exclude = *text == '^';
	if (r.exclude)
		text++;
	exact = *text == '=';
	if (exact)
		text++;
	for (const char *end = text; ; end++) {
		if (*end && *end != ',')
			continue;
		read_name(&r, text, end, exact, name);
		if (!*end)
			return r;
		text = end + 1;
	}
}

/* What is written of port 1: from the back, so that the first to be found is the last to be seen. */
static int number_again(const char *text, const char *name)
{
	char *copied = copy((const uint8_t *)text, strlen(text)), *item, *equals, *colon;
	int number = -1;

	do {
		item = strrchr(copied, ',');
		item = item ? item + 1 : copied;
		equals = strchr(item, '=');
		if (equals) {
			*equals = '\0';
			colon = item + strcspn(item, ":");
			if (*colon && strtoul(colon + 1, NULL, 10) != 1)
				colon = NULL;
			else
				*colon = '\0';
			if (colon && !strcmp(item, name))
				number = atoi(equals + 1);
		}
		if (item != copied)
			item[-1] = '\0';
	} while (item != copied);
	free(copied);
	return number;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
	size_t name_len = newline ? (size_t)(newline - data) : 0;
	size_t text_at = newline ? name_len + 1 : 0;
	char *name = copy(data, name_len);
	char *text = copy(data + text_at, size - text_at);
	struct braid_netdev_filter f, before;
	struct reading r = read_again(text, name);
	int err;

	memset(&f, 0x5a, sizeof(f));
	before = f;
	err = braid_netdev_filter_parse(text, &f);
	assert(err == (r.n > 32 || r.longest >= BRAID_NETDEV_NAME ? -EINVAL : 0));
	if (err) {
		assert(memcmp(&f, &before, sizeof(f)) == 0);
	} else {
		assert(f.n == r.n && f.exclude == r.exclude);
		for (unsigned i = 0; i < f.n; i++) {
			assert(*f.names[i] && strlen(f.names[i]) < BRAID_NETDEV_NAME);
			assert(!strpbrk(f.names[i], ",:"));
			assert(braid_netdev_filter_match(&f, f.names[i]) == !f.exclude);
		}
		assert(braid_netdev_filter_match(&f, name) == (!r.n || r.found != r.exclude));
	}
	if (!strpbrk(name, ",:="))	/* as devices are called */
		assert(braid_netdev_port_number(text, name, 1) == number_again(text, name));
	free(name);
	free(text);
	return 0;
}
