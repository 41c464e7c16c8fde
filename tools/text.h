/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - text for a terminal: lines of 80 columns, and colour where there is one; of reports. */
#ifndef BRAID_TOOLS_TEXT_H
#define BRAID_TOOLS_TEXT_H

#include <jansson.h>
#include <stddef.h>

enum colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_HINT, COLOUR_WARN, COLOUR_BAD, COLOUR_DIM, COLOURS };

/* Cut at blanks; the first line begins behind the `used` columns that are there already. */
void text_wrap(const char *text, int indent, int used);

/* o[key], or "" if there is no text. */
const char *text_of(const json_t *o, const char *key);

/*
 * What came from another process or host, made fit for a terminal, in place: a text of up to `n`
 * bytes, which ends within them, with '?' for each control character, for what turns the direction
 * of writing, and for each byte that is no UTF-8.  keep: control characters that stay.
 */
void text_clean(char *text, size_t n, const char *keep);

/* What to print before and after; "" unless stdout is a terminal and NO_COLOR is not set. */
const char *text_colour(enum colour colour);

#endif
