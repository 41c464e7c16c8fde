/* SPDX-License-Identifier: BSD-3-Clause */
/* rates.c - see rates.h. */
#include "tools/rates.h"

void rates_add(struct rates *r, uint64_t ns, uint64_t bytes)
{
	if (r->n == RATES_MAX)
		return;
	r->at[r->n].ns = ns;
	r->at[r->n++].bytes = bytes;
}

double rates_from(const struct rates *r, unsigned i, unsigned ms)
{
	unsigned k = i;

	while (k < r->n && r->at[k].ns < r->at[i].ns + ms * UINT64_C(1000000))
		k++;
	if (k == r->n || k == i)
		return -1;
	return (double)(r->at[k].bytes - r->at[i].bytes) * 8e3 /
	       (double)(r->at[k].ns - r->at[i].ns);
}

bool rates_back(struct rates *r, double before, double *ret)
{
	double now;

	for (; r->i < r->n; r->i++) {
		now = rates_from(r, r->i, RATES_STAYS_MS);
		if (now < 0)
			return false;
		*ret = now;
		if (now >= RATES_GOAL * before &&
		    rates_from(r, r->i, RATES_BACK_MS) >= RATES_GOAL * before)
			return true;
	}
	return false;
}

bool rates_steady(double now, double *last, unsigned *steady)
{
	bool same = now > *last * 0.98 && now < *last * 1.02;

	*steady = same ? *steady + 1 : 0;
	*last = now;
	return *steady >= 2;
}
