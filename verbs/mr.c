/* SPDX-License-Identifier: BSD-3-Clause */
/* mr.c - see mr.h. */
#include "verbs/mr.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"

static struct braid_log_gate gate_reg;

/* Pinned pages are limited per process: the warning has the limit, and how to raise it. */
static void warn_no_memory(const struct braid_ibport *p, size_t size, int err, const char *then)
{
	struct rlimit lim = { 0 };
	unsigned long locked = 0;
	char line[128];
	FILE *f;

	if (!braid_log_gate_open(&gate_reg, braid_os->now_ns()))
		return;
	f = fopen("/proc/self/status", "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "VmPin: %lu", &locked) == 1)
			break;
	}
	if (f)
		fclose(f);
	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (err == -ENOMEM && lim.rlim_cur != RLIM_INFINITY)
		braid_warn("port %s: can't register %zu bytes: %s; the memlock limit is %llu KiB "
			   "and %lu KiB are pinned; %s. Raise it: ulimit -l unlimited, or "
			   "'* - memlock unlimited' in /etc/security/limits.conf, or "
			   "LimitMEMLOCK=infinity in the service's unit [memlock-small]",
			   p->name, size, strerror(-err), (unsigned long long)lim.rlim_cur / 1024,
			   locked, then);
	else
		braid_warn("port %s: can't register %zu bytes: %s; %s [not-pinned]", p->name, size,
			   strerror(-err), then);
}

unsigned braid_ibport_relaxed(void)
{
	return braid_ibv.reg_mr_iova2 && braid_param.ib_pci_relaxed_ordering ?
		       IBV_ACCESS_RELAXED_ORDERING : 0;
}

struct ibv_mr *braid_ibport_reg_user(struct braid_ibport *p, void *data, size_t size,
				     unsigned access)
{
	unsigned relaxed = braid_ibport_relaxed();

	if (!relaxed)
		return braid_ibv.reg_mr(p->pd, data, size, (int)access);
	return braid_ibv.reg_mr_iova2(p->pd, data, size, (uint64_t)(uintptr_t)data,
				      access | relaxed);
}

int braid_ibport_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	const unsigned access = mem->send_only ? 0 :
						 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						 (mem->readable ? IBV_ACCESS_REMOTE_READ : 0);
	struct ibv_mr *mr = braid_ibport_reg_user(p, mem->data, mem->size, access);
	bool sealed = mem->send_only;
	int err;

	/* Drivers that don't know relaxed ordering ignore the flag or refuse it. */
	if (!mr && (errno == EINVAL || errno == EOPNOTSUPP) && braid_ibport_relaxed())
		mr = braid_ibv.reg_mr(p->pd, mem->data, mem->size, (int)access);
	/* Memory that can't be written can still be sent from. */
	if (!mr && (errno == EFAULT || errno == EACCES || errno == EPERM)) {
		mr = braid_ibv.reg_mr(p->pd, mem->data, mem->size, 0);
		sealed = mr;
	}
	if (!mr) {
		err = errno ? -errno : -EIO;
		warn_no_memory(p, mem->size, err, "messages there are copied");
		return err == -ENOMEM ? -EAGAIN : err;
	}
	*ret = (struct braid_key){
		.mr = mr, .local = mr->lkey, .remote = sealed ? 0 : mr->rkey, .sealed = sealed,
	};
	return 0;
}

void braid_ibport_dereg(struct braid_dev *dev, struct braid_key *key)
{
	(void)dev;
	braid_ibv.dereg_mr(key->mr);
}

struct ibv_mr *braid_ibport_own(struct braid_ibport *p, struct ibv_pd *pd, void *data, size_t size,
				int access)
{
	struct ibv_mr *mr = braid_ibv.reg_mr(pd, data, size, access);

	if (!mr)
		warn_no_memory(p, size, errno ? -errno : -EIO, "TCP carries what it can");
	return mr;
}
