/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_machine.c - what machine.h, choose.h and cpus.h promise, on recorded machines.
 *
 * tests/topo/NAME.txt describes a machine and, below it, what was worked out by hand from its
 * layout: the matrix, names of NICs, and which NICs each GPU has when the first 1 to 8 of them are
 * in use.  tests/topo/mktree makes the /sys tree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/choose.h"
#include "topo/cpus.h"
#include "topo/machine.h"
#include "topo/pci.h"

enum { LINE = 512 };

static char root[64];

static const char *srcdir(void)
{
	const char *dir = getenv("BRAID_TEST_SRCDIR");

	return dir ? dir : ".";
}

__attribute__((format(printf, 1, 2)))
static void shell(const char *fmt, ...)
{
	char command[16 * LINE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	assert_int_equal(system(command), 0);
}

static int fresh_root(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/braid-machine.XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
	(void)state;
	shell("chmod -R u+rwx '%s' && rm -rf '%s'", root, root);
	return 0;
}

/* A file under root, with the directories above it. */
static void file(const char *path, const char *text)
{
	char full[LINE];
	FILE *f;

	shell("mkdir -p \"$(dirname '%s/%s')\"", root, path);
	snprintf(full, sizeof(full), "%s/%s", root, path);
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void make(const char *machine)
{
	shell("bash '%s/tests/topo/mktree' '%s/tests/topo/%s.txt' '%s'", srcdir(), srcdir(),
	      machine, root);
}

static struct braid_machine *read_root(void)
{
	struct braid_machine *m = NULL;

	assert_int_equal(braid_machine_read(root, &m), 0);
	return m;
}

/* ------------------------------------------------------------------------------ expected things */

/* The lines of section `== name` of a machine's description, without comments; free it. */
static char *section(const char *machine, const char *name)
{
	char path[LINE], line[LINE], *all = calloc(1, 1);
	bool in = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/topo/%s.txt", srcdir(), machine);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "== ", 3) == 0) {
			in = strncmp(line + 3, name, strlen(name)) == 0;
		} else if (in && *line != '#' && *line != '\n') {
			all = realloc(all, strlen(all) + strlen(line) + 1);
			assert_non_null(all);
			strcat(all, line);
		}
	}
	fclose(f);
	assert_true(*all);
	return all;
}

static enum braid_distance between(const struct braid_machine *m, unsigned a, unsigned b)
{
	unsigned n = m->n_gpus;

	if (a < n)
		return b < n ? braid_machine_gpu_gpu(m, a, b) : braid_machine_gpu_nic(m, a, b - n);
	return b < n ? braid_machine_gpu_nic(m, b, a - n) : braid_machine_nic_nic(m, a - n, b - n);
}

static void check_row(const struct braid_machine *m, unsigned row, char *line)
{
	unsigned n = m->n_gpus + m->n_nics, i;
	struct braid_cpus cpus;
	char text[LINE], *word;
	int spot;

	for (i = 0; i < n; i++) {
		word = strtok_r(NULL, " ", &line);
		assert_non_null(word);
		if (strcmp(word, braid_distance_name(between(m, row, i))) != 0)
			fail_msg("row %u column %u is %s, not %s", row, i,
				 braid_distance_name(between(m, row, i)), word);
	}
	spot = row < m->n_gpus ? m->gpus[row].spot : m->nics[row - m->n_gpus].n_spots ?
						     m->nics[row - m->n_gpus].spots[0] : -1;
	braid_machine_cpus(m, spot, &cpus);
	braid_cpus_format(&cpus, text, sizeof(text));
	assert_string_equal(*text ? text : "-", strtok_r(NULL, " ", &line));
	snprintf(text, sizeof(text), "%d", spot < 0 ? -1 : m->spots[spot].numa);
	assert_string_equal(strcmp(text, "-1") ? text : "-", strtok_r(NULL, " ", &line));
}

