/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_sim.c - run seeds of the simulator.
 *
 *	test_sim [-n SEEDS] [-s FIRST] [-m MODULE]	many: a line per failure, a line at the end
 *	test_sim -v SEED				one, with all that happens in it
 *
 * Every REPLAY-th seed runs twice and must take the same course; some run once more with one byte
 * changed, and must fail, unless they are encrypted: these must not.  MODULE: by default the one
 * that the build made, beside this program.
 */
#include "tests/sim/sim.h"

#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
#ifdef __SANITIZE_ADDRESS__
	SEEDS = 300,
#else
	SEEDS = 3000,
#endif
	REPLAY = 32, SABOTAGED = 32,
	RENEWED = 1000,			/* of so many seeds, one at least replaces a lane for new keys */
	FAILURES_MAX = 20,
	SEED_SECONDS = 120,		/* of real time: longer means a thread that never yields */
};

static void say_seed(const char *why)
{
	char text[160];
	int n = snprintf(text, sizeof(text), "\nseed %llu: %s at %.6f ms, event %llu\n",
			 (unsigned long long)sim.seed, why, (double)sim.now / 1e6,
			 (unsigned long long)sim.events);

	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		_exit(99);
}

static void died(int sig)
{
	say_seed(sig == SIGALRM ? "no thread gives way" : strsignal(sig));
	signal(sig, SIG_DFL);
	raise(sig);
}

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);
void __sanitizer_set_death_callback(void (*fn)(void));

/* The copies of the module define the same variables, on purpose. */
const char *__asan_default_options(void)
{
	return "detect_odr_violation=0";
}

static void sanitizer_died(void)
{
	say_seed("the sanitizer complains");
}
#endif

static void catch_signals(void)
{
	static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM };
	static char stack[64 << 10];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_handler = died, .sa_flags = SA_ONSTACK };

	sigaltstack(&ss, NULL);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &sa, NULL);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_set_death_callback(sanitizer_died);
#endif
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void load(const char *module)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	if (!module && n > 0) {
		path[n] = '\0';
		strcpy(strrchr(path, '/'), "/.libs/node.so");
		module = path;
	}
	sim_load(module);
}

static int one(uint64_t seed)
{
	int err;

	sim.verbose = true;
	err = sim_seed(seed);
	printf("seed %llu: %s, hash %016llx after %llu events\n", (unsigned long long)seed,
	       err ? sim.failure : "passed", (unsigned long long)sim.hash,
	       (unsigned long long)sim.events);
	return err ? 1 : 0;
}

static void tell_failure(const char *self, uint64_t seed)
{
	printf("seed %llu: %s (%s -v %llu)\n", (unsigned long long)seed, sim.failure, self,
	       (unsigned long long)seed);
	fflush(stdout);
}

/*
 * Runs some seeds with one byte changed in flight.  Each that reaches that byte must fail, unless the
 * byte may have been lost, or its receiver has gone, or the link is encrypted.  True if they do.
 */
static bool sabotage_is_noticed(uint64_t first)
{
	unsigned noticed = 0, missed = 0, harmless = 0, harmed = 0;

	for (uint64_t seed = first; seed != first + SABOTAGED; seed++) {
		sim.sabotage = true;
		if (sim_seed(seed))
			*(sim.encrypted ? &harmed : &noticed) += 1;
		else if (sim.encrypted)
			harmless += !sim.sabotage;
		else if (!sim.sabotage && !sim.lossy && !sim.cut && !sim.doomed &&
			 !sim.short_of_memory)
			missed++;
	}
	sim.sabotage = false;
	printf("sim: a changed byte was noticed %u times and missed %u times; of encrypted links it did "
	       "no harm %u times, and harm %u times\n", noticed, missed, harmless, harmed);
	return noticed && !missed && harmless && !harmed;
}

int main(int argc, char **argv)
{
	uint64_t first = 1, n = SEEDS, total = 0, events = 0, runs = 0, flipped = 0, found = 0, renewed = 0;
	unsigned failed = 0, astray = 0;
	bool noticed;
	const char *module = NULL, *single = NULL;
	double begin;
	int opt;

	while ((opt = getopt(argc, argv, "n:s:m:v:")) > 0) {
		switch (opt) {
		case 'n':
			n = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			single = optarg;
			break;
		case 's':
			first = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			module = optarg;
			break;
		default:
			return 99;
		}
	}
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	catch_signals();
	load(module);
	if (single)
		return one(strtoull(single, NULL, 0));
	begin = seconds();
	for (uint64_t seed = first; seed != first + n && failed + astray < FAILURES_MAX; seed++) {
		uint64_t hash;

		alarm(SEED_SECONDS);
		runs++;
		if (sim_seed(seed)) {
			failed++;
			tell_failure(argv[0], seed);
		}
		hash = sim.hash;
		events += sim.events;
		flipped += sim.flipped;
		found += sim.found;
		renewed += sim.renewed;
		total = (total ^ hash) * 0x9ddfea08eb382d69u;
		if (seed % REPLAY)
			continue;
		sim_seed(seed);
		if (sim.hash != hash) {
			astray++;
			printf("seed %llu: took another course the second time\n",
			       (unsigned long long)seed);
		}
	}
	noticed = sabotage_is_noticed(first);
	alarm(0);
	printf("sim: %llu seeds from %llu on, %u failed, %u not repeatable, %.0f seeds/s, "
	       "%.0f events each, hash %016llx\n", (unsigned long long)runs,
	       (unsigned long long)first, failed, astray, (double)runs / (seconds() - begin),
	       (double)events / (double)runs, (unsigned long long)total);
	printf("sim: %llu bits were flipped, %llu checksums were wrong\n",
	       (unsigned long long)flipped, (unsigned long long)found);
	printf("sim: lanes had new keys %llu times\n", (unsigned long long)renewed);
	renewed += n < RENEWED;
	printf("1..5\n%sok 1 - every seed ends as the model says\n%sok 2 - seeds repeat\n"
	       "%sok 3 - a changed byte is noticed, and of an encrypted link does no harm\n"
	       "%sok 4 - a flipped bit is found by its checksum\n"
	       "%sok 5 - lanes are replaced for new keys\n",
	       failed ? "not " : "", astray ? "not " : "", noticed ? "" : "not ",
	       found ? "" : "not ", renewed ? "" : "not ");
	return failed || astray || !noticed || !found || !renewed ? 1 : 0;
}
