/* SPDX-License-Identifier: BSD-3-Clause */
/* test_mesh_map.c - braid mesh's map fits its width, whatever the number of hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/mesh/mesh.h"

static struct mesh_report r;

static void mesh(int n)
{
	mesh_report_fini(&r);
	r = (struct mesh_report){ .bytes_s = 1e9 };
	assert_int_equal(mesh_report_init(&r, n), 0);
	for (int i = 0; i < n; i++) {
		snprintf(r.hosts[i].name, sizeof(r.hosts[i].name), "node%d.of.a.cluster.with.long.names", i);
		for (int j = 0; j < n; j++)
			*mesh_cell(&r, i, j) = (struct mesh_cell){ .state = MESH_DONE, .bytes_s = 1e9 };
	}
}

/* The map of this width, as it is printed. */
static char *map(int width)
{
	static char text[200000];
	int out = dup(STDOUT_FILENO);
	FILE *f = tmpfile();
	size_t n;

	assert_non_null(f);
	fflush(stdout);
	dup2(fileno(f), STDOUT_FILENO);
	mesh_print_map(&r, width);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	rewind(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

/* The longest line, and how many begin with a number and a host. */
static size_t longest(const char *text, int *ret_lines)
{
	size_t most = 0, len;
	int number;

	for (*ret_lines = 0; *text; text += len + (text[len] == '\n')) {
		len = strcspn(text, "\n");
		most = len > most ? len : most;
		*ret_lines += sscanf(text, "%3d node", &number) == 1 && strncmp(text + 4, "node", 4) == 0;
	}
	return most;
}

static void a_map_fits_its_width(void **state)
{
	static const int hosts[] = { 2, 16, 17, 26, 27, 53, 54, 66, 67, 106 };
	static const size_t widths[] = { 80, 100, 120, 300 };
	int lines;
	size_t most;

	(void)state;
	for (unsigned i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
		for (unsigned k = 0; k < 4; k++) {
			mesh(hosts[i]);
			most = longest(map((int)widths[k]), &lines);
			if (most > widths[k] || most > 120)
				fail_msg("%d hosts in %zu columns: a line of %zu", hosts[i], widths[k], most);
			if (hosts[i] <= 66 || widths[k] > 100)
				assert_int_equal(lines, hosts[i]);
		}
}

static void sixteen_hosts_have_figures_in_80_columns(void **state)
{
	char *text;

	(void)state;
	mesh(16);
	mesh_cell(&r, 3, 4)->bytes_s = 0.07e9;
	mesh_cell(&r, 5, 6)->state = MESH_FAILED;
	mesh_cell(&r, 7, 8)->state = MESH_OPEN;
	text = map(80);
	assert_non_null(strstr(text, "  4 node3.of. .100.100.100   \\#  7.100"));
	assert_non_null(strstr(text, "  6 node5.of. .100.100.100.100.100   \\   X.100"));
	assert_non_null(strstr(text, "  8 node7.of. .100.100.100.100.100.100.100   \\   ?.100"));
}

static void of_too_many_hosts_the_worst_have_a_line(void **state)
{
	char *text;
	int lines;

	(void)state;
	mesh(300);
	for (int j = 0; j < 300; j++) {
		mesh_cell(&r, 123, j)->bytes_s = 0.5e9;
		mesh_cell(&r, j, 45)->state = MESH_FAILED;
	}
	text = map(120);
	assert_in_range(longest(text, &lines), 20, 120);
	assert_int_equal(lines, 0);
	assert_non_null(strstr(text, "The slowest 20 of 300 hosts"));
	text = strstr(text, "\n  node45.");
	assert_non_null(text);
	assert_true(strstr(text, "\n  node123.") > text);
}

static int mesh_free(void **state)
{
	(void)state;
	mesh_report_fini(&r);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_map_fits_its_width),
		cmocka_unit_test(sixteen_hosts_have_figures_in_80_columns),
		cmocka_unit_test(of_too_many_hosts_the_worst_have_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, mesh_free);
}