static void check_matrix(const struct braid_machine *m, const char *machine)
{
	char *text = section(machine, "matrix"), *rest = text, *line;
	unsigned row = 0;

	assert_non_null(strtok_r(rest, "\n", &rest));		/* the head */
	while ((line = strtok_r(rest, "\n", &rest))) {
		char name[16];

		assert_true(row < m->n_gpus + m->n_nics);
		snprintf(name, sizeof(name), "%s%u", row < m->n_gpus ? "GPU" : "NIC",
			 row < m->n_gpus ? row : row - m->n_gpus);
		assert_string_equal(strtok_r(line, " ", &line), name);
		check_row(m, row++, line);
	}
	assert_int_equal(row, m->n_gpus + m->n_nics);
	free(text);
}

static void check_names(const struct braid_machine *m, const char *machine)
{
	char *text = section(machine, "nics"), *rest = text, *line, name[64];
	unsigned i;

	while ((line = strtok_r(rest, "\n", &rest))) {
		assert_int_equal(sscanf(line, "NIC%u %63s", &i, name), 2);
		assert_true(i < m->n_nics);
		assert_string_equal(m->nics[i].name, name);
	}
	free(text);
}

/* "2 0,1 2": with two GPUs in use the first has NICs 0 and 1, the second NIC 2. */
static void check_choices(const struct braid_machine *m, const char *machine)
{
	char *text = section(machine, "choices"), *rest = text, *line, *word, mine[LINE], why[8192];
	struct braid_choice c;
	unsigned n, counts = 0;

	while ((line = strtok_r(rest, "\n", &rest))) {
		n = (unsigned)atoi(strtok_r(line, " ", &line));
		for (unsigned g = 0; g < n; g++) {
			size_t used = 0;

			word = strtok_r(NULL, " ", &line);
			assert_non_null(word);
			braid_choose(m, n, g, &c);
			for (unsigned i = 0; i < c.n; i++)
				used += (size_t)snprintf(mine + used, sizeof(mine) - used, "%s%u",
							 i ? "," : "", c.nics[i]);
			if (strcmp(mine, word) != 0)
				fail_msg("of %u GPUs GPU%u has %s, not %s", n, g, mine, word);
			braid_choice_explain(m, g, &c, why, sizeof(why));
			assert_non_null(strstr(why, m->nics[c.nics[0]].name));
		}
		counts++;
	}
	assert_int_equal(counts, m->n_gpus);
	free(text);
}

static void recorded(const char *machine)
{
	struct braid_machine *m;

	make(machine);
	m = read_root();
	check_matrix(m, machine);
	check_names(m, machine);
	check_choices(m, machine);
	braid_machine_free(m);
}

static void test_dgx1(void **state)
{
	(void)state;
	recorded("dgx1-v100");
}

static void test_a100(void **state)
{
	(void)state;
	recorded("dgx-a100");
}

static void test_h100(void **state)
{
	(void)state;
	recorded("hgx-h100");
}

static void test_four(void **state)
{
	(void)state;
	recorded("four-gpu");
}

static void test_one_side(void **state)
{
	(void)state;
	recorded("one-side");
}

static void test_grace(void **state)
{
	(void)state;
	recorded("grace-hopper");
}

static void test_vm(void **state)
{
	struct braid_machine *m;

	(void)state;
	recorded("cloud-vm");
	m = read_root();
	assert_true(m->is_virtual);
	assert_int_equal(m->n_notes, 3);	/* a VM, no ports above the GPUs, no NUMA node */
	assert_non_null(strstr(m->notes[1], "GPU0, GPU1"));
	braid_machine_free(m);
}

static void test_vm_numa(void **state)
{
	(void)state;
	recorded("hyperv-vm");
}

static void test_mixed(void **state)
{
	struct braid_machine *m;

	(void)state;
	recorded("mixed");
	m = read_root();
	assert_int_equal(m->n_gpus, 3);
	assert_int_equal(m->gpus[1].vendor, 0x1002);
	assert_true(m->nics[3].virtual_function && !m->nics[1].virtual_function);
	assert_true(m->nics[6].bond);
	assert_int_equal(m->nics[6].n_spots, 2);
	assert_string_equal(m->nics[1].netdev, "ens1f0");
	assert_int_equal(m->nics[5].port, 2);
	assert_int_equal(m->nics[5].speed_mbps, 40000);
	assert_string_equal(m->notes[0], "NIC7, NIC8: no PCI address");
	assert_int_equal(m->n_notes, 2);
	assert_non_null(strstr(m->notes[1], "0000:01:00.2: of NICs with Data Direct"));
	braid_machine_free(m);
}

