/* SPDX-License-Identifier: BSD-3-Clause */
/* info.h - the parts of braid info that braid doctor asks for as well. */
#ifndef BRAID_TOOLS_INFO_H
#define BRAID_TOOLS_INFO_H

#include <jansson.h>
#include <stdbool.h>

enum { INFO_ERR = 1100 };

/* A plugin after its init; NULL with a sentence in err, of INFO_ERR bytes. */
json_t *info_plugin(const char *path, int abi, char *err);
/*
 * How its devices would go to that host, by addresses and routes alone: NULL with a sentence in
 * err if the host has no address.
 */
json_t *info_peer(const json_t *plugin, const char *host, char *err);
void info_peer_print(const json_t *peer);
/* The optional libraries, and whether they can be loaded here; they stay open. */
json_t *info_libraries(void);
/*
 * A plugin finds the CUDA driver where NCCL has brought it, with a context.  Here we are in its
 * place: the first GPU's, if there is one, until we end; false: there is none.
 */
bool info_bring_gpu(void);

#endif
