/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.c - registered memory: keys, bounds, rights.
 *
 * The process has one table; a key is an index into it and eight bits that change.  Registered
 * memory is touched only between mr_enter() and mr_leave(), so once ibv_dereg_mr() has returned, no
 * thread touches the region.
 *
 * GPU memory is that of tests/fakecuda, if the process has it loaded: registered through
 * nvidia-peermem, if the NIC has that, or by its DMA-BUF.
 */
#include "tests/fake/nic.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MRS_MAX = 1 << 17 };

static pthread_rwlock_t mr_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static struct fmr *table[MRS_MAX];
static uint8_t salt[MRS_MAX];
static unsigned next_mr;
static uint64_t pinned;

long mr_pinned(void)
{
	long n;

	pthread_rwlock_rdlock(&mr_lock);
	n = (long)pinned;
	pthread_rwlock_unlock(&mr_lock);
	return n;
}

void mr_enter(void)
{
	pthread_rwlock_rdlock(&mr_lock);
}

void mr_leave(void)
{
	pthread_rwlock_unlock(&mr_lock);
}

/* In a forked child: a thread of the parent may have held the lock. */
void mr_forked(void)
{
	static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

	mr_lock = fresh;
}

uint8_t *mr_at(struct ibv_pd *pd, uint32_t key, uint64_t va, uint64_t len, unsigned access)
{
	struct fmr *mr = key >> 8 < MRS_MAX ? table[key >> 8] : NULL;

	if (!mr || mr->ibv.lkey != key || mr->ibv.pd != pd || (mr->access & access) != access)
		return NULL;
	if (va < mr->iova || len > mr->ibv.length || va - mr->iova > mr->ibv.length - len)
		return NULL;
	return mr->host + (va - mr->iova);
}

/* A write into a GPU that the bus has not delivered yet. */
struct late {
	struct late *next;
	bool direct;
	uint8_t *to;
	size_t n;
	uint8_t bytes[];
};

static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static struct late *first, **last = &first;

static void settle(bool direct)
{
	struct late **at = &first, *l;

	pthread_mutex_lock(&late_lock);
	while ((l = *at)) {
		if (l->direct && !direct) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		place(l->to, l->bytes, l->n);
		free(l);
	}
	last = at;
	pthread_mutex_unlock(&late_lock);
}

void mr_settle(void)
{
	settle(true);
}

/* For tests/fakecuda: the CPU reads, which does not settle writes that went by Data Direct. */
EXPORT void braid_fake_settle(void);
void braid_fake_settle(void)
{
	settle(false);
}

void mr_write(struct ibv_pd *pd, uint32_t key, uint8_t *to, const uint8_t *from, size_t n)
{
	const struct fmr *mr = table[key >> 8];
	bool gpu = (uintptr_t)mr->host != mr->iova;
	struct late *l = gpu && to_ctx(pd->context)->dev->has_late ? malloc(sizeof(*l) + n) : NULL;

	if (!l) {
		place(to, from, n);
		return;
	}
	*l = (struct late){ .to = to, .n = n, .direct = mr->direct };
	memcpy(l->bytes, from, n);
	pthread_mutex_lock(&late_lock);
	*last = l;
	last = &l->next;
	pthread_mutex_unlock(&late_lock);
}

/* Is the range mapped?  The kernel would have to pin its pages. */
static bool is_mapped(const uint8_t *addr, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + len;
	unsigned char vec[4096];

	while (at < end) {
		size_t n = (end - at + page - 1) / page;

		if (n > sizeof(vec))
			n = sizeof(vec);
		if (mincore((void *)at, n * page, vec) < 0)
			return false;
		at += n * page;
	}
	return true;
}

/* Are some pages read-only?  False, too, if the kernel can't be asked. */
static bool is_read_only(uint8_t *addr, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = (uintptr_t)addr % page;
	void *at = addr - skip;

	return madvise(at, 1, MADV_POPULATE_WRITE) < 0 && !madvise(at, 1, MADV_POPULATE_READ) &&
	       madvise(at, skip + len, MADV_POPULATE_WRITE) < 0;
}

static struct ibv_mr *reg(struct ibv_pd *pd, uint8_t *host, void *addr, size_t len, uint64_t iova,
			  unsigned access)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			       IB_UVERBS_ACCESS_OPTIONAL_RANGE;
	struct fdev *d = to_ctx(pd->context)->dev;
	struct fmr *mr;
	unsigned i;

	errno = EINVAL;
	if (!len || access & ~known || (uintptr_t)host + len < (uintptr_t)host || iova + len < iova)
		return NULL;
	/* IBA: remote write needs local write */
	if (access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE))
		return NULL;
	if (!is_mapped(host, len) || (access & IBV_ACCESS_LOCAL_WRITE && is_read_only(host, len))) {
		errno = EFAULT;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	pthread_rwlock_wrlock(&mr_lock);
	if (atomic_load(&d->mrs) >= d->max.max_mr || (d->memlock && pinned + len > d->memlock))
		goto full;
	for (unsigned n = 0;; n++) {
		if (n == MRS_MAX)
			goto full;
		i = (next_mr + n) % MRS_MAX;
		if (!table[i])
			break;
	}
	next_mr = i + 1;
	salt[i]++;
	*mr = (struct fmr){
		.ibv = { pd->context, pd, addr, len, i, i << 8 | salt[i], i << 8 | salt[i] },
		.iova = iova, .host = host, .access = access,
	};
	table[i] = mr;
	pinned += len;
	atomic_fetch_add(&d->mrs, 1);
	pthread_rwlock_unlock(&mr_lock);
	atomic_fetch_add(&TO(fpd, pd)->users, 1);
	atomic_fetch_add(&live_mr, 1);
	if (access & IBV_ACCESS_RELAXED_ORDERING)
		atomic_fetch_add(&live_relaxed, 1);
	if (access & IBV_ACCESS_REMOTE_WRITE)
		atomic_fetch_add(&live_open, 1);
	return &mr->ibv;
full:
	pthread_rwlock_unlock(&mr_lock);
	free(mr);
	errno = ENOMEM;
	return NULL;
}