/* ------------------------------------------------------------------------------- choices, apart */

static void test_all_down(void **state)
{
	struct braid_machine *m;
	struct braid_choice c;

	(void)state;
	make("four-gpu");
	shell("for f in '%s'/sys/class/infiniband/*/ports/1/state; do echo 1: DOWN >$f; done", root);
	m = read_root();
	braid_choose(m, 4, 1, &c);
	assert_int_equal(c.n, 1);
	assert_int_equal(c.nics[0], 1);
	braid_machine_free(m);
	/* One that is up is better than all that are down, however far. */
	shell("echo 4: ACTIVE >'%s/sys/class/infiniband/mlx5_3/ports/1/state'", root);
	m = read_root();
	braid_choose(m, 4, 0, &c);
	assert_int_equal(c.nics[0], 3);
	assert_int_equal(c.distance, BRAID_DISTANCE_SYS);
	assert_int_equal(c.left_out[0], BRAID_LEFT_DOWN);
	braid_machine_free(m);
}

static void test_no_nic(void **state)
{
	struct braid_machine *m;
	struct braid_choice c;
	char why[256];

	(void)state;
	make("four-gpu");
	shell("rm -r '%s/sys/class'", root);
	m = read_root();
	assert_int_equal(m->n_nics, 0);
	braid_choose(m, 4, 0, &c);
	assert_int_equal(c.n, 0);
	braid_choice_explain(m, 0, &c, why, sizeof(why));
	assert_string_equal(why, "GPU0 uses none: there is no NIC.\n");
	braid_machine_free(m);
}

/* ------------------------------------------------------------------------------- hostile trees */

static void test_nothing_there(void **state)
{
	struct braid_machine *m;

	(void)state;
	assert_int_equal(braid_machine_read("/nowhere/at/all", &m), -ENOENT);
	assert_int_equal(braid_machine_read(root, &m), -ENOENT);
	shell("mkdir '%s/sys'", root);
	m = read_root();
	assert_int_equal(m->n_gpus + m->n_nics + m->n_spots + m->n_numas, 0);
	braid_machine_free(m);
}

/* A recorded machine, a NIC, a GPU, and whether one port of the root complex is above both. */
static void test_one_port(void **state)
{
	static const struct {
		const char *machine, *nic, *gpu;
		bool one;
	} rows[] = {
		{ "four-gpu", "mlx5_0", "0000:1a:00.0", true },
		{ "four-gpu", "mlx5_0", "0000:3d:00.0", false },	/* another host bridge */
		{ "four-gpu", "mlx5_3", "0000:1a:00.0", false },	/* another socket */
		{ "four-gpu", "mlx5_0", "0000:1a:00.1", false },	/* nobody's */
		{ "four-gpu", "mlx5_9", "0000:1a:00.0", false },
		{ "dgx-a100", "mlx5_0", "0000:0f:00.0", true },		/* switches below a switch */
		{ "dgx-a100", "mlx5_4", "0000:0f:00.0", false },
		{ "cloud-vm", "mlx5_0", "0000:00:10.0", false },	/* on the root bus, both */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char link[64], path[4096] = "/nowhere";

		shell("rm -rf '%s'; mkdir '%s'", root, root);
		make(rows[i].machine);
		snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", rows[i].nic);
		braid_pci_find(root, link, path, sizeof(path));
		if (braid_pci_one_port(root, path, rows[i].gpu) != rows[i].one)
			fail_msg("%s: %s and %s", rows[i].machine, rows[i].nic, rows[i].gpu);
	}
}

static void test_long_root(void **state)
{
	char *name = calloc(1, 2 * PATH_MAX);
	struct braid_machine *m;

	(void)state;
	assert_non_null(name);
	memset(name, 'x', 2 * PATH_MAX - 1);
	assert_int_equal(braid_machine_read(name, &m), -ENAMETOOLONG);
	free(name);
}

