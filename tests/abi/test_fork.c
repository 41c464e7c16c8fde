/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fork.c - a process that uses the plugin forks, as PyTorch's data loaders do.
 *
 * The child has copies of the parent's descriptors and memory, and none of its threads.  In the
 * child every call returns ncclSystemError.  Whatever the child does and however it ends, the
 * parent's connections go on: the child must not write to the parent's streams.  It has no keys either.
 */
#include "tests/lib/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 300000, FLIGHT = 8 };

static void stream_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	unsigned char more;

	for (take(fd, &more, 1); more; take(fd, &more, 1)) {
		for (unsigned i = 0; i < FLIGHT; i++) {
			recv_one(net, recv, BYTES, i);
			send_one(net, send, BYTES, i);
		}
	}
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

struct mine {				/* the parent's comms and memory when it forks */
	struct net *net;
	void *send, *recv, *listen;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct op ops[2 * FLIGHT];
	struct buf out, in;
};

/* In the child: every call fails, and none hangs. */
static void child_calls(struct mine *m)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct op op = op_send(m->net, m->send, &m->out, 100, 0);
	void *comm = NULL, *mr = NULL;

	warns_expected();
	alarm(10);			/* so that a hang here does not hang the parent */
	RES(ncclSystemError, net_listen(m->net, 0, handle, &comm));
	RES(ncclSystemError, net_connect(m->net, 0, m->handle, &comm));
	RES(ncclSystemError, net_accept(m->net, m->listen, &comm));
	RES(ncclSystemError, net_reg(m->net, m->send, m->out.data, 10, NCCL_PTR_HOST, &mr));
	op_post(&op);
	RES(ncclSystemError, op.res);
	op = op_recv(m->net, m->recv, &m->in, 100, 0);
	op_post(&op);
	RES(ncclSystemError, op.res);
	for (int i = 0; i < 2 * FLIGHT; i++) {
		if (m->ops[i].posted && !m->ops[i].done) {
			op_test(&m->ops[i]);
			RES(ncclSystemError, m->ops[i].res);
		}
	}
}

/* The child cleans up as its parent would; the results of its calls do not matter. */
static void child_closes(struct mine *m)
{
	alarm(10);
	net_dereg(m->net, m->send, m->out.mr);
	net_dereg(m->net, m->recv, m->in.mr);
	net_close_send(m->net, m->send);
	net_close_recv(m->net, m->recv);
	net_close_listen(m->net, m->listen);
	net_finalize(m->net);
}

static pid_t fork_child(struct mine *m, int kind)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	TRUE(pid >= 0);
	if (pid)
		return pid;
	switch (kind) {
	case 0:
		child_calls(m);
		_exit(0);
	case 1:
		child_closes(m);
		_exit(0);
	case 2:
		exit(0);		/* exit handlers and destructors run */
	default:
		for (int fd = 3; fd < 1024; fd++)
			close(fd);
		_exit(0);
	}
}

static void child_ends_well(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		TRUE(errno == EINTR);
	if (WIFSIGNALED(status))
		FAIL("the forked child was killed by signal %d", WTERMSIG(status));
	EQ(0, WEXITSTATUS(status));
}

static void forks(struct abi *t)
{
	struct peer peer = peer_start(t, stream_peer);
	unsigned char more = 1;
	struct mine m = { .net = abi_up(t) };
	struct pair p;

	m.recv = recv_from(m.net, peer.fd);
	m.send = send_to(m.net, peer.fd);
	pair_listen(m.net, &p);
	m.listen = p.listen;
	memcpy(m.handle, p.handle, sizeof(m.handle));
	m.out = buf_new(m.net, m.send, FLIGHT * BYTES, 0);
	m.in = buf_new(m.net, m.recv, FLIGHT * BYTES, 0);

	for (int kind = 0; kind < (t->newest ? 16 : 4); kind++) {
		pid_t pid;

		for (unsigned i = 0; i < FLIGHT; i++) {
			uint8_t *out = m.out.data + i * BYTES, *in = m.in.data + i * BYTES;

			fill(out, BYTES, i);
			m.ops[2 * i] = op_send(m.net, m.send, &m.out, BYTES, 0);
			m.ops[2 * i].data[0] = out;
			m.ops[2 * i + 1] = op_recv(m.net, m.recv, &m.in, BYTES, 0);
			m.ops[2 * i + 1].data[0] = in;
		}
		blank(m.in.data, m.in.size);
		give(peer.fd, &more, 1);
		for (unsigned k = rnd_below(t, 50); k; k--)
			ops_step(m.ops, 2 * FLIGHT);
		pid = fork_child(&m, kind % 4);
		ops_run(m.ops, 2 * FLIGHT);
		child_ends_well(pid);
		for (unsigned i = 0; i < FLIGHT; i++)
			filled(m.in.data + i * BYTES, BYTES, i);
	}
	more = 0;
	give(peer.fd, &more, 1);
	buf_free(m.net, &m.out);
	buf_free(m.net, &m.in);
	OK(net_close_send(m.net, m.send));
	OK(net_close_recv(m.net, m.recv));
	WAIT_FOR(pair_step(m.net, &p));	/* the listener still works too */
	exchange(m.net, p.send, p.recv, 1000, 1);
	pair_close(m.net, &p);
	peer_join(&peer);
	abi_down(m.net);
}

