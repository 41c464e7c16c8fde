/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * param.h - everything a user can set: one row each in param.def.
 *
 * A row feeds the parser, `braid info --params`, the man page and a test.  A parameter NAME is
 * read from the environment variable BRAID_NAME (upper case) by secure_getenv, once, in
 * braid_param_load(); some have NCCL's variable as a fall-back, if BRAID_NAME is not set.  Sizes
 * take k, m and g (binary).  Afterwards braid_param never changes.
 *
 * An empty variable counts as not set.  If a value is bad, one WARN names the variable, the value
 * and the range, and the parameter keeps its default.  An NCCL fall-back is read as NCCL reads it,
 * where -1 and -2 mean the default; a value that Braid does not have is ignored with a WARN.  An
 * unknown BRAID_* variable gets one WARN with the nearest name.
 */
#ifndef BRAID_BASE_PARAM_H
#define BRAID_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum braid_param_type { BRAID_PARAM_INT, BRAID_PARAM_SIZE, BRAID_PARAM_STR };

enum { BRAID_PARAM_STR_MAX = 4096, BRAID_PARAM_VARIABLE = 96 };

struct braid_params {
#define P_INT(name, ...) int64_t name;
#define P_SIZE(name, ...) int64_t name;
#define P_STR(name, ...) char name[BRAID_PARAM_STR_MAX];
#include "core/base/param.def"
#undef P_INT
#undef P_SIZE
#undef P_STR
};

extern struct braid_params braid_param;

struct braid_param_row {		/* for tools, docs and tests */
	const char *name;		/* lower case, as in param.def */
	enum braid_param_type type;
	const char *def;		/* default as a user would write it */
	int64_t least, most;		/* INT and SIZE only */
	const char *words;		/* STR only: see param.def */
	const char *fallback;		/* NCCL variable read if BRAID_NAME is not set, or NULL */
	const char *help;
};
extern const struct braid_param_row braid_param_rows[];
extern const unsigned braid_param_count;

/*
 * A variable of NCCL's for its own InfiniBand and Socket code, which Braid does not heed.  With the
 * fall-backs above these are all variables that NCCL has for that code.
 */
struct braid_nccl_row {
	const char *name;		/* NCCL_IB_USE_INLINE */
	int64_t least, most;		/* both 0: text */
	const char *why;		/* why it is not heeded: half a sentence */
};
extern const struct braid_nccl_row braid_nccl_rows[];
extern const unsigned braid_nccl_count;

/*
 * A number as NCCL reads it: strtoll() of base 0, ignoring what follows.  0; 1: something
 * follows, or there is no number, and NCCL reads 0; -ERANGE: NCCL takes its default, and *ret is
 * untouched.
 */
int braid_nccl_number(const char *text, int64_t *ret);
/* One line at INFO about the variables that are set and not heeded. */
void braid_nccl_log_ignored(void);

/*
 * Fill braid_param from the environment: 0, or -EINVAL if a value of a BRAID_ variable is bad.
 * Only the first call does so, and later ones return its result: threads may be reading by then.
 * Not thread-safe: called from init, which NCCL serialises.
 */
int braid_param_load(void);

/* Set one parameter from text: 0, -EINVAL (bad value) or -ENOENT (no such name); does not log. */
int braid_param_set(struct braid_params *p, const char *name, const char *text);

/*
 * The variable that a parameter's value came from, for messages: BRAID_NAME, or NCCL's where the
 * user has set that one.  Returns ret.
 */
const char *braid_param_variable(const char *name, char ret[BRAID_PARAM_VARIABLE]);

/* Does the value, a comma list, contain the word? */
bool braid_param_lists(const char *value, const char *word);

/* The socket family that a parameter's value names: AF_INET, AF_INET6, or else AF_UNSPEC. */
int braid_param_family(const char *value);

/* Is it a variable of Braid's, "BRAID_LANES", be it a parameter or not? */
bool braid_param_is_known(const char *variable);
/*
 * May the variable hold a secret or a key, perhaps under a misspelt name?  Its value is shown
 * nowhere.
 */
bool braid_param_hides(const char *variable);

/* The parameter whose name (lower case) is most like `name`: never NULL. */
const char *braid_param_nearest(const char *name);

/*
 * Text for people, cut to len: a value as they would write it ("64k"; INT and SIZE only), and
 * what the row allows ("0 to 16", "4k to 16m", "at most 255 bytes").
 */
void braid_param_format(const struct braid_param_row *row, int64_t value, char *ret, size_t len);
void braid_param_range(const struct braid_param_row *row, char *ret, size_t len);

#endif
