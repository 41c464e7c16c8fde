/* SPDX-License-Identifier: BSD-3-Clause */
/* stop.h - commands that end early at Ctrl-C, and report what they have until then. */
#ifndef BRAID_TOOLS_STOP_H
#define BRAID_TOOLS_STOP_H

#include <signal.h>

extern volatile sig_atomic_t stop_asked;

/*
 * From now on the first SIGINT or SIGTERM sets stop_asked and interrupts no call; a second one ends
 * the process.
 */
void stop_on_signals(void);

#endif
