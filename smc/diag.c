/* SPDX-License-Identifier: BSD-3-Clause */
/* diag.c - see diag.h. */
#include "smc/diag.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef AF_SMC
#define AF_SMC 43
#endif

enum { BUF = 16 << 10, TIMEOUT_MS = 500, PEER_DECLINED = 0x05000000 };

static const struct {
	uint32_t code;
	const char *text;
} reasons[] = {
	{ 0x01010000, "the kernel has no memory for the buffers; lower net.smc.wmem and rmem" },
	{ 0x02010000, "the first RDMA link was not confirmed in time" },
	{ 0x02020000, "a second RDMA link was not added in time" },
	{ 0x03000000, "the configuration of SMC" },
	{ 0x03010000, "the peer's kernel did not offer SMC: modprobe smc there" },
	{ 0x03020000, "IPsec is in use" },
	{ 0x03030000, "no device for SMC at this interface, or no UEID in common: see braid smc" },
	{ 0x03030001, "no device for SMC-D at this interface" },
	{ 0x03030002, "no RDMA device for SMC-R at this interface: see braid smc" },
	{ 0x03030003, "the hardware has no ISM version 2" },
	{ 0x03030004, "the peer did not offer SMC version 2" },
	{ 0x03030005, "the peer did not offer SMC-D version 2" },
	{ 0x03030006, "the peer has no SEID" },
	{ 0x03030007, "no device for SMC-D version 2" },
	{ 0x03030008, "the ends have no UEID in common: braid smc setup --ueid on both hosts" },
	{ 0x03030009, "the ends have no release of SMC version 2 in common" },
	{ 0x0303000a, "the ends did not agree on connections in a link group" },
	{ 0x0303000b, "the ends did not agree on links in a link group" },
	{ 0x03040000, "one end has SMC-R alone, the other SMC-D alone" },
	{ 0x03050000, "the peer wants marks in its buffers, which the kernel has not" },
	{ 0x03060000, "TCP Fast Open is switched on for the socket" },
	{ 0x03070000, "the ends are in different subnets, which SMC version 1 can't cross" },
	{ 0x03080000, "the VLAN of the interface could not be found out" },
	{ 0x03090000, "the ISM device did not take the VLAN" },
	{ 0x030a0000, "the link group has no RDMA link that is up" },
	{ 0x030b0000, "the RDMA link that the peer chose is not known here" },
	{ 0x030c0000, "the ends have no version of SMC in common" },
	{ 0x030d0000, "the ISM device has no buffer left" },
	{ 0x030e0000, "no route from the RDMA device to the peer's" },
	{ 0x030f0000, "the way to the peer's RDMA device goes by a gateway at one end only" },
	{ 0x04000000, "the ends lost step with each other" },
	{ PEER_DECLINED, "the peer declined" },
	{ 0x09990000, "an internal error of the kernel's" },
	{ 0x09990001, "the peer's buffer could not be noted by the kernel" },
	{ 0x09990002, "the RDMA link could not be made ready" },
	{ 0x09990003, "a buffer could not be registered with the RDMA device" },
};

const char *braid_smc_reason(uint32_t code)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (reasons[i].code == code)
			return reasons[i].text;
	}
	return NULL;
}

void braid_smc_why(const struct braid_smc_mode *mode, char *ret, size_t len)
{
	bool peer = mode->peer_reason && (!mode->reason || mode->reason == PEER_DECLINED);
	uint32_t code = peer ? mode->peer_reason : mode->reason;
	const char *text = braid_smc_reason(code);

	snprintf(ret, len, "fell back to TCP, %sreason 0x%08x: %s", peer ? "the peer's " : "", code,
		 text ? text : "one that is newer than this library");
}

/* --- the answer ---------------------------------------------------------------------------- */

