/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.c - commands that change the fabric, and that make the k-th call fail; see ctl.h.
 */
#include "tests/fake/ctl.h"
#include "tests/fake/fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

atomic_int live_ctx, live_pd, live_mr, live_relaxed, live_open;
atomic_int live_cq, live_qp, live_srq, live_ah, live_channel, live_posted;

/* --- calls -------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char which[64];			/* what is counted */
static atomic_ulong calls;
static atomic_ulong kth;
static atomic_int fail_errno, fail_on;
static _Atomic(const char *) failed;

static bool is_counted(enum call kind, const char *name)
{
	bool yes;

	pthread_mutex_lock(&lock);
	if (!which[0])
		yes = kind != CALL_POLL;
	else if (!strcmp(which, "setup"))
		yes = kind == CALL_SETUP;
	else if (!strcmp(which, "post"))
		yes = kind == CALL_POST;
	else if (!strcmp(which, "poll"))
		yes = kind == CALL_POLL;
	else
		yes = !strcmp(which, name);
	pthread_mutex_unlock(&lock);
	return yes;
}

void calls_forked(void)
{
	slow_forked();
	pthread_mutex_init(&lock, NULL);
}

/* BRAID_TEST_FAKE_CALLS: a file that gets a line with pid, count, and the call that failed. */
__attribute__((destructor)) static void leave(void)
{
	const char *path = getenv("BRAID_TEST_FAKE_CALLS"), *name = atomic_load(&failed);
	FILE *f = path ? fopen(path, "ae") : NULL;

	if (!f)
		return;
	fprintf(f, "%d %lu %s\n", (int)getpid(), atomic_load(&calls), name ? name : "-");
	fclose(f);
}

bool call_fails(enum call kind, const char *name)
{
	unsigned long n, k = atomic_load(&kth);

	if (kind == CALL_POLL && !k)
		return false;		/* do not lock for each poll */
	if (!is_counted(kind, name))
		return false;
	n = atomic_fetch_add(&calls, 1) + 1;
	if (!k || (n != k && !(n > k && atomic_load(&fail_on))))
		return false;
	atomic_store(&failed, name);
	errno = atomic_load(&fail_errno);
	return true;
}

bool fake_call_fails(const char *name)
{
	return call_fails(CALL_SETUP, name);
}

const char *braid_fake_failed(void)
{
	return atomic_load(&failed);
}

static int errno_of(const char *name)
{
	static const struct {
		const char *name;
		int err;
	} table[] = {
		{ "ENOMEM", ENOMEM }, { "EIO", EIO }, { "EINVAL", EINVAL }, { "EAGAIN", EAGAIN },
		{ "EBUSY", EBUSY }, { "ENODEV", ENODEV }, { "EPERM", EPERM }, { "EFAULT", EFAULT },
		{ "EOPNOTSUPP", EOPNOTSUPP }, { "ETIMEDOUT", ETIMEDOUT }, { "ENOSPC", ENOSPC },
	};

	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(table[i].name, name))
			return table[i].err;
	return 0;
}

static long do_fail(char **w, unsigned n)
{
	int err = ENOMEM, on = 0;
	const char *only = "";

	if (n < 2)
		return -EINVAL;
	for (unsigned i = 2; i < n; i++) {
		if (errno_of(w[i]))
			err = errno_of(w[i]);
		else if (!strcmp(w[i], "on"))
			on = 1;
		else
			only = w[i];
	}
	atomic_store(&kth, 0);
	pthread_mutex_lock(&lock);
	snprintf(which, sizeof(which), "%s", only);
	pthread_mutex_unlock(&lock);
	atomic_store(&fail_errno, err);
	atomic_store(&fail_on, on);
	atomic_store(&calls, 0);
	atomic_store(&failed, NULL);
	atomic_store(&kth, strtoul(w[1], NULL, 0));
	return 0;
}

/* --- the fabric --------------------------------------------------------------------------------- */

/* HOST/NAME/PORT; HOST/ and /PORT may be left out. */
static long find_port(const char *text, uint32_t *ret)
{
	struct fab *fab = fab_get();
	char copy[2 * NAME_LEN + 8], *part[3], *save;
	const char *host = fake_host(), *name;
	unsigned n = 0, port = 1;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, "/", &save); w && n < 3; w = strtok_r(NULL, "/", &save))
		part[n++] = w;
	if (!n)
		return -EINVAL;
	if (n > 1 && part[n - 1][0] >= '1' && part[n - 1][0] <= '9')
		port = (unsigned)strtoul(part[--n], NULL, 10);
	name = part[n - 1];
	if (n > 1)
		host = part[n - 2];
	for (uint32_t i = 0; i < atomic_load(&fab->ndevs); i++)
		if (!strcmp(fab->dev[i].host, host) && !strcmp(fab->dev[i].name, name) &&
		    port <= fab->dev[i].nports) {
			*ret = PORT_ID(i, port);
			return 0;
		}
	return -ENOENT;
}

