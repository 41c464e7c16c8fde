/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_result.c - the result that NCCL gets for a failure: an errno becomes an ncclResult_t here and
 * nowhere else.
 */
#include <errno.h>

#include "core/base/log.h"
#include "plugin/net_int.h"

BRAID_APART ncclResult_t braid_net_failure(int err)
{
	switch (-err) {
	case EREMOTEIO:
	case ECONNREFUSED:
	case ECONNRESET:
	case ENOTCONN:
	case EPIPE:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return ncclRemoteError;
	case EMSGSIZE:
	case EPROTONOSUPPORT:
	case EACCES:
		return ncclInvalidUsage;
	case EINVAL:
	case ECANCELED:
		return ncclInternalError;
	default:
		return ncclSystemError;
	}
}

ncclResult_t braid_net_misuse(const char *what)
{
	braid_warn("%s: NCCL called the plugin in a way that its ABI does not allow "
		   "[bad-call]", what);
	return ncclInternalError;
}
