/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_param.c - text from the environment.  Input: a name, a newline, a value.
 *
 * A value that is taken lies in its range and comes back the same when it is printed as a person
 * would write it; one that is refused changes nothing; any name has a nearest one.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy with a NUL, in a block of its own, so that a read past the end is seen. */
static char *copy(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	assert(text);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

static const char *str_of(const struct braid_params *p, const char *name)
{
#define P_INT(n, ...)
#define P_SIZE(n, ...)
#define P_STR(n, ...) if (strcmp(name, #n) == 0) return p->n;
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
	return NULL;
}

static int64_t number_of(const struct braid_params *p, const char *name)
{
#define P_INT(n, ...) if (strcmp(name, #n) == 0) return p->n;
#define P_SIZE(n, ...) P_INT(n)
#define P_STR(n, ...)
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
	abort();
}

static void check_taken(const struct braid_param_row *row, const struct braid_params *p,
			const char *text)
{
	struct braid_params again = braid_param;
	char shown[64];
	int64_t v;

	if (row->type == BRAID_PARAM_STR) {
		assert(strcmp(str_of(p, row->name), text) == 0);
		return;
	}
	v = number_of(p, row->name);
	assert(v >= row->least && v <= row->most);
	braid_param_format(row, v, shown, sizeof(shown));
	assert(braid_param_set(&again, row->name, shown) == 0);
	assert(memcmp(&again, p, sizeof(again)) == 0);
}

static void try_row(const struct braid_param_row *row, const char *text)
{
	struct braid_params p = braid_param;
	char range[64];
	int err = braid_param_set(&p, row->name, text);

	if (err == 0) {
		check_taken(row, &p, text);
	} else {
		assert(err == -EINVAL && memcmp(&p, &braid_param, sizeof(p)) == 0);
		braid_param_range(row, range, sizeof(range));
		assert(*range);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
	size_t name_len = newline ? (size_t)(newline - data) : 0;
	size_t text_at = newline ? name_len + 1 : 0;
	char *name = copy(data, name_len);
	char *text = copy(data + text_at, size - text_at);
	const char *nearest = braid_param_nearest(name);
	struct braid_params p = braid_param;

	assert(str_of(&p, nearest) || number_of(&p, nearest) < INT64_MAX);
	if (braid_param_set(&p, name, text) == -ENOENT)
		assert(memcmp(&p, &braid_param, sizeof(p)) == 0);
	for (unsigned i = 0; i < braid_param_count; i++)
		try_row(&braid_param_rows[i], text);
	free(name);
	free(text);
	return 0;
}
