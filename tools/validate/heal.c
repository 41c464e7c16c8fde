/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heal.c - how fast data moves before, during and after an outage, with --faults.
 *
 * One stream of messages, whose bytes are compared, to the other end.  The check fails only if the
 * rate is not back after ten times what Braid promises; the time that it took is reported.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tools/rates.h"
#include "tools/validate/far.h"
#include "tools/validate/outage.h"

enum {
	PROMISED_S = 5, TIMES = 10,
	STEADY_S = 15,			/* at most, until the rate before is steady */
	DOWN_MS = 3000,
	ALL_MS = 100000,
};

struct trial {
	struct validate *v;
	struct stream s;
	struct order order;		/* the other end's part */
	double before, during, after, back_s;
};

/* An error fails Braid only: other plugins need not survive an outage.  Wrong data fails any. */
static void ended(struct trial *t, const char *why)
{
	const char *plugin = t->v->net->name;

	if (strncmp(why, "message", 7) == 0)
		FAIL("%s", why);
	if (is_braid(t->v))
		FAIL("an error, though the link is back: %s", why);
	skip(t->v, "%s does not go on after an outage: %s", plugin, why);
}

static void run_for(struct trial *t, unsigned ms)
{
	uint64_t end = now_us() + ms * UINT64_C(1000);
	struct order answer;

	while (now_us() < end) {
		for (int i = 0; i < 32; i++) {
			if (stream_step(&t->s))
				ended(t, t->s.bad);
		}
		if (far_answer(t->v, &answer, 0))
			ended(t, answer.text);
		sched_yield();
	}
}

/* Mbit/s */
static double rate_for(struct trial *t, unsigned ms)
{
	uint64_t from = now_us(), bytes = t->s.bytes;

	run_for(t, ms);
	return (double)(t->s.bytes - bytes) * 8 / (double)(now_us() - from);
}

static void measure_before(struct trial *t)
{
	unsigned steady = 0;
	double last = 0;

	step(t->v, "the rate before");
	for (int i = 0; i < STEADY_S && !rates_steady(rate_for(t, 1000), &last, &steady); i++)
		;
	t->before = rate_for(t, 2000);
}

static void measure_after(struct trial *t)
{
	static struct rates r;
	uint64_t from = now_us();
	double s;

	step(t->v, "the rate after");
	do {
		run_for(t, RATES_LOOK_MS);
		rates_add(&r, now_us() * 1000, t->s.bytes);
		s = (double)(r.at[r.i < r.n ? r.i : 0].ns / 1000 - from) / 1e6;
		if (s > PROMISED_S * TIMES)
			FAIL("%.0f Mbit/s %.0f s after the link was back, %.0f before",
			     t->after, s, t->before);
	} while (!rates_back(&r, t->before, &t->after));
	t->back_s = (double)(r.at[r.i].ns / 1000 - from) / 1e6;
}

static bool step_on(void *arg)
{
	struct trial *t = arg;

	return stream_step(&t->s);
}

static void heal(struct validate *v, bool (*down)(struct validate *v),
		 bool (*up)(struct validate *v))
{
	static struct trial t;
	struct conn conn;

	t = (struct trial){ .v = v, .order = { .what = FAR_STREAM, .ms = ALL_MS } };
	both_up(v);
	conn = conn_open(v, true);
	t.order.seed[0] = chance(v, UINT64_MAX);
	t.order.comm = conn.far;
	stream_begin(v, &t.s, conn.comm, false, t.order.seed[0]);
	far_send(v, &t.order);
	measure_before(&t);
	if (!down(v))
		skip(v, "it can't be taken down");
	step(v, "the rate while it is down for %d s", DOWN_MS / 1000);
	run_for(&t, DOWN_MS / 2);
	t.during = rate_for(&t, DOWN_MS / 2);
	TRUE(up(v));
	measure_after(&t);
	t.s.ends = true;
	WAIT_FOR(step_on(&t));
	TRUE(far_answer(v, &t.order, ANSWER_MS));
	if (*t.s.bad || *t.order.text)
		ended(&t, *t.s.bad ? t.s.bad : t.order.text);
	stream_end(&t.s);
	conn_close(v, &conn);
	figure(v, &(struct figure){ "rate_back", "s", t.back_s, false, &t.back_s, 1, NULL });
	saw(v, "%.0f Mbit/s before, %.0f during, %.0f after (%.3f of before), 97 %% after %.2f s "
	    "(%s%d s; the check fails at %d s)", t.before, t.during, t.after, t.after / t.before,
	    t.back_s, t.back_s > PROMISED_S ? "slower than Braid promises, " : "Braid promises ",
	    PROMISED_S, PROMISED_S * TIMES);
}

static void heal_link(struct validate *v)
{
	own_network(v);
	if (!command("tc qdisc add dev lo root tbf rate 400mbit burst 256k limit 4m"))
		note(v, "the rate is what the CPUs allow: there is no tbf here");
	heal(v, lo_down, lo_up);
}

static void heal_port(struct validate *v)
{
	needs_port(v);
	heal(v, port_down, port_up);
}

static const char mend[] = "Jobs are slow after a flap: report it";

const struct vcheck validate_heal[] = {
	{ "fault-heal", "After a link was down the rate is what it was before", mend, heal_link,
	  V_FAULT | V_HERE, 100 },
	{ "fault-heal-port", "After a port was down the rate is what it was before", mend,
	  heal_port, V_FAULT, 100 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
