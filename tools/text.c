/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see text.h. */
#include "tools/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_LEAST = 80, COLUMNS_MOST = 120, WORD_MOST = 80 };

int text_columns(void)
{
	struct winsize w;
	int n = COLUMNS_LEAST;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
		n = w.ws_col;
	return n < COLUMNS_LEAST ? COLUMNS_LEAST : n > COLUMNS_MOST ? COLUMNS_MOST : n;
}

void text_wrap(const char *text, int indent, int used)
{
	int room = text_columns() - indent, n;

	printf("%*s", indent > used ? indent - used : 0, "");
	while (*text) {
		n = (int)strlen(text);
		if (n > room)
			for (n = room; n > 0 && text[n] != ' ';)
				n--;
		if (n == 0)
			n = (int)strcspn(text, " ");
		printf("%.*s\n", n, text);
		text += n;
		text += strspn(text, " ");
		if (*text)
			printf("%*s", indent, "");
	}
}

void text_lines(int first, int indent, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		text_wrap(text, indent, indent - first);
	free(text);
}

const char *text_colour(enum colour colour)
{
	static const char *const codes[COLOURS] = {
		[COLOUR_NONE] = "\033[0m", [COLOUR_GOOD] = "\033[32m", [COLOUR_HINT] = "\033[36m",
		[COLOUR_WARN] = "\033[33m", [COLOUR_BAD] = "\033[1;31m", [COLOUR_DIM] = "\033[2m",
	};
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	if (!isatty(STDOUT_FILENO) || (no && *no) || (term && strcmp(term, "dumb") == 0))
		return "";
	return codes[colour];
}

const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* The number of bytes of the UTF-8 character at s, and its code; 0: it is no UTF-8. */
static size_t utf8(const unsigned char *s, unsigned *ret)
{
	static const unsigned least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = *s < 0x80 ? 1 : *s >= 0xf0 ? 4 : *s >= 0xe0 ? 3 : 2;

	if (*s >= 0xf8 || (*s >= 0x80 && *s < 0xc0))
		return 0;
	*ret = n == 1 ? *s : *s & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*ret = *ret << 6 | (s[i] & 0x3fu);
	}
	return *ret < least[n] || *ret > 0x10ffff || (*ret >= 0xd800 && *ret < 0xe000) ? 0 : n;
}

/* Control characters, and those that turn the direction or end a line (UAX #9, UAX #14). */
static bool is_unfit(unsigned c)
{
	return c < ' ' || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void text_clean(char *text, size_t n, const char *keep)
{
	unsigned char *s = (unsigned char *)text;

	text[n - 1] = 0;
	while (*s) {
		unsigned c = 0;
		size_t len = utf8(s, &c);

		if (len && (!is_unfit(c) || (c < ' ' && strchr(keep, (int)c)))) {
			s += len;
			continue;
		}
		*s++ = '?';
		for (; len > 1; len--)
			*s++ = '?';
	}
}

unsigned text_distance(const char *a, const char *b)
{
	unsigned row[3][WORD_MOST + 1], *now, *last = row[0], *before = row[1];
	size_t n = strlen(a), m = strlen(b);

	if (n > WORD_MOST || m > WORD_MOST)
		return UINT_MAX;
	for (unsigned k = 0; k <= m; k++)
		last[k] = k;
	for (unsigned i = 1; i <= n; i++) {
		now = row[(i + 1) % 3];
		now[0] = i;
		for (unsigned k = 1; k <= m; k++) {
			unsigned best = last[k - 1] + (a[i - 1] != b[k - 1]);

			best = last[k] + 1 < best ? last[k] + 1 : best;
			best = now[k - 1] + 1 < best ? now[k - 1] + 1 : best;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
			    before[k - 2] + 1 < best)
				best = before[k - 2] + 1;
			now[k] = best;
		}
		before = last;
		last = now;
	}
	return last[m];
}

const char *text_nearer(const char *word, const char *best, const char *name)
{
	unsigned far = text_distance(word, name);

	if (far > 2 || far >= strlen(word) || (best && far >= text_distance(word, best)))
		return best;
	return name;
}
