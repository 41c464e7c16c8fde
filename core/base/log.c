/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log.c - make one line and hand it on.
 *
 * A line is built on the caller's stack and leaves in one call, to the sink or as one write() to
 * stderr, so lines of several threads never mix and there is no lock.  What is quoted in a line
 * may come from the environment or from a stranger's bytes.  Control characters become '?', so
 * that one line stays one line.  Python decodes what PyTorch quotes, so bytes that are not UTF-8
 * become '?' too, and a cut never splits a UTF-8 character.
 */
#include "core/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "braid: ";
static const char cut_mark[] = "...";

static const uint64_t gate_ns = 10000000000u;

static _Atomic(braid_log_sink) sink_now;
static atomic_bool stderr_info;

void braid_log_to(braid_log_sink sink)
{
	atomic_store(&sink_now, sink);
}

void braid_log_info_to_stderr(bool on)
{
	atomic_store(&stderr_info, on);
}

/* How much of text[0..len) to keep so that it ends between two characters. */
static size_t whole_chars(const char *text, size_t len)
{
	size_t at = len;

	while (at && len - at < 3 && ((unsigned char)text[at] & 0xc0) == 0x80)
		at--;
	return ((unsigned char)text[at] & 0xc0) == 0x80 ? len : at;
}

/* The length of the UTF-8 character at s, which a NUL ends; 0: these bytes are not UTF-8. */
static size_t char_len(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 :
		   s[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	/* Overlong forms, surrogates, and what is above U+10FFFF. */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

static void clean(char *text)
{
	while (*text) {
		size_t n = char_len((const unsigned char *)text);

		if (!n || (unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
		text += n ? n : 1;
	}
}

/* Fill buf, BRAID_LOG_MAX + 1 bytes, with a finished line; returns its length. */
__attribute__((format(printf, 2, 0)))
static size_t format_line(char *buf, const char *fmt, va_list ap)
{
	size_t head = sizeof(prefix) - 1;
	size_t room = BRAID_LOG_MAX - head;
	size_t len;
	int n;

	memcpy(buf, prefix, sizeof(prefix));
	n = vsnprintf(buf + head, room + 1, fmt, ap);
	if (n < 0)
		n = snprintf(buf + head, room + 1, "(a message that cannot be printed)");
	len = head + (size_t)n;
	if (len > BRAID_LOG_MAX) {
		len = whole_chars(buf, BRAID_LOG_MAX - (sizeof(cut_mark) - 1));
		memcpy(buf + len, cut_mark, sizeof(cut_mark));
		len += sizeof(cut_mark) - 1;
	}
	clean(buf + head);
	return len;
}

static bool stderr_level_is_on(enum braid_log_level level)
{
	return level == BRAID_LOG_WARN || (level == BRAID_LOG_INFO && atomic_load(&stderr_info));
}

/* Can a line be written now?  A pipe without reader would kill the process, a full one block it. */
static bool stderr_is_writable(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

__attribute__((format(printf, 4, 0)))
static void log_line(enum braid_log_level level, const char *file, int line, const char *fmt,
		     va_list ap)
{
	braid_log_sink sink = atomic_load(&sink_now);
	char buf[BRAID_LOG_MAX + 2];		/* a newline or a NUL after the line */
	int saved = errno;
	size_t len;

	if (!sink && !stderr_level_is_on(level))
		return;
	len = format_line(buf, fmt, ap);
	if (sink) {
		sink(level, file, line, buf);
	} else if (stderr_is_writable()) {
		buf[len++] = '\n';
		/* A line that stderr refuses is lost: nothing else can report it. */
		while (write(STDERR_FILENO, buf, len) < 0 && errno == EINTR)
			;
	}
	errno = saved;
}

void braid_log(enum braid_log_level level, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(level, file, line, fmt, ap);
	va_end(ap);
}

int braid_error_at(const char *file, int line, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(BRAID_LOG_WARN, file, line, fmt, ap);
	va_end(ap);
	return err;
}

bool braid_log_gate_open(struct braid_log_gate *gate, uint64_t now_ns)
{
	uint64_t next = atomic_load(&gate->next_ns);

	/* Of several threads at once only the one whose exchange succeeds passes. */
	return now_ns >= next &&
	       atomic_compare_exchange_strong(&gate->next_ns, &next, now_ns + gate_ns);
}
