/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rounds.c - which pairs are measured in which round.
 *
 * The hosts sit in a circle, but the last, who stays apart.  In round r the pairs are those whose
 * seats are equally far from seat r, and the last one's partner is the host at seat r.  With an odd
 * number of hosts nobody sits apart, and the host at seat r rests.
 */
#include "tools/mesh/mesh.h"

int mesh_seats(int n)
{
	return n + n % 2;
}

int mesh_rounds(int n)
{
	return n < 2 ? 0 : mesh_seats(n) - 1;
}

bool mesh_pair(int n, int round, int k, int *ret_a, int *ret_b)
{
	int circle = mesh_seats(n) - 1;
	int x = (round + k) % circle;
	int y = k ? (round - k + circle) % circle : circle;

	*ret_a = x < y ? x : y;
	*ret_b = x < y ? y : x;
	return *ret_b < n;
}
