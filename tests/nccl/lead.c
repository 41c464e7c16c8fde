/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lead.c - directs an unmodified libnccl.so.2 to the GPU that the CPU plays.  The library has the CUDA
 * runtime linked in, and its symbol table.  Each entry point of the runtime is overwritten in memory
 * with a jump to our function (gpu_runtime_entry() and the like), or to one that says "not
 * supported".  Nothing is changed on disk.
 */
#include "tests/nccl/gpu.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JUMP = 14, THUNK = 32, THUNKS_MAX = 1024, ENTRIES_MIN = 200 };

int gpu_version;
bool gpu_known;
struct nccl_layout gpu_layout;
struct nccl_func *gpu_funcs;
unsigned gpu_nfuncs;

struct symbols {			/* of the file */
	const char *file;
	size_t size;
	const Elf64_Sym *symbols;
	size_t n;
	const char *names;
};

/* NCCL opens NVML's library by this name and finds this program's own functions. */
__attribute__((visibility("default"))) void *dlopen(const char *name, int flags)
{
	static void *(*real)(const char *, int);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "dlopen");
	return real(name && !strncmp(name, "libnvidia-ml.so", 15) ? NULL : name, flags);
}

/* -- the symbol table ------------------------------------------------------------------------------ */

static bool map_symbols(const char *path, struct symbols *s)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const Elf64_Shdr *sections;
	const Elf64_Ehdr *head;
	struct stat st;
	void *at;

	*s = (struct symbols){ 0 };
	if (fd < 0)
		return false;
	if (fstat(fd, &st) || (size_t)st.st_size < sizeof(*head)) {
		close(fd);
		return false;
	}
	s->size = (size_t)st.st_size;
	at = mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return false;
	s->file = at;
	head = at;
	if (head->e_shoff + (size_t)head->e_shnum * sizeof(*sections) > s->size)
		return false;
	sections = (const Elf64_Shdr *)(s->file + head->e_shoff);
	for (unsigned i = 0; i < head->e_shnum; i++) {
		if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < head->e_shnum) {
			s->symbols = (const Elf64_Sym *)(s->file + sections[i].sh_offset);
			s->n = sections[i].sh_size / sizeof(Elf64_Sym);
			s->names = s->file + sections[sections[i].sh_link].sh_offset;
		}
	}
	return s->n > 0;
}

static const Elf64_Sym *find_symbol(const struct symbols *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++) {
		if (!strcmp(s->names + s->symbols[i].st_name, name) && s->symbols[i].st_value)
			return &s->symbols[i];
	}
	return NULL;
}

/* -- the jumps ------------------------------------------------------------------------------------- */

/* jmp *0(%rip), and the address. */
static void put_jump(char *at, void *to)
{
	static const unsigned char code[] = { 0xff, 0x25, 0, 0, 0, 0 };

	memcpy(at, code, sizeof(code));
	memcpy(at + sizeof(code), &to, sizeof(to));
}

static int not_supported(const char *name)
{
	gpu_unsupported = name;
	return GPU_NOT_SUPPORTED;
}

/* A piece of code that calls not_supported(name): movabs $name, %rdi, and the jump. */
static void *thunk(const char *name)
{
	static char *code;
	static unsigned n;
	static const unsigned char load[] = { 0x48, 0xbf };
	const char *copy = strdup(name);
	char *at;

	if (!code)
		code = mmap(NULL, THUNKS_MAX * THUNK, PROT_READ | PROT_WRITE | PROT_EXEC,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED || n == THUNKS_MAX || !copy)
		abort();
	at = code + n++ * THUNK;
	memcpy(at, load, sizeof(load));
	memcpy(at + sizeof(load), &copy, sizeof(copy));
	put_jump(at + sizeof(load) + sizeof(copy), (void *)not_supported);
	return at;
}

static void *entry_of(const char *name)
{
	void *fn = gpu_runtime_entry(name);

	if (!fn)
		fn = gpu_memory_entry(name);
	if (!fn)
		fn = gpu_stream_entry(name);
	return fn ? fn : thunk(name);
}

static bool is_entry(const struct symbols *s, const Elf64_Sym *y)
{
	const char *name = s->names + y->st_name;

	return ELF64_ST_TYPE(y->st_info) == STT_FUNC && y->st_value && y->st_size >= JUMP &&
		!strncmp(name, "cuda", 4) && isupper((unsigned char)name[4]);
}

static bool writable(char *base, const Elf64_Sym *y, int protection)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)(base + y->st_value) / page * page;

	return !mprotect((void *)from, (uintptr_t)(base + y->st_value) + JUMP - from, protection);
}

static const char *lead_all(const struct symbols *s, char *base)
{
	unsigned n = 0;

	for (size_t i = 0; i < s->n; i++) {
		const Elf64_Sym *y = &s->symbols[i];

		if (!is_entry(s, y))
			continue;
		if (!writable(base, y, PROT_READ | PROT_WRITE | PROT_EXEC))
			return "its code can't be made writable";
		put_jump(base + y->st_value, entry_of(s->names + y->st_name));
		writable(base, y, PROT_READ | PROT_EXEC);
		n++;
	}
	return n < ENTRIES_MIN ? "it has no CUDA runtime of its own in its symbol table" : NULL;
}

/* -- what version it is ---------------------------------------------------------------------------- */

/* The table of functions, read backwards.  Of rows with one id the first will do. */
static bool read_table(const struct symbols *s, const char *base)
{
	const Elf64_Sym *y = find_symbol(s, "ncclDevFuncRowToId");
	const int *ids;
	size_t n;

	if (!y)
		return false;
	ids = (const int *)(base + y->st_value);
	n = y->st_size / sizeof(*ids);
	if (n != gpu_layout.rows && n != gpu_layout.rows + 1)
		return false;
	gpu_nfuncs = gpu_layout.rows;
	gpu_funcs = calloc(gpu_nfuncs, sizeof(*gpu_funcs));
	for (unsigned row = gpu_layout.rows; gpu_funcs && row-- > 0;) {
		if (ids[row] >= 0 && (unsigned)ids[row] < gpu_nfuncs)
			gpu_funcs[ids[row]] = layout_func(&gpu_layout, row);
	}
	return gpu_funcs != NULL;
}

void *gpu_lead(const char *path, const char **ret_why)
{
	static char why[256];
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*version)(int *);
	struct link_map *map;
	struct symbols s;

	*ret_why = why;
#ifndef __x86_64__
	snprintf(why, sizeof(why), "its entry points are led elsewhere by x86-64 code only");
	return NULL;
#endif
	if (!lib) {
		snprintf(why, sizeof(why), "%s", dlerror());
		return NULL;
	}
	*(void **)&version = dlsym(lib, "ncclGetVersion");
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) || !version) {
		snprintf(why, sizeof(why), "%s is no NCCL", path);
		return NULL;
	}
	if (!map_symbols(map->l_name, &s)) {
		snprintf(why, sizeof(why), "%s is stripped: it has no symbol table", map->l_name);
		return NULL;
	}
	*ret_why = lead_all(&s, (char *)map->l_addr);
	if (*ret_why)
		return NULL;
	version(&gpu_version);
	if (getenv("BRAID_TEST_GPU_NCCL"))
		gpu_version = atoi(getenv("BRAID_TEST_GPU_NCCL"));
	gpu_known = layout_of(gpu_version, &gpu_layout) && read_table(&s, (char *)map->l_addr);
	munmap((void *)(uintptr_t)s.file, s.size);
	return lib;
}
