/* SPDX-License-Identifier: BSD-3-Clause */
/* filters.c - see filters.h.  verbs/hca.c, which knows the RDMA ports, checks NCCL_IB_HCA. */
#include "plugin/filters.h"

#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "topo/filter.h"

/* Check that a parameter's filter can be read, and log how an odd one is read. */
static int check(const char *param, const char *text)
{
	char name[BRAID_PARAM_VARIABLE], why[BRAID_FILTER_TEXT], plain[BRAID_FILTER_TEXT];
	struct braid_netdev_filter f;

	braid_param_variable(param, name);
	if (braid_netdev_filter_parse(text, &f, why, sizeof(why)))
		return braid_error(-EINVAL, "%s=%.200s can't be read: %s. It takes names with "
				   "commas between them; ^ before the first excludes all, = makes "
				   "them whole names [bad-filter]", name, text, why);
	braid_netdev_filter_format(&f, plain, sizeof(plain));
	if (f.odd)
		braid_info("%s=%.200s is read as %s; NCCL itself, which knows no quotes, blanks "
			   "and repeated marks, reads something else", name, text, plain);
	return 0;
}

int braid_filters_check(void)
{
	int err = check("socket_ifname", braid_param.socket_ifname);

	return err ? err : check("ib_hca", braid_param.ib_hca);
}

/* "eth0, eth1 and 12 more" */
static void list_names(const struct if_nameindex *all, char *ret, size_t len)
{
	size_t n = 0;

	*ret = '\0';
	for (; all->if_index; all++) {
		if (n + IF_NAMESIZE + 24 > len) {
			unsigned more = 0;

			for (; all->if_index; all++)
				more++;
			snprintf(ret + n, len - n, " and %u more", more);
			return;
		}
		n += (size_t)snprintf(ret + n, len - n, "%s%s", n ? ", " : "", all->if_name);
	}
}

void braid_filters_interfaces(void)
{
	char name[BRAID_PARAM_VARIABLE], missed[256], names[256];
	bool hit[BRAID_FILTER_NAMES] = { false };
	struct if_nameindex *all = if_nameindex();
	struct braid_netdev_filter f, real;

	if (!all || braid_netdev_filter_parse(braid_param.socket_ifname, &f, NULL, 0))
		goto out;
	real = f;
	braid_netdev_filter_resolve(&real);
	for (unsigned i = 0; i < f.n; i++) {
		for (const struct if_nameindex *n = all; n->if_index; n++)
			hit[i] |= braid_filter_item_match(&real.item[i], n->if_name, -1);
	}
	list_names(all, names, sizeof(names));
	braid_param_variable("socket_ifname", name);
	if (!braid_filter_missed(&f, hit, missed, sizeof(missed)))
		goto out;
	/* An excluded interface need not exist: one setting may serve different hosts. */
	if (f.exclude)
		braid_info("%s=%.200s: %s excludes no interface; there are %s", name,
			   braid_param.socket_ifname, missed, names);
	else
		braid_warn("%s=%.200s: %s matches no interface; there are %s [filter-unmatched]",
			   name, braid_param.socket_ifname, missed, names);
out:
	if (all)
		if_freenameindex(all);
}
