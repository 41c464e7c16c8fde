/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ktls.c - see ktls.h.
 *
 * The kernel opens a record into memory of its own, and copies it out once its tag is checked.  The
 * option TLS_RX_EXPECT_NO_PAD would let it open records in the user's memory: it stays off, since
 * no byte may reach a receive before its record was checked.
 */
#include "socket/ktls.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/proto/aead.h"
#include "core/proto/keys.h"

/* From the kernel's headers, which may be older here than the kernel. */
enum { ULP = 31, SOL_OF_TLS = 282, SEND = 1, RECEIVE = 2, TLS_1_3 = 0x0304, SEQ_SIZE = 8 };

enum { INFO_MAX = 2 * sizeof(uint16_t) + BRAID_AEAD_IV_SIZE + BRAID_AEAD_KEY_MAX + SEQ_SIZE };

static const struct {
	uint8_t cipher, salt;		/* `salt` bytes of the iv go behind the key */
	uint16_t number;
} kinds[] = {
	{ BRAID_CIPHER_AES256, 4, 52 },
	{ BRAID_CIPHER_AES128, 4, 51 },
	{ BRAID_CIPHER_CHACHA20, 0, 54 },
};

static bool has_tls;
static atomic_uint lacks[2];		/* ciphers that the kernel refused to seal, to open */

static bool is_asked(bool rx)
{
	const char *by = braid_param.encrypt_by;

	return !strcmp(by, "kernel") || !strcmp(by, rx ? "kernel-receive" : "kernel-send");
}

/* A socket without a connection is refused in another way if the kernel has TLS. */
void braid_ktls_init(void)
{
	int fd;

	has_tls = false;
	atomic_store(&lacks[0], 0);
	atomic_store(&lacks[1], 0);
	if (!strcmp(braid_param.encrypt, "off") || (!is_asked(false) && !is_asked(true)))
		return;
	fd = braid_os->socket(AF_INET, IPPROTO_TCP);
	if (fd < 0)
		return;
	has_tls = braid_os->setsockopt(fd, IPPROTO_TCP, ULP, "tls", 3) && errno == ENOTCONN;
	braid_os->close(fd);
	if (has_tls)
		braid_info("encrypt: the kernel %s", is_asked(false) && is_asked(true) ?
			   "seals and opens" : is_asked(true) ? "opens" : "seals");
	else
		braid_info("encrypt: the kernel has no TLS (is the module tls loaded?): in user "
			   "space");
}

bool braid_ktls_keeps_key(void)
{
	return is_asked(true);
}

/* struct tls12_crypto_info_* of linux/tls.h: its size. */
static size_t fill(uint8_t *info, unsigned kind, const uint8_t *secret)
{
	const uint16_t version = TLS_1_3;
	const size_t nsalt = kinds[kind].salt, niv = BRAID_AEAD_IV_SIZE - nsalt;
	const size_t nkey = braid_aead_key_size(kinds[kind].cipher);
	uint8_t iv[BRAID_AEAD_IV_SIZE], *p = info + 2 * sizeof(uint16_t);

	memset(info, 0, INFO_MAX);
	memcpy(info, &version, sizeof(version));
	memcpy(info + sizeof(version), &kinds[kind].number, sizeof(kinds[kind].number));
	braid_keys_expand(secret, kinds[kind].cipher, p + niv, iv);
	memcpy(p, iv + nsalt, niv);
	memcpy(p + niv + nkey, iv, nsalt);
	explicit_bzero(iv, sizeof(iv));
	return 2 * sizeof(uint16_t) + BRAID_AEAD_IV_SIZE + nkey + SEQ_SIZE;
}

static int set(int fd, unsigned kind, const uint8_t *secret, bool rx)
{
	uint8_t info[INFO_MAX];
	size_t n;
	int err;

	/* EEXIST: the other direction has done it. */
	if (braid_os->setsockopt(fd, IPPROTO_TCP, ULP, "tls", 3) && errno != EEXIST)
		return -errno;
	n = fill(info, kind, secret);
	err = braid_os->setsockopt(fd, SOL_OF_TLS, rx ? RECEIVE : SEND, info, (socklen_t)n) ?
		      -errno : 0;
	explicit_bzero(info, sizeof(info));
	return err;
}

bool braid_ktls_take(int fd, uint8_t cipher, const uint8_t *secret, bool rx)
{
	int err;

	if (!has_tls || !is_asked(rx) || atomic_load(&lacks[rx]) & cipher)
		return false;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].cipher != cipher)
			continue;
		err = set(fd, i, secret, rx);
		if (!err)
			return true;
		if (err == -ENOTCONN)
			return false;		/* the connection has ended already */
		atomic_fetch_or(&lacks[rx], cipher);
		braid_info("encrypt: the kernel does not %s %s (%s): in user space",
			   rx ? "open" : "seal", braid_aead_name(cipher), strerror(-err));
	}
	return false;
}

int braid_ktls_error(int err)
{
	switch (err) {
	case EBADMSG:				/* the tag is wrong */
	case EINVAL:				/* it is no record */
	case EMSGSIZE:				/* too long a record */
	case EIO:				/* a record of something else than data */
		return -EILSEQ;
	default:
		return -err;
	}
}
