/* SPDX-License-Identifier: BSD-3-Clause */
/* unpaced.c - see unpaced.h. */
#include "core/setup/unpaced.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"

/*
 * A socket that came up with bbr goes on pacing, even if it is given another congestion control.
 * Within a host that can cost three quarters of the rate.  So sockets that may stay within a host
 * begin with reno, which every kernel has and which does not pace.
 */
void braid_socket_unpaced(int fd, char ret[BRAID_CONGESTION_SIZE])
{
	socklen_t len = BRAID_CONGESTION_SIZE - 1;

	memset(ret, 0, BRAID_CONGESTION_SIZE);
	if (braid_param.congestion[0] ||
	    braid_os->getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ret, &len) ||
	    strncmp(ret, "bbr", 3) ||
	    braid_os->setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4))
		ret[0] = '\0';
}
