/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c - see fault.h. */
#include "tests/lib/fault.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { REL_SLOT = R_X86_64_JUMP_SLOT, REL_DATA = R_X86_64_GLOB_DAT, REL_WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum { REL_SLOT = R_AARCH64_JUMP_SLOT, REL_DATA = R_AARCH64_GLOB_DAT, REL_WORD = R_AARCH64_ABS64 };
#else
enum { REL_SLOT = -1, REL_DATA = -1, REL_WORD = -1 };
#endif

static atomic_uint calls[FAULT_KINDS], kth[FAULT_KINDS];
static atomic_int how, io_errno, failed_err;
static _Atomic(const char *) failed, only;
static atomic_bool no_memory;
static atomic_long blocks;
static char *note;
static unsigned note_len;
static _Atomic(struct fault_trace *) trace;

void fault_arm(enum fault_kind kind, unsigned k, enum fault_how how_)
{
	for (int i = 0; i < FAULT_KINDS; i++)
		kth[i] = 0;
	calls[kind] = 0;
	failed = NULL;
	failed_err = 0;
	how = (int)how_;
	kth[kind] = k;
}

void fault_only(const char *name)
{
	only = name;
}

void fault_memory(bool none)
{
	no_memory = none;
}

void fault_errno(int err)
{
	io_errno = err;
}

void fault_note(char *ret, unsigned len)
{
	note = ret;
	note_len = len;
}

void fault_trace(struct fault_trace *ret)
{
	trace = ret;
}

const char *fault_name(void)
{
	return failed;
}

int fault_err(void)
{
	return failed_err;
}

long fault_blocks(void)
{
	return blocks;
}

/* The plugin's functions on the stack of this call, as one number. */
static uintptr_t path_here(void)
{
	enum { OURS = 3, THEIRS = 4 };	/* ours: path_here(), fails() and the stand-in */
	void *frames[OURS + THEIRS];
	int n = backtrace(frames, OURS + THEIRS);
	uintptr_t path = 0;

	for (int i = OURS; i < n; i++)
		path = path * 31 + (uintptr_t)frames[i];
	return path;
}

/* Counts a call.  True: it is to fail, and errno is set. */
static bool fails(enum fault_kind kind, const char *name, int err)
{
	const char *first = failed, *wanted = only;
	struct fault_trace *t = trace;
	unsigned n;

	if (wanted && strcmp(wanted, name) != 0)
		return false;
	n = atomic_fetch_add(&calls[kind], 1) + 1;
	if (t && n <= sizeof(t->name) / sizeof(t->name[0])) {
		snprintf(t->name[n - 1], sizeof(t->name[0]), "%s", name);
		t->path[n - 1] = path_here();
	}
	if (!kth[kind] || (n != kth[kind] && !(how == FAULT_ON && first && !strcmp(first, name))))
		return false;
	if (kind == FAULT_IO && io_errno)
		err = io_errno;
	if (!first) {
		failed_err = err;
		failed = name;
		if (note)
			snprintf(note, note_len, "%s", name);
	}
	errno = err;
	return true;
}

static bool no_room(const char *name)
{
	if (!no_memory)
		return fails(FAULT_SETUP, name, ENOMEM);
	errno = ENOMEM;
	return true;
}

static void *taken(void *p)
{
	if (p)
		atomic_fetch_add(&blocks, 1);
	return p;
}

/* --- stand-ins ----------------------------------------------------------------------------- */

static void *f_malloc(size_t n)
{
	return no_room("malloc") ? NULL : taken(malloc(n));
}

static void *f_calloc(size_t n, size_t size)
{
	return no_room("calloc") ? NULL : taken(calloc(n, size));
}

static void *f_realloc(void *p, size_t n)
{
	if (no_room("realloc"))
		return NULL;
	return p ? realloc(p, n) : taken(malloc(n));
}

static void f_free(void *p)
{
	if (p)
		atomic_fetch_sub(&blocks, 1);
	free(p);
}

static void *f_mmap(void *p, size_t n, int prot, int flags, int fd, off_t off)
{
	return no_room("mmap") ? MAP_FAILED : mmap(p, n, prot, flags, fd, off);
}