/* The real address of the bytes at the program's `addr`; NULL: no NIC can reach them. */
static uint8_t *bytes_at(struct ibv_pd *pd, void *addr, size_t len)
{
	void *(*bytes)(const void *ptr, size_t size);
	bool (*peermem)(const void *ptr, size_t size);
	void *gpu = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *f = gpu ? dlsym(gpu, "braid_fakecuda_bytes") : NULL, *at;

	/* The thread keeps dlsym()'s error until dlerror() has been called twice. */
	if (!f && dlerror())
		dlerror();
	memcpy(&bytes, &f, sizeof(f));
	at = f ? bytes(addr, 1) : NULL;
	f = at ? dlsym(gpu, "braid_fakecuda_peermem") : NULL;
	memcpy(&peermem, &f, sizeof(f));
	if (gpu)
		dlclose(gpu);
	if (!at)
		return addr;		/* the CPU's memory */
	if (to_ctx(pd->context)->dev->has_peermem && peermem(addr, len))
		return at;
	errno = EFAULT;
	return NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	uint8_t *at;

	call_takes(pd->context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(pd->context))
		return NULL;
	at = bytes_at(pd, addr, len);
	return at ? reg(pd, at, addr, len, (uintptr_t)addr, (unsigned)access) : NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
				       unsigned access)
{
	uint8_t *at;

	call_takes(pd->context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(pd->context))
		return NULL;
	at = bytes_at(pd, addr, len);
	return at ? reg(pd, at, addr, len, iova, access) : NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, iova, (unsigned)access);
}

/* fd: any file that can be mapped (udmabuf, memfd); the buffer begins at the file's position. */
struct ibv_mr *fake_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
			       int access, bool direct)
{
	const struct fdev *d = to_ctx(pd->context)->dev;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t skip = offset % page;
	off_t beg;
	struct ibv_mr *mr;
	void *map;

	call_takes(pd->context, direct ? "mlx5dv_reg_dmabuf_mr" : "ibv_reg_dmabuf_mr");
	if (call_fails(CALL_SETUP, direct ? "mlx5dv_reg_dmabuf_mr" : "ibv_reg_dmabuf_mr") ||
	    ctx_is_dead(pd->context))
		return NULL;
	if (direct ? !d->has_direct : !d->has_dmabuf) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (fd < 0) {
		errno = EBADF;
		return NULL;
	}
	if (!len || (iova - offset) % page) {
		errno = EINVAL;
		return NULL;
	}
	beg = lseek(fd, 0, SEEK_CUR);
	if (beg < 0)
		beg = 0;
	map = mmap(NULL, len + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd, beg + (off_t)(offset - skip));
	if (map == MAP_FAILED)
		return NULL;
	mr = reg(pd, (uint8_t *)map + skip, NULL, len, iova, (unsigned)access);
	if (!mr) {
		int err = errno;

		munmap(map, len + skip);
		errno = err;
		return NULL;
	}
	pthread_rwlock_wrlock(&mr_lock);
	TO(fmr, mr)->direct = direct;
	TO(fmr, mr)->map = map;
	TO(fmr, mr)->map_len = len + skip;
	pthread_rwlock_unlock(&mr_lock);
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
					int fd, int access)
{
	return fake_reg_dmabuf(pd, offset, len, iova, fd, access, false);
}

const char *fake_direct_path(struct ibv_context *ctx)
{
	return to_ctx(ctx)->dev->direct_path;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct fmr *mr = TO(fmr, ibv);

	call_takes(ibv->context, __func__);
	mr_settle();
	pthread_rwlock_wrlock(&mr_lock);
	table[ibv->handle] = NULL;
	pinned -= ibv->length;
	pthread_rwlock_unlock(&mr_lock);
	atomic_fetch_sub(&to_ctx(ibv->context)->dev->mrs, 1);
	atomic_fetch_sub(&TO(fpd, ibv->pd)->users, 1);
	if (mr->map)
		munmap(mr->map, mr->map_len);
	if (mr->access & IBV_ACCESS_RELAXED_ORDERING)
		atomic_fetch_sub(&live_relaxed, 1);
	if (mr->access & IBV_ACCESS_REMOTE_WRITE)
		atomic_fetch_sub(&live_open, 1);
	free(mr);
	atomic_fetch_sub(&live_mr, 1);
	return 0;
}
