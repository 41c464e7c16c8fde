/* SPDX-License-Identifier: BSD-3-Clause */
/* text.h - text for a terminal: its width, colour, and strings that are safe to print. */
#ifndef BRAID_TOOLS_TEXT_H
#define BRAID_TOOLS_TEXT_H

#include <jansson.h>
#include <stddef.h>

enum colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_HINT, COLOUR_WARN, COLOUR_BAD, COLOUR_DIM, COLOURS };

/* How wide lines may be: 80, or on a terminal that is wider up to 120. */
int text_columns(void);

/* Print in lines cut at blanks; the first line begins behind `used` columns already printed. */
void text_wrap(const char *text, int indent, int used);

/*
 * Print formatted text in lines cut at blanks: the first begins in column `first`, all others in
 * column `indent`, which is not less.
 */
void text_lines(int first, int indent, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* o[key], or "" if there is no text. */
const char *text_of(const json_t *o, const char *key);

/*
 * Make text from another process or host safe for a terminal, in place.  It has up to `n` bytes,
 * and ends within them.  '?' replaces control characters not in `keep`, characters that turn the
 * direction of writing, and bytes that are no UTF-8.
 */
void text_clean(char *text, size_t n, const char *keep);

/* How many letters must be changed, added, left out or swapped; UINT_MAX: a word is too long. */
unsigned text_distance(const char *a, const char *b);
/*
 * For a word that nothing has: `name`, if it is more like the word than `best` (NULL: none so far)
 * and at most two letters off; else `best`.
 */
const char *text_nearer(const char *word, const char *best, const char *name);

/* The sequence that selects a colour; "" unless stdout is a terminal and NO_COLOR is not set. */
const char *text_colour(enum colour colour);

#endif
