/* SPDX-License-Identifier: BSD-3-Clause */
/* stop.c - see stop.h. */
#include "tools/stop.h"

volatile sig_atomic_t stop_asked;

static void stop(int sig)
{
	(void)sig;
	stop_asked = 1;
}

void stop_on_signals(void)
{
	struct sigaction sa = { .sa_handler = stop, .sa_flags = SA_RESTART | (int)SA_RESETHAND };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}