#define STAND_IN(kind, err, name, params, args)				\
	static int f_##name params						\
	{									\
		return fails(kind, #name, err) ? -1 : name args;		\
	}

#define STAND_IN_IO(err, name, params, args)					\
	static ssize_t f_##name params						\
	{									\
		return fails(FAULT_IO, #name, err) ? -1 : name args;		\
	}

STAND_IN(FAULT_SETUP, EMFILE, socket, (int family, int type, int proto), (family, type, proto))
STAND_IN(FAULT_SETUP, EADDRNOTAVAIL, bind, (int fd, const struct sockaddr *sa, socklen_t len),
	 (fd, sa, len))
STAND_IN(FAULT_SETUP, EADDRINUSE, listen, (int fd, int n), (fd, n))
STAND_IN(FAULT_SETUP, EMFILE, accept4, (int fd, struct sockaddr *sa, socklen_t *len, int flags),
	 (fd, sa, len, flags))
STAND_IN(FAULT_SETUP, ENETUNREACH, connect, (int fd, const struct sockaddr *sa, socklen_t len),
	 (fd, sa, len))
STAND_IN(FAULT_SETUP, ENOBUFS, getsockname, (int fd, struct sockaddr *sa, socklen_t *len),
	 (fd, sa, len))
STAND_IN(FAULT_SETUP, ENOBUFS, getpeername, (int fd, struct sockaddr *sa, socklen_t *len),
	 (fd, sa, len))
STAND_IN(FAULT_SETUP, ENOBUFS, setsockopt,
	 (int fd, int level, int name, const void *val, socklen_t len),
	 (fd, level, name, val, len))
STAND_IN(FAULT_SETUP, ENOBUFS, getsockopt,
	 (int fd, int level, int name, void *val, socklen_t *len), (fd, level, name, val, len))
STAND_IN(FAULT_SETUP, EMFILE, epoll_create1, (int flags), (flags))
STAND_IN(FAULT_SETUP, EMFILE, eventfd, (unsigned n, int flags), (n, flags))
STAND_IN(FAULT_SETUP, ENOMEM, getifaddrs, (struct ifaddrs **ret), (ret))
STAND_IN(FAULT_SETUP, ENAMETOOLONG, gethostname, (char *ret, size_t len), (ret, len))

STAND_IN_IO(ECONNRESET, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
STAND_IN_IO(ECONNRESET, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
STAND_IN_IO(ECONNRESET, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
STAND_IN_IO(ECONNRESET, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
STAND_IN_IO(EINTR, epoll_wait, (int ep, struct epoll_event *ev, int max, int ms),
	    (ep, ev, max, ms))

/* Removing a descriptor never fails. */
static int f_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	if (op != EPOLL_CTL_DEL && fails(FAULT_SETUP, "epoll_ctl", ENOMEM))
		return -1;
	return epoll_ctl(ep, op, fd, ev);
}

static int f_open(const char *path, int flags, ...)
{
	return fails(FAULT_SETUP, "open", EMFILE) ? -1 : open(path, flags);
}

static FILE *f_fopen(const char *path, const char *mode)
{
	return fails(FAULT_SETUP, "fopen", EMFILE) ? NULL : fopen(path, mode);
}

static DIR *f_opendir(const char *path)
{
	return fails(FAULT_SETUP, "opendir", EMFILE) ? NULL : opendir(path);
}

static char *f_realpath(const char *path, char *ret)
{
	return fails(FAULT_SETUP, "realpath", ENOMEM) ? NULL : realpath(path, ret);
}

static int f_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *),
			    void *arg)
{
	return fails(FAULT_SETUP, "pthread_create", EAGAIN) ? EAGAIN :
							      pthread_create(ret, attr, fn, arg);
}

/* The function that pthread_atfork() calls in a shared object. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso);

static int f_register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
			     void *dso)
{
	return fails(FAULT_SETUP, "pthread_atfork", ENOMEM) ? ENOMEM :
		__register_atfork(prepare, parent, child, dso);
}

static const struct {
	const char *name;
	void *fn;
} stand_ins[] = {
#define ROW(name) { #name, (void *)f_##name }
	ROW(malloc), ROW(calloc), ROW(realloc), ROW(free), ROW(mmap),
	ROW(socket), ROW(bind), ROW(listen), ROW(accept4), ROW(connect),
	ROW(getsockname), ROW(getpeername), ROW(setsockopt), ROW(getsockopt),
	ROW(epoll_create1), ROW(epoll_ctl), ROW(eventfd), ROW(pthread_create),
	ROW(getifaddrs), ROW(gethostname), ROW(open), ROW(fopen), ROW(opendir), ROW(realpath),
	ROW(send), ROW(recv), ROW(sendmsg), ROW(recvmsg), ROW(epoll_wait),
	{ "__register_atfork", (void *)f_register_atfork },
};

/* --- where the plugin's calls go ----------------------------------------------------------- */

static void *stand_in(const char *name)
{
	for (size_t i = 0; i < sizeof(stand_ins) / sizeof(stand_ins[0]); i++) {
		if (!strcmp(stand_ins[i].name, name))
			return stand_ins[i].fn;
	}
	return NULL;
}

static bool put(void **place, void *fn)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *from = (void *)((uintptr_t)place & ~(page - 1));

	if (mprotect(from, page, PROT_READ | PROT_WRITE))	/* it may be read-only */
		return false;
	*place = fn;
	return true;
}

bool fault_install(void *dl)
{
	const ElfW(Rela) *tables[2] = { NULL, NULL };
	size_t sizes[2] = { 0, 0 };
	const ElfW(Sym) *syms = NULL;
	const char *strs = NULL;
	struct link_map *map;
	unsigned n = 0;

	if (REL_SLOT < 0 || dlinfo(dl, RTLD_DI_LINKMAP, &map))
		return false;
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB: syms = (const ElfW(Sym) *)d->d_un.d_ptr; break;
		case DT_STRTAB: strs = (const char *)d->d_un.d_ptr; break;
		case DT_JMPREL: tables[0] = (const ElfW(Rela) *)d->d_un.d_ptr; break;
		case DT_PLTRELSZ: sizes[0] = d->d_un.d_val; break;
		case DT_RELA: tables[1] = (const ElfW(Rela) *)d->d_un.d_ptr; break;
		case DT_RELASZ: sizes[1] = d->d_un.d_val; break;
		default: break;
		}
	}
	for (int t = 0; t < 2; t++) {
		for (size_t i = 0; tables[t] && i < sizes[t] / sizeof(*tables[t]); i++) {
			const ElfW(Rela) *r = &tables[t][i];
			int type = (int)ELF64_R_TYPE(r->r_info);
			const char *name = strs + syms[ELF64_R_SYM(r->r_info)].st_name;
			void *fn = stand_in(name);

			if (!fn || (type != REL_SLOT && type != REL_DATA && type != REL_WORD))
				continue;
			if (!put((void **)(map->l_addr + r->r_offset), fn))
				return false;
			n++;
		}
	}
	return n > 0;
}
