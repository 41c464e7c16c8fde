/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay.c - the main() of a fuzz target where there is no libFuzzer.
 *
 * fuzz_x FILE... gives the target every file, then every prefix of it, then a fixed number of
 * mutants of it, the same in each run: a plain `make check`, with any compiler and sanitizer,
 * keeps what fuzzing once found and takes a short walk around it.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1 << 20, PREFIXES_MAX = 4096, MUTANTS = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t seed = 0x9e3779b97f4a7c15u;

static size_t rnd_below(size_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (size_t)(seed % n);
}

/* From a block of exactly that size, so that a sanitizer sees the first byte too far. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void mutate(uint8_t *data, size_t *size)
{
	static const uint8_t odd[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	size_t i, n = 1 + rnd_below(4);

	while (n-- && *size) {
		i = rnd_below(*size);
		switch (rnd_below(4)) {
		case 0:
			data[i] = (uint8_t)(data[i] ^ 1u << rnd_below(8));
			break;
		case 1:
			data[i] = odd[rnd_below(sizeof(odd))];
			break;
		case 2:
			data[i] = (uint8_t)rnd_below(256);
			break;
		default:
			memmove(data + i, data + i + 1, *size - i - 1);
			(*size)--;
			break;
		}
	}
}

static int replay(const char *path)
{
	static uint8_t data[INPUT_MAX], mutant[INPUT_MAX];
	size_t size, i, mutant_size;
	FILE *f = fopen(path, "rb");

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	size = fread(data, 1, sizeof(data), f);
	fclose(f);

	run(data, size);
	for (i = 0; i < size && i < PREFIXES_MAX; i++)
		run(data, i);
	for (i = 0; i < MUTANTS; i++) {
		memcpy(mutant, data, size);
		mutant_size = size;
		mutate(mutant, &mutant_size);
		run(mutant, mutant_size);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int i, failed = 0;

	for (i = 1; i < argc; i++)
		failed |= replay(argv[i]);
	printf("%d inputs, each with its prefixes and %d mutants\n", argc - 1, MUTANTS);
	return failed || argc < 2;
}
