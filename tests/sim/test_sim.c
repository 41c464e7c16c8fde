/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_sim.c - run seeds of the simulator.
 *
 *	test_sim [-r] [-n SEEDS] [-s FIRST] [-m MODULE]	many: a line per failure, a line at the end
 *	test_sim [-r] -v SEED				one, with all that happens in it
 *	test_sim -o HOURS [-n SEEDS] [-s FIRST]		outages that last so long; or -v SEED: one
 *	test_sim -l LINKS [-t SECONDS]			one process with so many links, which rest so long
 *
 * Seeds have messages; with -r, one-sided operations, too.  Without -r, -n and -s, some of these run
 * after the others.  Every REPLAY-th seed runs twice and must take the same course; some run once
 * more with one byte changed, and must fail, unless they are encrypted: these must not.  Then the
 * core has faults in its one-sided operations, and seeds must fail.  MODULE: by default the one that
 * the build made, beside this program.
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
	SEEDS = 300, RMA_SEEDS = 40, LINKS = 128,
#else
	SEEDS = 3000, RMA_SEEDS = 2000, LINKS = 256,
#endif
	REPLAY = 32, SABOTAGED = 32, PLANTED = 8,
	RENEWED = 1000,			/* of so many seeds, one at least replaces a lane for new keys */
	OUTAGES = 6, OUTAGE_H = 12,
	LINKS_FEW = 64, REST_S = 300,
	RESIDENT_MAX = 64 << 10, LOOKS_MAX = 20, FLAP_LOOKS_MAX = 100, TIMES_MAX = 10,
	FAILURES_MAX = 20,
	SEED_SECONDS = 120,		/* of real time: longer means a thread that never yields */
	LINKS_SECONDS = 600,		/* the same for many links */
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
	printf("seed %llu: %s (%s %s-v %llu)\n", (unsigned long long)seed, sim.failure, self,
	       sim.rma ? "-r " : "", (unsigned long long)seed);
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

/* Runs some seeds with each fault that the module can have. */
static bool plants_are_noticed(uint64_t first)
{
	static const char *const names[SIM_PLANTS] = {
		[SIM_PLANT_EARLY] = "a strong signal that overtakes",
		[SIM_PLANT_TWICE] = "a signal that is added twice",
		[SIM_PLANT_LOST] = "a signal that is lost",
		[SIM_PLANT_DONE] = "a request that is done too early",
		[SIM_PLANT_LATE] = "a write into a window that is closed",
	};
	bool all = true;

	sim.rma = true;
	for (unsigned plant = 1; plant < SIM_PLANTS; plant++) {
		unsigned noticed = 0, struck = 0;

		sim.plant = (enum sim_plant)plant;
		for (uint64_t seed = first; seed != first + PLANTED; seed++) {
			bool failed = sim_seed(seed);

			struck += sim.planted;
			noticed += sim.planted && failed;
		}
		printf("sim: %s was noticed in %u of %u seeds\n", names[plant], noticed, struck);
		all &= noticed > 0;
	}
	sim.plant = SIM_PLANT_NONE;
	return all;
}

/*
 * Outages of so many hours: half of them longer than BRAID_PEER_TIMEOUT.  True if all end as they
 * must, and messages waited in some of each half.
 */
static bool outages(uint64_t first, unsigned n, unsigned hours)
{
	unsigned struck[2] = { 0, 0 }, failed = 0, dials = 0, silences = 0;
	double begin = seconds();

	sim.rma = false;
	sim.outage_s = hours * 3600ull;
	for (uint64_t seed = first; seed != first + n; seed++) {
		bool is_short = seed & 1;

		alarm(SEED_SECONDS);
		sim.timeout_s = is_short ? sim.outage_s / 6 : sim.outage_s + 3600;
		if (sim_seed(seed)) {
			failed++;
			printf("seed %llu, an outage of %u h: %s\n", (unsigned long long)seed, hours,
			       sim.failure);
		}
		struck[is_short] += sim.struck;
		dials = sim.dials > dials ? sim.dials : dials;
		silences = sim.silences > silences ? sim.silences : silences;
	}
	sim.outage_s = 0;
	printf("sim: %u outages of %u h in %.0f s: %u failed; messages waited in %u that ended in time "
	       "and %u that did not; at most %u dials and %u warnings\n", n, hours,
	       seconds() - begin, failed, struck[0], struck[1], dials, silences);
	return !failed && struck[0] && struck[1];
}