/* -- keys ------------------------------------------------------------------------------------- */

enum { KEY = 32, HIDE = 0xff };

/* How often memory from `at` to `end` has the key whose bytes `hidden` has inverted. */
static unsigned found(const uint8_t *at, const uint8_t *end, const uint8_t *hidden)
{
	unsigned n = 0;

	for (; at + KEY <= end; at++) {
		int i = 0;

		while (i < KEY && (at[i] ^ hidden[i]) == HIDE)
			i++;
		n += i == KEY;
	}
	return n;
}

/* The same in all of this process's memory, or in what a core dump has of it. */
static unsigned found_in_process(const uint8_t *hidden, bool dumped)
{
	unsigned long from = 0, to = 0, a, b;
	char line[512], mode[8] = "";
	unsigned n = 0;
	FILE *f = fopen("/proc/self/smaps", "re");

	TRUE(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %7s", &a, &b, mode) == 3) {
			from = a;
			to = b;
		} else if (!strncmp(line, "VmFlags:", 8) && !strncmp(mode, "rw", 2) &&
			   (!dumped || !strstr(line, " dd"))) {
			n += found((const uint8_t *)from, (const uint8_t *)to, hidden);
		}
	}
	fclose(f);
	return n;
}

/* A file with a secret of the job; its text, and the key made of it, are given back inverted. */
static void secret_file(uint8_t *ret_text, uint8_t *ret_key)
{
	static const char name[] = "/tmp/braid-test-secret-XXXXXX";
	char path[sizeof(name)];
	uint8_t text[KEY], key[BRAID_KEY_SIZE];
	int fd;

	memcpy(path, name, sizeof(name));
	fd = mkostemp(path, O_CLOEXEC);
	TRUE(fd >= 0 && !braid_auth_init());
	TRUE(getrandom(text, sizeof(text), 0) == sizeof(text));
	text[KEY - 1] = 'x';		/* no newline */
	TRUE(write(fd, text, sizeof(text)) == sizeof(text));
	close(fd);
	braid_auth_job((const char *)text, sizeof(text), key);
	for (unsigned i = 0; i < KEY; i++) {
		ret_text[i] = text[i] ^ HIDE;
		ret_key[i] = key[i] ^ HIDE;
	}
	explicit_bzero(text, sizeof(text));
	explicit_bzero(key, sizeof(key));
	setenv("BRAID_SECRET_FILE", path, 1);
}

static void keys(struct abi *t)
{
	uint8_t hidden[KEY], text[KEY], key[KEY];
	struct braid_handle h;
	struct net *net;
	struct pair p;
	pid_t pid;

	secret_file(text, key);
	net = abi_up(t);
	unlink(getenv("BRAID_SECRET_FILE"));
	pair_listen(net, &p);
	EQ(0, braid_handle_unpack(p.handle, &h));
	for (unsigned i = 0; i < KEY; i++)
		hidden[i] = h.token[i] ^ HIDE;
	WAIT_FOR(pair_step(net, &p));
	exchange(net, p.send, p.recv, 1000, 1);
	/* The test, as NCCL does, has copies of the handle. */
	explicit_bzero(&h, sizeof(h));
	explicit_bzero(p.handle, sizeof(p.handle));
	TRUE(found_in_process(hidden, false));
	TRUE(found_in_process(key, false));
	EQ(0, found_in_process(text, false));	/* not kept at all */
	EQ(0, found_in_process(hidden, true));
	EQ(0, found_in_process(key, true));
	fflush(NULL);
	pid = fork();
	TRUE(pid >= 0);
	if (!pid)
		_exit(found_in_process(hidden, false) + found_in_process(key, false) +
			      found_in_process(text, false) != 0);
	child_ends_well(pid);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("a forked child is refused everything and disturbs nothing", forks),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)	/* too much memory to search */
	CASE("neither a forked child nor a core dump has a listen's token, or a secret of the job",
	     keys, ONCE),
#endif
};

ABI_MAIN(cases)