static void changed(void)
{
	atomic_fetch_add(&fab_get()->routes, 1);
	fab_kick_all();
}

static long do_gid(char **w, unsigned n, uint32_t id)
{
	struct fab_gid g = { .type = IBV_GID_TYPE_ROCE_V2, .used = 1 };
	struct in_addr v4;
	unsigned long i;

	if (n < 4)
		return -EINVAL;
	i = strtoul(w[2], NULL, 0);
	if (i >= GIDS_MAX)
		return -EINVAL;
	if (n > 4 && !strcmp(w[4], "v1"))
		g.type = IBV_GID_TYPE_ROCE_V1;
	if (fab_port_dev(id)->kind == KIND_IB || fab_port_dev(id)->kind == KIND_IWARP)
		g.type = IBV_GID_TYPE_IB;
	if (!strcmp(w[3], "none")) {
		memset(&g, 0, sizeof(g));
	} else if (inet_pton(AF_INET, w[3], &v4) == 1) {
		g.gid.raw[10] = g.gid.raw[11] = 0xff;
		memcpy(&g.gid.raw[12], &v4, 4);
	} else if (inet_pton(AF_INET6, w[3], g.gid.raw) != 1) {
		return -EINVAL;
	}
	fab_lock();
	if (g.used && fab_port(id)->gid[i].used)
		g.ifindex = fab_port(id)->gid[i].ifindex;
	else if (g.used)
		g.ifindex = fab_port(id)->gid[0].ifindex;
	fab_port(id)->gid[i] = g;
	fab_event(id, IBV_EVENT_GID_CHANGE);
	fab_unlock();
	changed();
	return 0;
}

static long do_flip(char **w, unsigned n, uint32_t id)
{
	static const char *const names[] = { "sends", "writes", "counts" };

	for (unsigned i = 0; n > 3 && i < 3; i++) {
		if (strcmp(w[2], names[i]))
			continue;
		atomic_store(&fab_port(id)->flip[i], (uint32_t)strtoul(w[3], NULL, 0));
		return 0;
	}
	return -EINVAL;
}