/* A look at all links in each tick would be 60 a second and link; at each flap, one for each link. */
static bool costs_what_is_due(const struct sim_scale *r)
{
	if (r->resident > RESIDENT_MAX)
		sim_fail("a link at rest keeps %.0f bytes in memory", r->resident);
	if (r->idle.looks > LOOKS_MAX || r->idle.rounds > LOOKS_MAX * r->links)
		sim_fail("%.1f looks a second and link at rest, in %.1f rounds", r->idle.looks,
			 r->idle.rounds);
	if (r->flaps.looks_a_flap > FLAP_LOOKS_MAX)
		sim_fail("a flap costs %.1f looks at links", r->flaps.looks_a_flap);
	return !sim.failure[0];
}

static bool costs_no_more(const struct sim_scale *few, const struct sim_scale *many)
{
	if (many->idle.looks > TIMES_MAX * few->idle.looks ||
	    many->idle.rounds / many->links > TIMES_MAX * few->idle.rounds / few->links)
		sim_fail("each of %u links at rest costs more than %d times what each of %u does",
			 many->links, TIMES_MAX, few->links);
	return !sim.failure[0];
}

/* Links at rest or flapping cost what is due for them: of few links as of many. */
static bool many_links(unsigned n, unsigned idle_s)
{
	struct sim_scale few = { .links = LINKS_FEW, .idle_s = idle_s };
	struct sim_scale many = { .links = n, .idle_s = idle_s };
	const struct sim_scale *const both[] = { &few, &many };
	double begin = seconds();
	bool good;

	sim.rma = false;
	good = !sim_scale(&few);
	good = good && !sim_scale(&many) && costs_what_is_due(&few) && costs_what_is_due(&many) &&
	       costs_no_more(&few, &many);
	for (unsigned i = 0; i < 2; i++)
		printf("sim: %u links, at rest for %u s: %.2f descriptors, %.1f KiB and %.1f in memory "
		       "each; %.1f rounds/s, %.3f looks/s each; flapping: %.1f rounds/s, %.3f "
		       "looks/s each, %.1f looks a flap\n", both[i]->links, idle_s,
		       both[i]->descriptors, both[i]->allocated / 1024, both[i]->resident / 1024,
		       both[i]->idle.rounds, both[i]->idle.looks, both[i]->flaps.rounds,
		       both[i]->flaps.looks, both[i]->flaps.looks_a_flap);
	if (!good)
		printf("sim: many links: %s\n", sim.failure);
	printf("sim: this took %.0f s\n", seconds() - begin);
	return good;
}

struct runs {
	uint64_t n, hash, events, flipped, found, renewed, repathed, sent, received, lent;
	unsigned failed, astray;
	bool noticed;
};

static struct runs run(const char *self, uint64_t first, uint64_t n)
{
	struct runs r = { 0 };
	double begin = seconds();