/* A GPU counts only with its full class code; a NUMA node that is no number is left out. */
static void test_garbage(void **state)
{
	static const char *const classes[] = { "", "0x", "0x0302zz", "0x1030200", "-1", "garbage",
					       "0x030200 ", "99999999999999999999" };
	static const char *const numas[] = { "", "x", "-2", "4096", "0x1g", "1 ", "99999999999999999999" };
	static const char gpu[] = "sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0/0000:19:00.0/"
				  "0000:1a:00.0";
	struct braid_machine *m;
	char path[LINE];

	(void)state;
	make("four-gpu");
	for (unsigned i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		snprintf(path, sizeof(path), "%s/class", gpu);
		file(path, classes[i]);
		m = read_root();
		assert_int_equal(m->n_gpus, 3);
		braid_machine_free(m);
	}
	file(path, "0x030200\n");
	shell("rm '%s'/sys/devices/pci0000:17/0000:17:00.0/numa_node "
	      "'%s'/sys/devices/pci0000:17/0000:17:00.0/*/numa_node "
	      "'%s'/sys/devices/pci0000:17/0000:17:00.0/*/*/numa_node", root, root, root);
	for (unsigned i = 0; i < sizeof(numas) / sizeof(numas[0]); i++) {
		snprintf(path, sizeof(path), "%s/numa_node", gpu);
		file(path, numas[i]);
		m = read_root();
		assert_int_equal(m->n_gpus, 4);
		assert_int_equal(m->spots[m->gpus[0].spot].numa, -1);
		assert_int_equal(braid_machine_gpu_gpu(m, 0, 1), BRAID_DISTANCE_UNKNOWN);
		braid_machine_free(m);
	}
}

/* Links in circles, out of the tree, to nowhere: such devices are not there, or without a place. */
static void test_links(void **state)
{
	struct braid_machine *m;

	(void)state;
	make("four-gpu");
	shell("cd '%s/sys/bus/pci/devices' && ln -s 0000:99:00.1 0000:99:00.0 && "
	      "ln -s 0000:99:00.0 0000:99:00.1 && ln -s /nowhere 0000:99:00.2 && "
	      "ln -s /sys/devices 0000:99:00.3", root);
	shell("cd '%s/sys/class/net' && ln -s loop1 loop0 && ln -s loop0 loop1 && "
	      "mkdir out && ln -s / out/device", root);
	shell("cd '%s/sys/class/infiniband' && ln -s . self && ln -s self/self again", root);
	m = read_root();
	assert_int_equal(m->n_gpus, 4);
	assert_int_equal(m->n_nics, 5);			/* and `out`, which has no place */
	assert_int_equal(m->nics[4].n_spots, 0);
	assert_string_equal(m->nics[4].name, "out");
	braid_machine_free(m);
}

static void test_pipe_is_no_file(void **state)
{
	struct braid_machine *m;

	(void)state;
	make("four-gpu");
	shell("cd '%s/sys/class/infiniband/mlx5_0/ports/1' && rm rate && mkfifo rate && "
	      "mkdir -p '%s/proc' && rm -f '%s/proc/cpuinfo' && mkfifo '%s/proc/cpuinfo'", root, root,
	      root, root);
	m = read_root();
	assert_int_equal(m->nics[0].speed_mbps, 0);
	assert_int_equal(m->n_nics, 4);
	braid_machine_free(m);
}

static void test_huge(void **state)
{
	struct braid_machine *m;
	char name[256];

	(void)state;
	make("four-gpu");
	memset(name, 'n', sizeof(name) - 1);
	name[255] = '\0';
	shell("cd '%s/sys/class/net' && mkdir -p %s/device nnnnnnnnnnnnnnnn/device && "
	      "mkdir -p ../infiniband/%s/ports/1", root, name, name);
	shell("cd '%s/sys/class/infiniband' && for i in `seq 300`; do mkdir -p d$i/ports/1; done", root);
	shell("cd '%s/sys/class/net' && for i in `seq 1100`; do mkdir -p n$i/device; done", root);
	m = read_root();
	assert_int_equal(m->n_gpus, 4);
	assert_int_equal(m->n_nics, BRAID_MACHINE_NICS);
	assert_non_null(strstr(m->notes[m->n_notes - 1], "left out"));
	braid_machine_free(m);
}