static long do_port(char **w, unsigned n)
{
	uint32_t id, was;
	struct fab_port *p;
	long err;

	if (n < 2)
		return -EINVAL;
	err = find_port(w[1], &id);
	if (err)
		return err;
	p = fab_port(id);
	if (!strcmp(w[0], "fatal")) {
		atomic_store(&fab_port_dev(id)->fatal, 1);
		changed();
		return 0;
	}
	if (n < 3)
		return -EINVAL;
	if (!strcmp(w[0], "gid"))
		return do_gid(w, n, id);
	if (!strcmp(w[0], "flip"))
		return do_flip(w, n, id);
	if (!strcmp(w[0], "drop")) {
		atomic_store(&p->drop, (uint32_t)strtoul(w[2], NULL, 0));
	} else if (!strcmp(w[0], "lid") || !strcmp(w[0], "mtu")) {
		bool lid = w[0][0] == 'l';

		atomic_store(lid ? &p->lid : &p->mtu, (uint32_t)strtoul(w[2], NULL, 0));
		fab_lock();
		fab_event(id, lid ? IBV_EVENT_LID_CHANGE : IBV_EVENT_PORT_ACTIVE);
		fab_unlock();
	} else if (!strcmp(w[0], "lose")) {
		atomic_store(&p->lose, (uint32_t)strtoul(w[2], NULL, 0));
	} else if (!strcmp(w[0], "requests")) {
		atomic_store(&p->request_ms, (uint32_t)strtoul(w[2], NULL, 0));
	} else if (!strcmp(w[0], "delay")) {
		atomic_store(&p->delay_us, (uint32_t)strtoul(w[2], NULL, 0));
	} else {
		uint32_t up = !strcmp(w[2], "up");

		if (!up && strcmp(w[2], "down"))
			return -EINVAL;
		fab_lock();
		was = atomic_exchange(&p->up, up);
		if (was != up)
			fab_event(id, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
		fab_unlock();
	}
	changed();
	return 0;
}

static struct fab_qp *find_qp(const char *text)
{
	unsigned long qpn = strtoul(text, NULL, 0);
	struct fab_qp *q = &fab_get()->qp[qpn % QPS_MAX];

	return atomic_load(&q->nic) && atomic_load(&q->qpn) == qpn ? q : NULL;
}

static long do_count(char **w, unsigned n)
{
	static const char *const names[COUNTERS] = {
		"sends", "messages", "imms", "reads", "recvs", "packets", "retries", "rnr", "acks",
		"flips",
	};
	struct fab_qp *q;

	for (unsigned c = 0; n > 1 && c < COUNTERS; c++) {
		if (strcmp(w[1], names[c]))
			continue;
		if (n == 2)
			return (long)atomic_load(&fab_get()->count[c]);
		q = find_qp(w[2]);
		return q ? (long)atomic_load(&q->count[c]) : -ENOENT;
	}
	return -EINVAL;
}

static long do_live(char **w, unsigned n)
{
	const struct {
		const char *name;
		atomic_int *count;
	} table[] = {
		{ "ctx", &live_ctx }, { "pd", &live_pd }, { "mr", &live_mr }, { "cq", &live_cq },
		{ "qp", &live_qp }, { "srq", &live_srq }, { "ah", &live_ah }, { "channel", &live_channel },
		{ "posted", &live_posted },
		{ "relaxed", &live_relaxed },
		{ "open", &live_open },
	};

	if (n > 1 && !strcmp(w[1], "pinned"))
		return mr_pinned();
	for (unsigned i = 0; n > 1 && i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(w[1], table[i].name))
			return atomic_load(table[i].count);
	return -EINVAL;
}

static atomic_int last_tos;

void fake_tos(uint8_t tos)
{
	atomic_store(&last_tos, tos);
}

long braid_fake_ctl(const char *cmd)
{
	char copy[256], *w[8], *save;
	unsigned n = 0;
	struct fab_qp *q;

	snprintf(copy, sizeof(copy), "%s", cmd);
	for (char *p = strtok_r(copy, " ", &save); p && n < 8; p = strtok_r(NULL, " ", &save))
		w[n++] = p;
	if (!n || !fab_get())
		return -EINVAL;
	if (!strcmp(w[0], "fail"))
		return do_fail(w, n);
	if (!strcmp(w[0], "slow"))
		return n > 1 && (n > 2 || !strcmp(w[1], "none")) ?
			       slow_add(w[1], n > 2 ? w[2] : "", n > 3 ? w[3] : NULL) : -EINVAL;
	if (!strcmp(w[0], "slept"))
		return slow_calls();
	if (!strcmp(w[0], "calls"))
		return (long)atomic_load(&calls);
	if (!strcmp(w[0], "tos"))
		return atomic_load(&last_tos);
	if (!strcmp(w[0], "live"))
		return do_live(w, n);
	if (!strcmp(w[0], "count"))
		return do_count(w, n);
	if (!strcmp(w[0], "vectors"))
		return cq_vectors();
	if (!strcmp(w[0], "ece"))
		return qp_ece();
	if (!strcmp(w[0], "dlid"))
		return qp_dlid();
	if (!strcmp(w[0], "cq"))
		return n > 1 && !strcmp(w[1], "error") ? cqs_break() : -EINVAL;
	if (!strcmp(w[0], "srq"))
		return n > 1 && !strcmp(w[1], "error") ? srqs_break() : -EINVAL;
	if (!strcmp(w[0], "qp")) {
		q = n > 2 && !strcmp(w[2], "error") ? find_qp(w[1]) : NULL;
		if (!q)
			return n > 2 ? -ENOENT : -EINVAL;
		atomic_store(&q->force, FORCE_ERROR);
		fab_kick((unsigned)(q - fab_get()->qp));
		return 0;
	}
	if (!strcmp(w[0], "port") || !strcmp(w[0], "drop") || !strcmp(w[0], "lose") || !strcmp(w[0], "delay") ||
	    !strcmp(w[0], "requests") || !strcmp(w[0], "gid") || !strcmp(w[0], "fatal") ||
	    !strcmp(w[0], "lid") || !strcmp(w[0], "mtu") || !strcmp(w[0], "flip"))
		return do_port(w, n);
	return -EINVAL;
}

/* BRAID_TEST_FAKE_CTL: sets failures before the first call, and runs the rest once NICs exist. */
void fake_init(bool devices)
{
	static atomic_bool done[2];
	const char *env = getenv("BRAID_TEST_FAKE_CTL");
	char *copy, *save;

	if (!env || atomic_exchange(&done[devices], true))
		return;
	copy = strdup(env);
	for (char *w = copy ? strtok_r(copy, ";", &save) : NULL; w; w = strtok_r(NULL, ";", &save))
		if (!strncmp(w, "fail", 4) != devices && braid_fake_ctl(w) < 0)
			fprintf(stderr, "fake libibverbs: '%s' is not understood\n", w);
	free(copy);
}