	for (uint64_t seed = first; seed != first + n && r.failed + r.astray < FAILURES_MAX; seed++) {
		uint64_t hash;

		alarm(SEED_SECONDS);
		r.n++;
		if (sim_seed(seed)) {
			r.failed++;
			tell_failure(self, seed);
		}
		hash = sim.hash;
		r.events += sim.events;
		r.flipped += sim.flipped;
		r.found += sim.found;
		r.renewed += sim.renewed;
		r.repathed += sim.repathed;
		r.sent += sim.threads_sent;
		r.received += sim.threads_received;
		r.lent += sim.lent;
		r.hash = (r.hash ^ hash) * 0x9ddfea08eb382d69u;
		if (seed % REPLAY)
			continue;
		sim_seed(seed);
		if (sim.hash != hash) {
			r.astray++;
			printf("seed %llu: took another course the second time\n",
			       (unsigned long long)seed);
		}
	}
	r.noticed = sabotage_is_noticed(first);
	printf("sim: %llu seeds %sfrom %llu on, %u failed, %u not repeatable, %.0f seeds/s, "
	       "%.0f events each, hash %016llx\n", (unsigned long long)r.n,
	       sim.rma ? "with one-sided operations " : "", (unsigned long long)first, r.failed,
	       r.astray, (double)r.n / (seconds() - begin), (double)r.events / (double)r.n,
	       (unsigned long long)r.hash);
	printf("sim: %llu bits were flipped, %llu checksums were wrong\n",
	       (unsigned long long)r.flipped, (unsigned long long)r.found);
	printf("sim: lanes had new keys %llu times, another path %llu times\n",
	       (unsigned long long)r.renewed, (unsigned long long)r.repathed);
	printf("sim: threads sent %.1f MB and received %.1f MB in place of callers\n",
	       (double)r.sent / 1e6, (double)r.received / 1e6);
	printf("sim: %llu calls sent bytes without a copy\n", (unsigned long long)r.lent);
	r.renewed += n < RENEWED;
	r.repathed += n < RENEWED;
	return r;
}

static bool result(bool good, unsigned number, const char *what)
{
	printf("%sok %u - %s\n", good ? "" : "not ", number, what);
	return good;
}

int main(int argc, char **argv)
{
	const char *module = NULL, *single = NULL;
	uint64_t first = 1, n = 0;
	struct runs m = { 0 }, r = { 0 };
	bool only = false, plants, lasting, links_cost, good;
	unsigned hours = 0, links = 0, rest_s = REST_S;
	int opt;

	while ((opt = getopt(argc, argv, "n:s:m:v:ro:l:t:")) > 0) {
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
		case 'o':
			hours = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'l':
			links = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 't':
			rest_s = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'r':
			only = true;
			break;
		default:
			return 99;
		}
	}
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	catch_signals();
	load(module);
	if (hours && single) {
		sim.verbose = true;
		first = strtoull(single, NULL, 0);
		n = 1;
	}
	if (hours)
		return outages(first, n ? (unsigned)n : OUTAGES, hours) ? 0 : 1;
	if (links)
		return many_links(links, rest_s) ? 0 : 1;
	sim.rma = only;
	if (single)
		return one(strtoull(single, NULL, 0));
	if (!only)
		m = run(argv[0], first, n ? n : SEEDS);
	sim.rma = true;
	if (only || !n)
		r = run(argv[0], first, n ? n : RMA_SEEDS);
	plants = plants_are_noticed(first);
	lasting = outages(first, OUTAGES, OUTAGE_H);
	alarm(LINKS_SECONDS);
	links_cost = many_links(LINKS, REST_S);
	alarm(0);
	printf("1..10\n");
	good = result(!m.failed && !r.failed, 1, "every seed ends as the model says");
	good &= result(!m.astray && !r.astray, 2, "seeds repeat");
	good &= result((m.noticed || only) && (r.noticed || !r.n), 3, "a changed byte is noticed, and "
		       "of an encrypted link does no harm");
	good &= result(m.found || r.found, 4, "a flipped bit is found by its checksum");
	good &= result((m.renewed || only) && (r.renewed || !r.n) && (m.repathed || only) &&
		       (r.repathed || !r.n), 5, "lanes are replaced for new keys and other paths");
	good &= result(plants, 6, "faults of one-sided operations are noticed");
	good &= result(lasting, 7, "an outage of 12 h costs no byte, or is an error at its time");
	good &= result(m.sent + r.sent && m.received + r.received, 8, "threads of BRAID_THREADS send "
		       "and receive");
	good &= result(links_cost, 9, "links at rest or flapping cost what is due, and no message");
	good &= result(m.lent + r.lent, 10, "kernels read what is sent where processes have it");
	return good ? 0 : 1;
}
