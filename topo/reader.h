/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reader.h - what the files that read a machine out of /sys share.
 *
 *	machine_spots.c	files below the root; PCI devices and the bridges above them
 *	machine_nics.c	network interfaces and RDMA ports
 *	machine_sys.c	the rest, and in what order all is read
 *
 * The contents of a tree are not trusted: every number has an upper limit, and every link has to
 * stay inside the root.
 */
#ifndef BRAID_TOPO_READER_H
#define BRAID_TOPO_READER_H

#include <dirent.h>

#include "topo/machine_int.h"

enum {
	BRAID_NETS_MAX = 1024,
	BRAID_CLASS_MOST = 0xffffff,
	BRAID_ID_MOST = 0xffff,
};

struct braid_reader_net {		/* a network interface */
	char name[16];
	char pci[BRAID_MACHINE_PATH];	/* "": not on PCI */
	bool device;			/* has a device below: hardware, or emulated */
	bool bond, slave, representor;
	bool taken;			/* it belongs to an RDMA port */
};

struct braid_reader {
	char root[PATH_MAX];
	struct braid_machine *m;
	struct braid_reader_net *nets;
	unsigned n_nets;
};

/* Puts the root before a path, which goes to ret[PATH_MAX].  False: it is too long. */
__attribute__((format(printf, 3, 4)))
bool braid_reader_path(const struct braid_reader *r, char *ret, const char *fmt, ...);
bool braid_reader_number(const struct braid_reader *r, const char *dir, const char *file,
			 long least, long most, long *ret);
bool braid_reader_line(const struct braid_reader *r, const char *dir, const char *file, char *ret,
		       size_t len);
/* The number in a file of a spot's directory; 0: unknown. */
unsigned braid_reader_number_of(const struct braid_reader *r, const char *dir, const char *file,
				long most);
/* A directory of /sys/class and the like; NULL: there is none. */
DIR *braid_reader_dir(const struct braid_reader *r, const char *dir);
/* The next entry that is not hidden and not longer than most. */
const char *braid_reader_next(DIR *dir, size_t most);

/* The spot of a path that braid_pci_find() wrote; -1: no host bridge is in it, or no room. */
int braid_reader_spot(struct braid_reader *r, const char *path);
int braid_reader_spot_of_device(struct braid_reader *r, const char *device);

/* In this order: read the interfaces; add RDMA ports as NICs; add the other interfaces as NICs. */
void braid_reader_nets(struct braid_reader *r);
void braid_reader_rdma_nics(struct braid_reader *r);
void braid_reader_net_nics(struct braid_reader *r);

#endif