/* 40 bridges one below the other: deeper than PCI can be. */
static void test_deep(void **state)
{
	char path[8 * LINE] = "sys/devices/pci0000:00";
	struct braid_machine *m;
	size_t used = strlen(path);

	(void)state;
	for (unsigned i = 1; i <= 35; i++)
		used += (size_t)snprintf(path + used, sizeof(path) - used, "/0000:%02x:0.0", i);
	shell("mkdir -p '%s/%s' '%s/sys/bus/pci/devices' && ln -s '../../../../%s' "
	      "'%s/sys/bus/pci/devices/0000:23:00.0' && ln -s '%s/sys/bus/pci' '%s/%s/subsystem' && "
	      "echo 0x030200 >'%s/%s/class' && echo 0x10de >'%s/%s/vendor'",
	      root, path, root, path, root, root, root, path, root, path, root, path);
	m = read_root();
	assert_int_equal(m->n_gpus, 1);
	assert_int_equal(m->gpus[0].spot, -1);
	braid_machine_free(m);
}

/* ---------------------------------------------------------------------------------- sets of CPUs */

static void test_cpus(void **state)
{
	static const struct {
		const char *text, *back;	/* NULL: refused */
	} rows[] = {
		{"", ""}, {"0", "0"}, {"0-3", "0-3"}, {"0,1,2,3", "0-3"}, {"3,1", "1,3"},
		{"0-19,40-59", "0-19,40-59"}, {"63-64", "63-64"}, {"8191", "8191"},
		{"0-8191", "0-8191"}, {"5-5", "5"}, {"1-2,2-3", "1-3"},
		{"8192", NULL}, {"3-1", NULL}, {"a", NULL}, {"1,", NULL}, {",1", NULL}, {"1-", NULL},
		{"-1", NULL}, {"1 ", NULL}, {"1--2", NULL}, {"1-2-3", NULL}, {"0x1", NULL},
		{"99999999999999999999", NULL},
	};
	struct braid_cpus c, before;
	char text[64];

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memset(&c, 0x5a, sizeof(c));
		before = c;
		if (!rows[i].back) {
			assert_int_equal(braid_cpus_parse(rows[i].text, &c), -EINVAL);
			assert_memory_equal(&c, &before, sizeof(c));
			continue;
		}
		assert_int_equal(braid_cpus_parse(rows[i].text, &c), 0);
		assert_int_equal(braid_cpus_format(&c, text, sizeof(text)), strlen(rows[i].back));
		assert_string_equal(text, rows[i].back);
		assert_int_equal(braid_cpus_empty(&c), !*rows[i].back);
	}
}

static void test_cpus_cut(void **state)
{
	struct braid_cpus c, d;
	char text[10];

	(void)state;
	assert_int_equal(braid_cpus_parse("0-19,40-59,80", &c), 0);
	assert_int_equal(braid_cpus_format(&c, text, sizeof(text)), 13);
	assert_string_equal(text, "0-19");
	assert_int_equal(braid_cpus_parse("10-45", &d), 0);
	braid_cpus_keep(&d, &c);
	braid_cpus_format(&d, text, sizeof(text));
	assert_string_equal(text, "10-19");
	assert_true(braid_cpus_has(&d, 45) && !braid_cpus_has(&d, 46) && !braid_cpus_has(&d, 100000));
	braid_cpus_add(&d, &c);
	assert_true(braid_cpus_has(&d, 80));
}

#define ON_TREE(test) cmocka_unit_test_setup_teardown(test, fresh_root, drop_root)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_TREE(test_dgx1),
		ON_TREE(test_a100),
		ON_TREE(test_h100),
		ON_TREE(test_four),
		ON_TREE(test_one_side),
		ON_TREE(test_grace),
		ON_TREE(test_vm),
		ON_TREE(test_vm_numa),
		ON_TREE(test_mixed),
		ON_TREE(test_all_down),
		ON_TREE(test_no_nic),
		ON_TREE(test_nothing_there),
		cmocka_unit_test(test_long_root),
		cmocka_unit_test_setup_teardown(test_one_port, fresh_root, drop_root),
		ON_TREE(test_garbage),
		ON_TREE(test_links),
		ON_TREE(test_pipe_is_no_file),
		ON_TREE(test_huge),
		ON_TREE(test_deep),
		cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_cpus_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
