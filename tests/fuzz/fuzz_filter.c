/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_filter.c - an interface filter against a second reading of its rules.  Input: an interface
 * name, a newline, the filter's text.
 *
 * The second reading has no table and no limits: it walks the text again for each question.  Both
 * must agree on which names match, and on what is refused; a refused filter changes nothing; what
 * is printed of one that was taken, as NCCL would have it, is read as the same, and is not odd.
 * The same text as a list of ports and their numbers is read twice as well.
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

static bool is_around(char c)
{
	return c && strchr(" \t\r\n\"'", c);
}

struct reading {
	unsigned n;			/* names */
	size_t longest;
	bool exclude, exact, refused, found;
};

/* The text between first and end, one element of the list. */
static void read_element(struct reading *r, const char *first, const char *end, const char *name)
{
	bool any = r->n || r->exclude || r->exact, exclude = false, exact = false;
	size_t len;

	for (; first < end; first++) {
		if (*first == '=')
			exact = true;
		else if (*first == '^' && !exclude)
			exclude = true;
		else if (!is_around(*first))
			break;
	}
	while (end > first && is_around(end[-1]))
		end--;
	if (!any) {
		r->exclude = exclude;
		r->exact = exact;
	}
	if ((exclude && !r->exclude) || (exact && !r->exact))
		r->refused = true;
	if (first < end && *first == '^')
		r->refused = true;
	for (const char *p = first; p < end; p++) {
		if (*p == ':')
			end = p;
	}
	while (end > first && is_around(end[-1]))
		end--;
	len = (size_t)(end - first);
	if (len > r->longest)
		r->longest = len;
	if (!len)
		return;
	r->n++;
	if (strncmp(name, first, len) == 0 && (!r->exact || !name[len]))
		r->found = true;
}

static struct reading read_again(const char *text, const char *name)
{
	struct reading r = { 0 };

	for (const char *end = text; ; end++) {
		if (*end && *end != ',')
			continue;
		read_element(&r, text, end, name);
		if (!*end)
			return r;
		text = end + 1;
	}
}

static void check_taken(const struct braid_netdev_filter *f, const struct reading *r,
			const char *name)
{
	static char plain[2 * BRAID_FILTER_NAMES * BRAID_FILTER_NAME];
	struct braid_netdev_filter again;

	assert(f->n == r->n && f->exclude == r->exclude && f->exact == r->exact);
	for (unsigned i = 0; i < f->n; i++) {
		assert(*f->item[i].name && strlen(f->item[i].name) < BRAID_FILTER_NAME);
		assert(!strpbrk(f->item[i].name, ",:"));
		assert(braid_netdev_filter_match(f, f->item[i].name) == !f->exclude);
	}
	assert(braid_netdev_filter_match(f, name) == (!r->n || r->found != r->exclude));
	braid_netdev_filter_format(f, plain, sizeof(plain));
	assert(braid_netdev_filter_parse(plain, &again, NULL, 0) == 0);
	assert(again.n == f->n && again.exclude == f->exclude && again.exact == f->exact);
	assert(!again.odd && memcmp(again.item, f->item, sizeof(f->item)) == 0);
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
	err = braid_netdev_filter_parse(text, &f, NULL, 0);
	assert(err == (r.refused || r.n > BRAID_FILTER_NAMES || r.longest >= BRAID_FILTER_NAME ?
			       -EINVAL : 0));
	if (err)
		assert(memcmp(&f, &before, sizeof(f)) == 0);
	else
		check_taken(&f, &r, name);
	if (!strpbrk(name, ",:="))	/* as devices are called */
		assert(braid_netdev_port_number(text, name, 1) == number_again(text, name));
	free(name);
	free(text);
	return 0;
}
