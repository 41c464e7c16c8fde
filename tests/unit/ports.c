/* SPDX-License-Identifier: BSD-3-Clause */
/* ports.c - see ports.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include "tests/unit/ports.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/loop.h"
#include "verbs/mr.h"

enum { PATIENCE_MS = 30000 };

struct braid_dev ports_dev[PORTS_DEVS];
unsigned ports_devs;
char ports_why[512];

static char dir[64];
static long (*fake_ctl)(const char *cmd);

/* --- the process --------------------------------------------------------------------------- */

/* dlopen() by name finds a library that is loaded already, so load the fake before the product. */
static void load(const char *name)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");
	char path[PATH_MAX];
	void *lib;

	snprintf(path, sizeof(path), "%s/tests/fake/.libs/%s", build ? build : ".", name);
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	if (!fake_ctl)
		*(void **)&fake_ctl = dlsym(lib, "braid_fake_ctl");
}

void ports_of(const char *nics)
{
	char file[sizeof(dir) + 16];

	load("libibverbs.so.1");
	load("librdmacm.so.1");
	load("libmlx5.so.1");
	strcpy(dir, "/dev/shm/braid-test-XXXXXX");
	if (!mkdtemp(dir)) {
		strcpy(dir, "/tmp/braid-test-XXXXXX");
		if (!mkdtemp(dir))
			exit(99);
	}
	snprintf(file, sizeof(file), "%s/fabric", dir);
	setenv("BRAID_TEST_FAKE_FABRIC", file, 1);
	setenv("BRAID_TEST_FAKE_DEVICES", nics, 1);
}

long ports_ctl(const char *cmd)
{
	long rc = fake_ctl(cmd);

	if (rc < 0)
		fail_msg("%s: %ld", cmd, rc);
	return rc;
}

/* --- devices and ports --------------------------------------------------------------------- */

static void loopback(struct braid_dev *dev)
{
	strcpy(dev->net.name, "lo");
	strcpy(dev->addr, "127.0.0.1");
	dev->net.ifindex = if_nametoindex("lo");
	dev->net.addr.in.sin_family = AF_INET;
	inet_pton(AF_INET, dev->addr, &dev->net.addr.in.sin_addr);
	dev->nmembers = 1;
	dev->member[0] = dev;
	dev->rail = dev->plane = -1;
}

int ports_up(void **state)
{
	(void)state;
	warns_keep();
	if (braid_param_load())
		return -1;
	loopback(&ports_dev[0]);
	ports_devs = 1;
	return braid_ibport_probe(ports_dev, &ports_devs, PORTS_DEVS, ports_why,
				  sizeof(ports_why));
}

static int forget(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

int ports_down(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ports_devs; i++)
		jobs_done(&ports_dev[i]);
	nftw(dir, forget, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}

struct braid_dev *dev_named(const char *name)
{
	for (unsigned i = 0; i < ports_devs; i++) {
		if (!strcmp(ports_dev[i].net.name, name))
			return &ports_dev[i];
	}
	fail_msg("there is no device %s (%s)", name, ports_why);
	return NULL;
}

struct braid_ibport *port_named(const char *name)
{
	return braid_ibport_of(dev_named(name));
}

void ports_nap(unsigned ms, const char *what)
{
	if (ms > PATIENCE_MS)
		fail_msg("never so: %s", what);
	usleep(1000);
}

static bool is_busy(const struct braid_dev *dev)
{
	bool busy = false;

	for (unsigned i = 0; i < BRAID_JOB_KINDS; i++)
		busy |= braid_later_busy(dev, (enum braid_job_kind)i);
	return busy;
}

void jobs_done(const struct braid_dev *dev)
{
	UNTIL(!is_busy(dev));
}

/* --- a port's loop ------------------------------------------------------------------------- */

_Alignas(4096) char ports_memory[1 << 16];
struct braid_key ports_key;

struct braid_ibport *ports_loop(void)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_ibport *p = braid_ibport_of(dev);

	p->loop_dev = dev;
	if (!ports_key.mr) {
		struct ibv_mr *mr = braid_ibport_reg_user(p, ports_memory, sizeof(ports_memory),
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ);

		assert_non_null(mr);
		ports_key = (struct braid_key){ .mr = mr, .local = mr->lkey, .remote = mr->rkey };
	}
	assert_int_equal(braid_loop_wait_up(p), 0);
	return p;
}

/* --- two ends ------------------------------------------------------------------------------ */

struct braid_qp *qp_at(const struct braid_setup *s)
{
	return s->priv;
}

/* Waits for a step of one end, as the service thread does; both ends' events are read. */
static int step(struct ends *e, bool dialler, int (*call)(struct braid_setup *s,
							  const uint8_t *theirs, uint8_t *mine),
		const uint8_t *theirs, uint8_t *mine)
{
	struct braid_setup *s = dialler ? &e->dialler : &e->accepter;
	int err;

	for (unsigned ms = 0;; ms++) {
		struct braid_setup *both[] = { &e->dialler, &e->accepter };

		err = call(s, theirs, mine);
		for (unsigned i = 0; i < 2; i++) {
			struct braid_ibport *p = braid_ibport_of(both[i]->dev);

			if (p && p->cm)
				braid_cm_events(p, both[i]->dev);
		}
		if (err != -EAGAIN)
			return err;
		ports_nap(ms, "the step of a handshake is over");
	}
}

static int ready(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	(void)theirs, (void)mine;
	return braid_qp_ready(s);
}

bool ends_old;

static void forget_begins(uint8_t *blob)
{
	enum { BEGINS = 85 };

	if (ends_old)
		blob[BEGINS] = 0;
}

int ends_meet_by(struct ends *e, struct braid_dev *from, struct braid_dev *to, const char *ticket)
{
	uint8_t asked[BRAID_BLOB_SIZE] = { 0 }, answer[BRAID_BLOB_SIZE] = { 0 };
	int err;

	*e = (struct ends){
		.dialler = { .dev = from, .to = &to->net.addr.sa, .traffic_class = -1,
			     .dialler = true, .try_ms = 300 },
		.accepter = { .dev = to, .to = &from->net.addr.sa, .traffic_class = -1 },
	};
	if (ticket) {
		e->dialler.has_ticket = e->accepter.has_ticket = true;
		strcpy((char *)e->dialler.ticket, ticket);
		strcpy((char *)e->accepter.ticket, ticket);
	}
	err = step(e, true, braid_qp_setup, NULL, asked);
	forget_begins(asked);
	if (!err)
		err = step(e, false, braid_qp_setup, asked, answer);
	forget_begins(answer);
	if (!err)
		err = braid_qp_peer(&e->dialler, answer);
	if (!err)
		err = step(e, true, ready, NULL, NULL);
	return err ? err : step(e, false, ready, NULL, NULL);
}

int ends_meet(struct ends *e, struct braid_dev *from, struct braid_dev *to)
{
	return ends_meet_by(e, from, to, NULL);
}

void ends_part(struct ends *e)
{
	braid_qp_drop(&e->dialler);
	braid_qp_drop(&e->accepter);
	jobs_done(e->dialler.dev);
	jobs_done(e->accepter.dev);
}
