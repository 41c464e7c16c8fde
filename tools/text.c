/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - see text.h. */
#include "tools/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS = 80 };

void text_wrap(const char *text, int indent, int used)
{
	int room = COLUMNS - indent, n;

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
