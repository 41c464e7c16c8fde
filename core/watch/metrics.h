/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.h - the state of all links as metrics, in the text format of Prometheus.
 *
 * docs/user/observability.md has their names and labels.
 */
#ifndef BRAID_WATCH_METRICS_H
#define BRAID_WATCH_METRICS_H

struct braid_text;

/* Read the job and the rank from the environment, for labels; before there is another thread. */
void braid_metrics_job(void);

/* The metrics of this process.  0 or -ENOMEM. */
int braid_metrics_text(struct braid_text *t);

#endif
