/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_handle.c - see peer_handle.h. */
#include "core/setup/peer_handle.h"

#include <errno.h>

#include "core/base/log.h"
#include "core/dev.h"
#include "core/proto/handle.h"

int braid_peer_handle(const struct braid_dev *dev, const void *handle, struct braid_handle *ret)
{
	int err = braid_handle_unpack(handle, ret);

	if (err == -EPROTO)
		return braid_error(-EPROTONOSUPPORT,
				   "device %s: the peer's handle is not Braid's: it "
				   "runs another NCCL net plugin; set NCCL_NET_PLUGIN=braid on "
				   "every rank [other-plugin]",
				   dev->net.name);
	if (err == -EPROTONOSUPPORT)
		return braid_error(
			err,
			"device %s: the peer speaks Braid's wire versions %u to %u, this "
			"library %u to %u: install the same Braid release on both hosts "
			"[wire-version]",
			dev->net.name, ret->least, ret->most, BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	if (err)
		return braid_error(-EINVAL, "device %s: the peer's handle was damaged on its way "
				   "[bad-handle]",
				   dev->net.name);
	return 0;
}
