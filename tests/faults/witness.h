/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * witness.h - what an end of the stage records: what the plugin logs, how long its calls take,
 * and the messages it expects.
 */
#ifndef BRAID_TESTS_FAULTS_WITNESS_H
#define BRAID_TESTS_FAULTS_WITNESS_H

#include "tests/faults/stage.h"

/* -- log lines ---------------------------------------------------------------------------- */

void witness_starts(struct end *e, uint64_t since_ns);	/* once, before the plugin is loaded */
void witness_prints(void);		/* to stdout too, as NCCL does */
void witness_keeps(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* -- calls -------------------------------------------------------------------------------- */

struct lap {
	uint64_t wall, cpu, queued;
};

struct lap lap_start(struct end *e, enum call call);
void lap_end(struct end *e, enum call call, const struct lap *lap);

#define TIMED(e, which, expr)							\
	({									\
		struct lap lap_ = lap_start(e, which);				\
		ncclResult_t res_ = (expr);					\
										\
		lap_end(e, which, &lap_);					\
		res_;								\
	})

/* -- messages: tag, size and bytes follow from the message's key -------------------------- */

uint64_t message_key(const struct stage *st, unsigned act, unsigned f, uint64_t k);
size_t message_size(const struct stage *st, uint64_t key);
int message_tag(uint64_t key);
void message_fill(uint8_t *p, size_t size, uint64_t key);
size_t message_differs(const uint8_t *p, size_t size, uint64_t key);	/* where, or `size` */

#endif
