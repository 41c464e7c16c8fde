/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - what a text of the user's means: how alike two names are, and ranges of ports. */
#ifndef BRAID_BASE_WORDS_H
#define BRAID_BASE_WORDS_H

#include <stdbool.h>
#include <stdint.h>

/* Levenshtein: the fewest letters put in, taken out or changed, in the first 64 of both. */
unsigned braid_distance(const char *a, const char *b);
/* Is the text LOW-HIGH, two ports in order? */
bool braid_ports_parse(const char *text, uint16_t *ret_low, uint16_t *ret_high);

#endif
