/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * process.h - finds other processes that have Braid loaded, and asks them over their socket
 * (docs/user/observability.md).
 *
 * Answers are shown, and not trusted further: control characters are removed from their strings.
 */
#ifndef BRAID_TOOLS_PROCESS_H
#define BRAID_TOOLS_PROCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/base/hist.h"

enum { PROCESS_ERR = 300 };

struct process {
	pid_t pid;			/* as in its socket's name; in a container, its PID here */
	uid_t uid;			/* the owner of the directory */
	char path[104];			/* of the socket */
};

/*
 * List sockets in `dir`, or (NULL) in the usual places: this user's, or for root everyone's, also
 * in containers.
 */
size_t process_list(const char *dir, struct process *ret, size_t max);

/* Find the process with that PID.  0, or -1 with a sentence in err. */
int process_find(const char *dir, const char *pid, struct process *ret, char err[PROCESS_ERR]);

/* A process's PID in its own PID namespace, as text, from its PID here. */
void process_own_name(const char *pid, char *ret, size_t len);

/* Is it in another "mnt" or "uts" namespace than this command?  false also if that is hidden. */
bool process_is_apart(pid_t pid, const char *namespace);

/* The process's answer to a word, as text to be freed; NULL with a sentence in err. */
char *process_query(const struct process *p, const char *word, size_t *ret_len,
		    char err[PROCESS_ERR]);
/* The answer as JSON, of a version that this command knows. */
json_t *process_report(const struct process *p, const char *word, char err[PROCESS_ERR]);

/*
 * Ask all of these at once; each answer is to be freed.  NULL: it does not answer within 3 s, and
 * err[] says why, without "process PID"; it is "" if the process has ended.
 */
void process_reports(const struct process *p, size_t n, const char *word, json_t **ret,
		     char (*err)[PROCESS_ERR]);

/* The same for an answer as text, to be freed. */
void process_texts(const struct process *p, size_t n, const char *word, char **ret,
		   char (*err)[PROCESS_ERR]);

/* -- members of a report ------------------------------------------------------------------ */

long long report_number(const json_t *o, const char *key);	/* 0 if it is not there */
const char *report_text(const json_t *o, const char *key);	/* "" if it is not there */
bool report_is(const json_t *o, const char *key);

/* "12.3 GB", in static storage; the next few calls leave it alone. */
const char *report_bytes(double bytes);
const char *report_age(long long ms);		/* "12 ms", "3.4 s"; storage likewise */

/* "12.3 us", "4 ms"; storage likewise. */
const char *report_time(uint64_t ns);
/* The histogram that o[key] has; all zero if it has none. */
void report_times(const json_t *o, const char *key, struct braid_hist *ret);

struct report_sums {			/* sums over all links */
	long long links, links_up, lanes, lanes_up, sends, receives, oldest_ms, lost, resent;
	long long sent_bytes, received_bytes, sent_messages, received_messages;
};
struct report_sums report_sums(const json_t *report);

#endif
