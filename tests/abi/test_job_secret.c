/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_job_secret.c - the secret of a job: processes with the same one connect, others are told why
 * not, and an attacker who knows a handle and not the secret gets nothing.
 *
 * The attacker's code is here and in tests/lib/speak.c.
 */
#include "tests/lib/hostile.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char secret[] = "4zQ0tq3bXr6mG1sJvYhU8cKe2wLfNa7P";
static const char another[] = "9dR5yH2nTk0xWiB6oEpV3jCu8lSgMqZ1";

/* Let this process read the secret from a file of that mode, which goes when it is read. */
static void use_file(const char *text, mode_t mode)
{
	char path[] = "/tmp/braid-test-secret-XXXXXX";
	int fd = mkstemp(path);

	TRUE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	TRUE(!fchmod(fd, mode));
	close(fd);
	setenv("BRAID_SECRET_FILE", path, 1);
}

static void file_goes(void)
{
	unlink(getenv("BRAID_SECRET_FILE"));
}

/* -- two processes ---------------------------------------------------------------------------- */

static void friend_of_job(struct abi *t, int fd)
{
	struct net *net;
	void *send, *recv;

	setenv("BRAID_SECRET", secret, 1);
	net = abi_up(t);
	send = send_to(net, fd);
	recv = recv_from(net, fd);
	send_one(net, send, 100000, 1);
	recv_one(net, recv, 100000, 2);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void same_secret(struct abi *t)
{
	struct peer peer = peer_start(t, friend_of_job);
	struct net *net;
	void *send, *recv;

	setenv("BRAID_SHARE", "0", 1);	/* each end dials a link */
	use_file(secret, 0600);
	net = abi_up(t);
	file_goes();
	recv = recv_from(net, peer.fd);
	send = send_to(net, peer.fd);
	recv_one(net, recv, 100000, 1);
	send_one(net, send, 100000, 2);
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static struct {				/* of the process that dials */
	const char *secret, *says;
} dialler;

static void dial_refused(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net;
	unsigned ms;
	void *send;

	if (dialler.secret)
		setenv("BRAID_SECRET", dialler.secret, 1);
	net = hostile_up(t);
	take(fd, handle, sizeof(handle));
	RES(ncclInvalidUsage, connect_for(net, handle, 10000, &send, &ms));
	EQ(1, warns());
	warned("127.0.0.1", dialler.says, "BRAID_SECRET_FILE", "[secret-mismatch]", NULL);
	abi_down(net);
	end_well();
}

/* Both ends name the difference, each from its own side. */
static void differ(struct abi *t, const char *theirs, const char *they_say, const char *ours,
		   const char *we_say)
{
	struct peer peer;
	struct stage s;

	dialler.secret = theirs;
	dialler.says = they_say;
	peer = peer_start(t, dial_refused);
	if (ours)
		setenv("BRAID_SECRET", ours, 1);
	stage_up(t, &s);
	give(peer.fd, s.handle, sizeof(s.handle));
	peer_join(&peer);
	WAIT_FOR(warns() > 0);
	stage_empty(&s);
	EQ(1, warns());
	warned("127.0.0.1", we_say, "BRAID_SECRET_FILE", "[secret-mismatch]", NULL);
	stage_down(&s);
}

static void two_secrets(struct abi *t)
{
	differ(t, another, "has another secret of the job than this process", secret,
	       "has another secret of the job than this process");
}

static void none_here(struct abi *t)
{
	differ(t, another, "has no secret of the job, and this process has one", NULL,
	       "has a secret of the job, and this process has none");
}

static void none_there(struct abi *t)
{
	differ(t, NULL, "has a secret of the job, and this process has none", secret,
	       "has no secret of the job, and this process has one");
}

/* -- an attacker who knows the handle ---------------------------------------------------------- */

static void dial_as(struct speaker *sp, const struct stage *s, const char *text)
{
	speaker_init(sp, &s->to);
	if (text)
		speaker_secret(sp, text);
	TRUE(speak_dial(sp, &s->to));
}

/* A refusal says that there is a secret, and neither names us nor says what we have. */
static void gets_a_status(struct stage *s, const char *text, uint16_t most)
{
	static const struct braid_hello nobody;
	struct speaker sp;

	dial_as(&sp, s, text);
	sp.mine.most = most;
	TRUE(speak_until(&sp, SPEAK_ANSWER, false));
	EQ(most < 2 ? BRAID_HELLO_NO_ROOM : BRAID_HELLO_SECRET, sp.theirs.status);
	EQ(BRAID_OPTION_SECRET, sp.theirs.options & BRAID_OPTION_SECRET);
	EQ(0, sp.theirs.pid);
	EQ(0, sp.theirs.port);
	EQ(0, sp.theirs.ident);
	TRUE(!memcmp(sp.theirs.process, nobody.process, sizeof(nobody.process)));
	TRUE(!memcmp(sp.theirs.host, nobody.host, sizeof(nobody.host)));
	TRUE(!memcmp(sp.theirs.transports, nobody.transports, sizeof(nobody.transports)));
	TRUE(!memcmp(sp.theirs.more, nobody.more, sizeof(nobody.more)));
	TRUE(speak_closed(sp.fd, 1000));
	close(sp.fd);
}

static void token_alone(struct abi *t)
{
	struct speaker sp;
	struct stage s;

	setenv("BRAID_SECRET", secret, 1);
	stage_up(t, &s);
	for (uint16_t most = BRAID_WIRE_LEAST; most <= BRAID_WIRE_MOST; most++)
		gets_a_status(&s, NULL, most);
	gets_a_status(&s, another, BRAID_WIRE_MOST);

	dial_as(&sp, &s, secret);	/* the secret without the token */
	sp.key[0] ^= 1;
	TRUE(speak_until(&sp, SPEAK_HELLO, false));
	TRUE(!speak_read(sp.fd, sp.m2, 1));
	close(sp.fd);
	stage_empty(&s);
	stage_quiet(&s, 1);

	dial_as(&sp, &s, secret);	/* both: so it is the secret that the others lack */
	TRUE(speak_until(&sp, SPEAK_PROOF, false));
	TRUE(speak_open(&sp, &s.to, 2));
	close(sp.fd);
	stage_down(&s);
}

/* Answers in the listener's place: refuses so many dials, then takes one if it knows the secret. */
static ncclResult_t answered(struct net *net, unsigned refusals, bool is_signed, unsigned *ret_n)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	struct speaker sp = { .fd = -1 };
	struct braid_hdr h;
	ncclResult_t res = ncclSuccess;
	uint16_t port;
	int listener = speak_listen(&port);
	uint64_t end = deadline_ms(10000);
	void *send = NULL;

	handle_forge(handle, port, &to);
	for (*ret_n = 0; res == ncclSuccess && !send; ) {
		struct pollfd pfd[] = { { listener, POLLIN, 0 }, { sp.fd, POLLIN, 0 } };

		if (poll(pfd, 2, 0) > 0 && pfd[0].revents) {
			bool refuse = (*ret_n)++ < refusals;

			speaker_init(&sp, &to);
			TRUE((sp.fd = speak_accept(listener)) >= 0);
			TRUE(speak_hear(&sp));
			speaker_secret(&sp, secret);
			sp.key[0] ^= !is_signed;
			TRUE(speak_answer(&sp, refuse ? BRAID_HELLO_SECRET : BRAID_HELLO_OK));
			if (refuse)
				close(sp.fd);
			if (refuse)
				sp.fd = -1;
			else
				TRUE(speak_believe(&sp));
		} else if (sp.fd >= 0 && pfd[1].revents) {
			TRUE(speak_hear_frame(&sp, &h, NULL, 0));
			if (h.type == BRAID_F_OPEN)
				TRUE(speak_opened(&sp, &to, h.comm));
		}
		res = TIMED(SETUP_MS, net_connect(net, 0, handle, &send));
		wait_tick(end, __FILE__, __LINE__, "what connect() has to say");
	}
	if (send)
		OK(net_close_send(net, send));
	close(listener);
	close(sp.fd);
	return res;
}

static void forged_refusals(struct abi *t)
{
	struct net *net;
	unsigned n;

	setenv("BRAID_SECRET", secret, 1);
	net = hostile_up(t);
	OK(answered(net, 1, true, &n));
	EQ(2, n);
	EQ(0, warns());
	RES(ncclInvalidUsage, answered(net, 1000000, true, &n));
	TRUE(n >= 2);
	EQ(1, warns());
	warned("127.0.0.1", "[secret-mismatch]", NULL);
	RES(ncclInvalidUsage, answered(net, 1000000, false, &n));
	warned("[wrong-token]", NULL);	/* a stranger's: nothing is known of its secret */
	abi_down(net);
}

/* -- what this process shows ------------------------------------------------------------------ */

/* Every line of the log, of all levels, and no part of the secret is in them. */
static void log_without_secret(struct abi *t)
{
	struct net *net;
	char err[512], word[9];
	struct pair p;

	setenv("BRAID_SECRET", secret, 1);
	setenv("BRAID_DEBUG", "info", 1);
	snprintf(word, sizeof(word), "%.8s", secret);
	net = net_load(t->plugin, t->abi, err, sizeof(err));
	TRUE(net);
	OK(net_init(net, rnd(t), NCCL_NET_TRAFFIC_CLASS_UNDEF, abi_hear(word), NULL));
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
	abi_heard("");
}

static void refuses_to_start(struct abi *t, const char *text, mode_t mode, const char *says)
{
	struct net *net;
	char err[512];

	warns_expected();
	use_file(text, mode);
	net = net_load(t->plugin, t->abi, err, sizeof(err));
	TRUE(net);
	RES(ncclInvalidUsage, net_init(net, rnd(t), NCCL_NET_TRAFFIC_CLASS_UNDEF, abi_log, NULL));
	file_goes();
	warned_with("bad-secret");
	if (!strstr(net_last_warn(), says) || strstr(net_last_warn(), text))
		FAIL("\"%s\" is not in it, or the secret is: %s", says, net_last_warn());
	net_unload(net);
}

static void readable_file(struct abi *t)
{
	refuses_to_start(t, secret, 0640, "mode 0640");
}

static void short_file(struct abi *t)
{
	refuses_to_start(t, "not so long\n", 0600, "has 11 bytes");
}

static const struct abi_case cases[] = {
	CASE("two processes with the same secret connect, whether it is a file's or a variable's",
	     same_secret),
	CASE("two processes with different secrets both name the difference", two_secrets, ONCE,
	     .warns = "secret-mismatch"),
	CASE("a process without a secret is refused by one that has it, and both say so", none_there,
	     ONCE, .warns = "secret-mismatch"),
	CASE("a process with a secret is refused by one that has none, and both say so", none_here,
	     ONCE, .warns = "secret-mismatch"),
	CASE("who knows a handle and not the secret gets a status and no name", token_alone, ONCE),
	CASE("one forged refusal does not end a connect, and a stranger's proves nothing",
	     forged_refusals, ONCE),
	CASE("no line of the log has the secret", log_without_secret, ONCE),
	CASE("a secret that others may read keeps the plugin from starting", readable_file, ONCE),
	CASE("a secret that is too short keeps the plugin from starting", short_file, ONCE),
};

ABI_MAIN(cases)
