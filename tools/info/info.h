/* SPDX-License-Identifier: BSD-3-Clause */
/* info.h - the parts of braid info that braid doctor and braid validate use too. */
#ifndef BRAID_TOOLS_INFO_H
#define BRAID_TOOLS_INFO_H

#include <jansson.h>
#include <stdbool.h>

enum { INFO_ERR = 1100 };

/* A plugin after its init, as JSON; NULL with a sentence in err, of INFO_ERR bytes. */
json_t *info_plugin(const char *path, int abi, char *err);
/*
 * How the plugin's devices would reach `host`, judged by addresses and routes: nothing is sent.
 * NULL with a sentence in err if the host has no address.
 */
json_t *info_peer(const json_t *plugin, const char *host, char *err);
void info_peer_print(const json_t *peer);
/* The optional libraries, and whether they can be loaded here; they stay open. */
json_t *info_libraries(void);
/*
 * NCCL gives a plugin a loaded CUDA driver with a context.  Do the same here, with the first GPU,
 * for as long as this process lives; false: there is no GPU.
 */
bool info_bring_gpu(void);

#endif