/* Reads the attributes of a socket; each length is checked before the attribute is read. */
static int parse_attributes(const char *p, size_t len, struct braid_smc_mode *ret)
{
	while (len) {
		struct nlattr a;
		size_t whole;

		if (len < sizeof(a))
			return -EBADMSG;
		memcpy(&a, p, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > len)
			return -EBADMSG;
		if (a.nla_type == SMC_DIAG_FALLBACK &&
		    a.nla_len >= sizeof(a) + sizeof(struct smc_diag_fallback)) {
			struct smc_diag_fallback f;

			memcpy(&f, p + sizeof(a), sizeof(f));
			ret->reason = f.reason;
			ret->peer_reason = f.peer_diagnosis;
		} else if (a.nla_type == SMC_DIAG_LGRINFO &&
			   a.nla_len >= sizeof(a) + sizeof(struct smc_diag_lgrinfo)) {
			struct smc_diag_lgrinfo l;

			memcpy(&l, p + sizeof(a), sizeof(l));
			snprintf(ret->ib, sizeof(ret->ib), "%.*s:%u",
				 (int)sizeof(l.lnk[0].ibname), (const char *)l.lnk[0].ibname,
				 l.lnk[0].ibport);
		}
		whole = (size_t)NLA_ALIGN(a.nla_len);
		if (whole >= len)
			break;
		p += whole;
		len -= whole;
	}
	return 0;
}

static int parse_socket(const char *p, size_t len, uint64_t inode, struct braid_smc_mode *ret)
{
	struct smc_diag_msg m;

	if (len < sizeof(m))
		return -EBADMSG;
	memcpy(&m, p, sizeof(m));
	if (m.diag_inode != inode)
		return 0;
	if (m.diag_mode > SMC_DIAG_MODE_SMCD)
		return -EBADMSG;
	*ret = (struct braid_smc_mode){ .found = true, .kind = m.diag_mode };
	return parse_attributes(p + sizeof(m), len - sizeof(m), ret);
}

static int parse_error(const char *p, size_t len)
{
	int32_t err;

	if (len < sizeof(err))
		return -EBADMSG;
	memcpy(&err, p, sizeof(err));
	return err > 0 || err < -4095 ? -EBADMSG : err;
}

int braid_smc_diag_parse(const void *buf, size_t len, uint64_t inode, struct braid_smc_mode *ret)
{
	const char *p = buf;

	while (len) {
		const char *in = p + NLMSG_HDRLEN;
		struct nlmsghdr h;
		size_t n;
		int err = 0;

		if (len < sizeof(h))
			return -EBADMSG;
		memcpy(&h, p, sizeof(h));
		if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > len)
			return -EBADMSG;
		n = h.nlmsg_len - NLMSG_HDRLEN;
		if (h.nlmsg_type == NLMSG_DONE)
			return n >= sizeof(int32_t) ? parse_error(in, n) : 0;
		if (h.nlmsg_type == NLMSG_ERROR)
			return parse_error(in, n);
		if (h.nlmsg_type == SOCK_DIAG_BY_FAMILY)
			err = parse_socket(in, n, inode, ret);
		if (err)
			return err;
		if (NLMSG_ALIGN(h.nlmsg_len) >= len)
			break;
		p += NLMSG_ALIGN(h.nlmsg_len);
		len -= NLMSG_ALIGN(h.nlmsg_len);
	}
	return 1;
}

/* --- the request --------------------------------------------------------------------------- */

static int send_request(int nl)
{
	const struct timeval limit = { .tv_usec = TIMEOUT_MS * 1000 };
	const struct {
		struct nlmsghdr h;
		struct smc_diag_req req;
	} msg = {
		.h = {
			.nlmsg_len = sizeof(msg), .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		},
		.req = {
			.diag_family = AF_SMC,
			.diag_ext = 1 << (SMC_DIAG_LGRINFO - 1) | 1 << (SMC_DIAG_FALLBACK - 1),
		},
	};

	setsockopt(nl, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return send(nl, &msg, sizeof(msg), 0) == (ssize_t)sizeof(msg) ? 0 : -errno;
}

int braid_smc_diag(int fd, struct braid_smc_mode *ret)
{
	int nl = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), err = 1;
	struct stat st;
	char buf[BUF];

	*ret = (struct braid_smc_mode){ .found = false };
	if (nl < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	if (err > 0)
		err = send_request(nl);
	if (!err)
		err = 1;
	while (err > 0) {
		ssize_t n = recv(nl, buf, sizeof(buf), MSG_TRUNC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		else
			err = (size_t)n > sizeof(buf) ? -EMSGSIZE :
			      braid_smc_diag_parse(buf, (size_t)n, st.st_ino, ret);
	}
	close(nl);
	return !err && !ret->found ? -ENOENT : err;
}
