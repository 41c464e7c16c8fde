/* SPDX-License-Identifier: BSD-3-Clause */
/* stranger.c - are strangers, and handles that no listen made, harmless? */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/handle.h"
#include "tools/tcp.h"
#include "tools/validate/far.h"
#include "tools/validate/path.h"

/* n strangers send `len` bytes of `data`; then a comm must still come up. */
static void strangers(struct validate *v, const void *data, size_t len, int n)
{
	union tcp_addr a[4];
	struct pair p;
	int fds[64], ports;

	net_up(v);
	pair_listen(v->net, &p);
	ports = listening(a, 4);
	if (!ports)
		skip(v, "it does not listen on a TCP port");
	step(v, "%d strangers that say %zu bytes", n, len);
	for (int i = 0; i < n; i++) {
		fds[i] = tcp_dial(&a[i % ports], 1000);
		if (fds[i] >= 0 && len && send(fds[i], data, len, MSG_NOSIGNAL) < 0)
			continue;	/* the plugin has closed it already */
	}
	step(v, "a comm after %d strangers", n);
	WAIT_FOR(pair_step(v->net, &p));
	exchange(v->net, p.send, p.recv, 10000, 1);
	pair_close(v->net, &p);
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	saw(v, "%d of them at %d ports", n, ports);
}

static void garbage(struct validate *v)
{
	uint8_t noise[4096];

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)chance(v, 256);
	strangers(v, noise, sizeof(noise), 16);
}

static void silence(struct validate *v)
{
	strangers(v, "", 0, 16);
}

static void http(struct validate *v)
{
	static const char get[] = "GET / HTTP/1.1\r\nHost: port-scan\r\n\r\n";

	strangers(v, get, sizeof(get) - 1, 4);
}

/* A made-up handle may not give a comm; an error is fine, a crash is not. */
static void refused(struct validate *v, struct pair *p, uint8_t *wrong, const char *what)
{
	void *send = NULL, *recv = NULL;
	ncclResult_t res = ncclSuccess;
	uint64_t end = deadline_ms(1000);

	step(v, "%s", what);
	while (res == ncclSuccess && !send && now_us() < end) {
		res = net_connect(v->net, v->dev, wrong, &send);
		accept_step(v->net, p->listen, &recv);
		usleep(500);
	}
	if (recv)
		FAIL("%s: accept() took the comm", what);
	if (send)
		OK(net_close_send(v->net, send));
	saw(v, "%s: %s", what, res == ncclSuccess ? "no comm" : net_result_name(res));
}

static void wrong_handle(struct validate *v, void (*change)(uint8_t *handle), const char *what)
{
	_Alignas(16) uint8_t wrong[NCCL_NET_HANDLE_MAXSIZE];
	struct pair p;

	net_up(v);
	needs_braid(v);
	pair_listen(v->net, &p);
	memcpy(wrong, p.handle, sizeof(wrong));
	change(wrong);
	refused(v, &p, wrong, what);
	step(v, "the right handle after that");
	WAIT_FOR(pair_step(v->net, &p));
	pair_close(v->net, &p);
}

static void put_zeros(uint8_t *handle)
{
	memset(handle, 0, NCCL_NET_HANDLE_MAXSIZE);
}

static void zero_handle(struct validate *v)
{
	wrong_handle(v, put_zeros, "a handle of zeros");
}

static void put_versions(uint8_t *handle)
{
	memset(handle + HANDLE_AT_VERSIONS, 0xff, 4);
	handle_put_check(handle);
}

static void other_version(struct validate *v)
{
	wrong_handle(v, put_versions, "a handle of another version");
}

static void put_token(uint8_t *handle)
{
	for (int i = 0; i < HANDLE_TOKEN_SIZE; i++)
		handle[HANDLE_AT_TOKEN + i] ^= 0x55;
	handle_put_check(handle);
}

/* Over a link that is up, so that the peer's answer is what counts. */
static void wrong_token(struct validate *v)
{
	_Alignas(16) uint8_t wrong[NCCL_NET_HANDLE_MAXSIZE];
	struct pair up, p;

	net_up(v);
	needs_braid(v);
	pair_open(v->net, &up);
	pair_listen(v->net, &p);
	memcpy(wrong, p.handle, sizeof(wrong));
	put_token(wrong);
	refused(v, &p, wrong, "a handle with another token");
	step(v, "the right handle after that");
	WAIT_FOR(pair_step(v->net, &p));
	pair_close(v->net, &p);
	pair_close(v->net, &up);
}

static void put_damage(uint8_t *handle)
{
	handle[HANDLE_AT_TOKEN] ^= 0x55;
}

static void damaged_handle(struct validate *v)
{
	wrong_handle(v, put_damage, "a handle of which a byte was changed");
}

const struct vcheck validate_stranger[] = {
	{ "connect-garbage", "Strangers that talk nonsense do no harm",
	  "A port scan can stop a job: close the port to strangers, and report it", garbage, V_HERE,
	  0 },
	{ "connect-silent", "Strangers that say nothing do no harm",
	  "A port scan can stop a job: close the port to strangers, and report it", silence, V_HERE,
	  0 },
	{ "connect-http", "Strangers that speak HTTP do no harm",
	  "A port scan can stop a job: close the port to strangers, and report it", http, V_HERE,
	  0 },
	{ "connect-zeros", "A handle of zeros is refused", REPORT, zero_handle, V_HERE, 0 },
	{ "connect-version", "A handle of another version is refused",
	  "All hosts need one version of Braid; braid doctor --nodes compares them", other_version,
	  V_HERE, 0 },
	{ "connect-cookie", "A handle with another token is refused", REPORT, wrong_token, V_HERE,
	  0 },
	{ "connect-damaged", "A handle that was damaged is refused", REPORT, damaged_handle, V_HERE,
	  0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
