/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_stat.c - what a process that hangs reports about itself, over its socket for braid stat.
 *
 * The case asks from another process, while no thread calls the plugin.  An answer is promised
 * within a second.  The time is printed, and the case fails at ten times that.
 */
#include "tests/abi/abi.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 1 << 20, TAG = 4711, FAIL_MS = 10000 };

static char dir[] = "/tmp/braid-test-XXXXXX";

/* Makes the directory for the sockets of this process and of peer_start()'s child. */
static void own_directory(void)
{
	TRUE(mkdtemp(dir));
	setenv("BRAID_STAT_DIR", dir, 1);
}

static void no_directory(void)
{
	TRUE(rmdir(dir) == 0);		/* empty: each process has removed its socket */
}

static void sweep(void)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	char path[512];

	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	closedir(d);
	no_directory();
}

static bool socket_of(pid_t pid, struct sockaddr_un *ret)
{
	struct stat sb;

	ret->sun_family = AF_UNIX;
	snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/%d", dir, (int)pid);
	return lstat(ret->sun_path, &sb) == 0 && S_ISSOCK(sb.st_mode) && (sb.st_mode & 0777) == 0600;
}

/* Sends `word` to the process's socket and returns the answer; *len is 0 if there is none. */
static char *ask(pid_t pid, const char *word, size_t *len)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *text = calloc(1, 1 << 20);
	struct sockaddr_un sa;
	uint64_t begun = now_us();
	ssize_t n;

	WAIT_FOR(socket_of(pid, &sa));
	TRUE(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	TRUE(send(fd, word, strlen(word), MSG_NOSIGNAL) == (ssize_t)strlen(word));
	for (*len = 0; (n = read(fd, text + *len, (1 << 20) - *len)) > 0;)
		*len += (size_t)n;
	close(fd);
	printf("%.*s: %zu bytes in %.1f ms (goal: 1000)\n", (int)strcspn(word, "\n"), word, *len,
	       (double)(now_us() - begun) / 1000);
	TRUE(now_us() - begun < FAIL_MS * 1000ull * drive_slow());
	return text;
}

static json_t *dumped(pid_t pid)
{
	json_error_t err;
	size_t len;
	char *text = ask(pid, "dump\n", &len);
	json_t *o = json_loadb(text, len, 0, &err);

	if (!o)
		FAIL("%s in %s", err.text, text);
	free(text);
	return o;
}

static json_t *only(const json_t *o, const char *key)
{
	EQ(1, json_array_size(json_object_get(o, key)));
	return json_array_get(json_object_get(o, key), 0);
}

static void says(const json_t *o, const char *key, const char *want)
{
	const char *got = json_string_value(json_object_get(o, key));

	if (!got || strcmp(got, want) != 0)
		FAIL("%s is %s, not %s", key, got ? got : "not there", want);
}

static long long number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* Posts one send or receive, tells the other end, and never calls the plugin again. */
static void sits(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	struct buf out = buf_new(net, send, LARGE, 0), in = buf_new(net, recv, LARGE, 0);
	struct op ops[2];

	fill(out.data, LARGE, 1);
	ops[0] = op_send(net, send, &out, LARGE, TAG);
	ops[1] = op_recv(net, recv, &in, LARGE, TAG + 1);
	meet(fd);
	ops_post(ops, 2);
	meet(fd);
	for (;;)
		pause();
}

static void stuck(struct abi *t)
{
	json_t *o, *link, *m[2];
	struct net *net;
	struct peer p;
	void *recv, *send;

	own_directory();
	p = peer_start(t, sits);
	net = abi_up(t);
	recv = recv_from(net, p.fd);
	send = send_to(net, p.fd);
	meet(p.fd);
	meet(p.fd);
	nap_ms(300);
	o = dumped(p.pid);
	EQ(p.pid, number(o, "pid"));
	link = only(o, "links");
	TRUE(!json_is_true(json_object_get(link, "busy")));
	TRUE(strstr(json_string_value(json_object_get(link, "peer")), "pid"));
	EQ(1, number(link, "sends"));
	EQ(1, number(link, "receives"));
	EQ(2, json_array_size(json_object_get(link, "messages")));
	for (int i = 0; i < 2; i++)
		m[i] = json_array_get(json_object_get(link, "messages"), (size_t)i);
	if (number(m[0], "tag") != TAG) {
		json_t *x = m[0];

		m[0] = m[1];
		m[1] = x;
	}
	says(m[0], "kind", "send");
	says(m[0], "state", "peer has not posted the receive");
	says(m[1], "kind", "receive");
	says(m[1], "state", "peer has not sent it");
	for (int i = 0; i < 2; i++) {
		EQ(TAG + i, number(m[i], "tag"));
		EQ(LARGE, number(m[i], "bytes"));
		EQ(0, number(m[i], "bytes_done"));
		TRUE(number(m[i], "age_ms") >= 250 && number(m[i], "age_ms") < 20000);
	}
	TRUE(json_array_size(json_object_get(o, "events")) >= 3);
	json_decref(o);
	/* This process has no outstanding messages. */
	o = dumped(getpid());
	EQ(0, json_array_size(json_object_get(only(o, "links"), "messages")));
	json_decref(o);
	peer_kill(&p);
	warns_expected();
	net_close_recv(net, recv);
	net_close_send(net, send);
	abi_down(net);
	sweep();
}

/* A message is done, but nothing has called test() for it: the dump says so. */
static void unasked(struct abi *t)
{
	struct net *net;
	struct pair p;
	struct buf out, in;
	struct op ops[2];
	json_t *o, *link;

	own_directory();
	net = abi_up(t);
	pair_open(net, &p);
	out = buf_new(net, p.send, 8, 0);
	in = buf_new(net, p.recv, 8, 0);
	fill(out.data, 8, 1);
	ops[0] = op_send(net, p.send, &out, 8, 1);
	ops[1] = op_recv(net, p.recv, &in, 8, 1);
	ops_post(ops, 2);
	ops_run(&ops[1], 1);
	o = dumped(getpid());
	EQ(2, json_array_size(json_object_get(o, "links")));	/* both ends are in this process */
	link = json_array_get(json_object_get(o, "links"), 0);
	if (!number(link, "sends"))
		link = json_array_get(json_object_get(o, "links"), 1);
	says(only(link, "messages"), "state", "done, not asked for");
	json_decref(o);
	ops_run(ops, 1);
	buf_free(net, &out);
	buf_free(net, &in);
	pair_close(net, &p);
	abi_down(net);
	if (t->abi >= 11)		/* finalize() removes the socket */
		no_directory();
	else
		sweep();
}

static void strange_words(struct abi *t)
{
	static const char *const words[] = { "\n", "x\n", "dump", "statt\n", "0123456789abcdef0123\n" };
	struct net *net;
	struct pair p;
	size_t len;

	own_directory();
	net = abi_up(t);
	pair_open(net, &p);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		free(ask(getpid(), words[i], &len));	/* without a newline it takes two seconds */
		EQ(0, len);
	}
	free(ask(getpid(), "metrics\n", &len));
	TRUE(len > 0);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
	no_directory();
}

/* A client that connects and reads nothing does not keep others from being served. */
static void slow_reader(struct abi *t)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;
	struct net *net;
	struct pair p;

	own_directory();
	net = abi_up(t);
	pair_open(net, &p);
	WAIT_FOR(socket_of(getpid(), &sa));
	TRUE(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	json_decref(dumped(getpid()));
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
	no_directory();
	close(fd);
}

/* The job works, but the directory stays empty. */
static void works_unseen(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	nap_ms(50);
	no_directory();
	pair_close(net, &p);
	abi_down(net);
}

static void turned_off(struct abi *t)
{
	own_directory();
	setenv("BRAID_STAT", "0", 1);
	works_unseen(t);
}

static void bad_directory(struct abi *t)
{
	own_directory();
	TRUE(chmod(dir, 0755) == 0);
	works_unseen(t);
}

/* The directory can't be made, since a file is in the way. */
static void no_such_directory(struct abi *t)
{
	own_directory();
	setenv("BRAID_STAT_DIR", "/dev/null/x", 1);
	works_unseen(t);
}

static void path_of(char ret[128], const char *name)
{
	snprintf(ret, 128, "%s/%s", dir, name);
}

static void make_file(const char *name)
{
	char path[128];
	FILE *f;

	path_of(path, name);
	f = fopen(path, "wxe");
	TRUE(f && fputs("a user's", f) >= 0 && fclose(f) == 0);
}

/* Does the file still have the content that make_file() wrote? */
static bool is_whole(const char *name)
{
	char path[128], text[16] = "";
	struct stat sb;
	FILE *f;

	path_of(path, name);
	if (lstat(path, &sb) || !S_ISREG(sb.st_mode))
		return false;
	f = fopen(path, "re");
	TRUE(f && fgets(text, sizeof(text), f) && fclose(f) == 0);
	return strcmp(text, "a user's") == 0;
}

static bool is_there(const char *name)
{
	char path[128];
	struct stat sb;

	path_of(path, name);
	return lstat(path, &sb) == 0;
}

/* A socket whose listener has gone. */
static void make_dead_socket(const char *name, mode_t mode)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", dir, name);
	TRUE(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && chmod(sa.sun_path, mode) == 0);
	close(fd);
}

static pid_t ended_process(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	TRUE(pid > 0 && waitpid(pid, NULL, 0) == pid);
	return pid;
}

/* BRAID_STAT_DIR names a directory with a user's own files in it, such as numbered checkpoints. */
static void users_files(struct abi *t)
{
	static const char *const files[] = { "0", "1", "12.1", "4194000", ".77", "2.tmp", "..5" };
	static const char *const sockets[] = {
		"07", "4194001.9", "4194305", "4194002.01", "3.", "1.2.3",
	};
	char path[128], left[2][32], mine[32];
	unsigned dead = (unsigned)ended_process();
	struct net *net;
	struct pair p;

	own_directory();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		make_file(files[i]);
	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++)
		make_dead_socket(sockets[i], 0600);
	make_dead_socket("4194003", 0755);	/* another program's */
	snprintf(mine, sizeof(mine), "%d", (int)getppid());
	make_dead_socket(mine, 0600);		/* that process runs, so its socket must stay */
	path_of(path, "4194004");
	TRUE(mkfifo(path, 0600) == 0);
	path_of(path, "4194005");
	TRUE(symlink("4194001.9", path) == 0);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(left[i], sizeof(left[i]), i ? "%u.1" : "%u", dead);
		make_dead_socket(left[i], 0600);
	}
	net = abi_up(t);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	WAIT_FOR(!is_there(left[0]) && !is_there(left[1]));
	pair_close(net, &p);
	abi_down(net);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		TRUE(is_whole(files[i]));
	for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++)
		TRUE(is_there(sockets[i]));
	TRUE(is_there("4194003") && is_there("4194004") && is_there("4194005") && is_there(mine));
	sweep();
}

/* A user's file has the name of the socket, or the temporary name under which it is made. */
static void names_taken(struct abi *t)
{
	char name[5][32];

	own_directory();
	snprintf(name[0], sizeof(name[0]), ".%d", (int)getpid());
	snprintf(name[1], sizeof(name[1]), "%d", (int)getpid());
	for (int i = 2; i < 5; i++)
		snprintf(name[i], sizeof(name[i]), "%d.%d", (int)getpid(), i - 1);
	for (int round = 0; round < 2; round++) {
		struct net *net;
		struct pair p;

		for (int i = round ? 0 : 1; i < (round ? 1 : 5); i++)
			make_file(name[i]);
		net = abi_up(t);
		pair_open(net, &p);
		exchange(net, p.send, p.recv, 1000, 1);
		nap_ms(50);
		pair_close(net, &p);
		abi_down(net);
		for (int i = round ? 0 : 1; i < 5; i++)
			TRUE(is_whole(name[i]));
	}
	sweep();
}

static bool has_line(const char *path, const char *line)
{
	char text[256];
	FILE *f = fopen(path, "re");
	bool found = false;

	while (f && fgets(text, sizeof(text), f))
		found |= strncmp(text, line, strlen(line)) == 0;
	if (f)
		fclose(f);
	return found;
}

static void metrics_file(struct abi *t)
{
	char path[128];
	struct net *net;
	struct pair p;

	own_directory();
	snprintf(path, sizeof(path), "%s/m-%%p.prom", dir);
	setenv("BRAID_METRICS_FILE", path, 1);
	setenv("BRAID_METRICS_S", "1", 1);
	net = abi_up(t);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	snprintf(path, sizeof(path), "%s/m-%d.prom", dir, (int)getpid());
	WAIT_FOR(has_line(path, "# EOF"));
	WAIT_FOR(has_line(path, "braid_sent_messages_total") &&
		 !has_line(path, "braid_never_there"));
	pair_close(net, &p);
	abi_down(net);
	TRUE(access(path, F_OK) != 0);	/* it has gone with its process's links */
	no_directory();
}

/* As many jobs do, the process exits with links that are open. */
static void exit_with_metrics(struct abi *t)
{
	static struct net *net;		/* not a leak: it is still known at exit() */
	char path[128];
	struct pair p;

	net = abi_up(t);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	snprintf(path, sizeof(path), "%s/m-exit.prom", dir);
	WAIT_FOR(has_line(path, "braid_up{"));
	if (!fork())
		exit(0);		/* what a child does leaves the file alone */
	wait(NULL);
	if (access(path, F_OK) != 0)
		_exit(1);
	exit(0);
}

static void metrics_gone_at_exit(struct abi *t)
{
	char path[128];
	int status;
	pid_t pid;

	own_directory();
	snprintf(path, sizeof(path), "%s/m-exit.prom", dir);
	setenv("BRAID_METRICS_FILE", path, 1);
	setenv("BRAID_METRICS_S", "1", 1);
	fflush(NULL);
	pid = fork();
	if (!pid)
		exit_with_metrics(t);
	TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
	TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	TRUE(access(path, F_OK) != 0);
	sweep();			/* its socket is removed by the next process */
}

static mode_t mode_of(const char *path)
{
	struct stat sb;

	TRUE(lstat(path, &sb) == 0 && S_ISREG(sb.st_mode));
	return sb.st_mode & 0777;
}

/* `make` puts something at the final or the temporary name of the metrics file; it must stay. */
static void metrics_beside(struct abi *t, void (*make)(const char *name),
			   bool (*same)(const char *name))
{
	char path[128], tmp[64];
	struct net *net;
	struct pair p;

	path_of(path, "m");
	setenv("BRAID_METRICS_FILE", path, 1);
	setenv("BRAID_METRICS_S", "1", 1);
	snprintf(tmp, sizeof(tmp), "m.%d.tmp", (int)getpid());
	for (int i = 0; i < 2; i++) {
		make(i ? tmp : "m");
		net = abi_up(t);
		pair_open(net, &p);
		exchange(net, p.send, p.recv, 1000, 1);
		nap_ms(300);
		pair_close(net, &p);
		abi_down(net);
		TRUE(same(i ? tmp : "m"));
		if (!i)
			TRUE(!is_there(tmp));
		path_of(path, i ? tmp : "m");
		TRUE(unlink(path) == 0 || errno == ENOENT);
		path_of(path, "m");
		unlink(path);
	}
}

static void make_fifo(const char *name)
{
	char path[128];

	path_of(path, name);
	TRUE(mkfifo(path, 0600) == 0);
}

static bool is_fifo(const char *name)
{
	char path[128];
	struct stat sb;

	path_of(path, name);
	return lstat(path, &sb) == 0 && S_ISFIFO(sb.st_mode);
}

static void make_link(const char *name)
{
	char path[128];

	path_of(path, name);
	TRUE(symlink("target", path) == 0);
}

static bool is_link(const char *name)
{
	char path[128];
	struct stat sb;

	path_of(path, name);
	return lstat(path, &sb) == 0 && S_ISLNK(sb.st_mode) && is_whole("target");
}

static void metrics_nowhere(struct abi *t)
{
	own_directory();
	metrics_beside(t, make_fifo, is_fifo);
	make_file("target");
	metrics_beside(t, make_link, is_link);
	sweep();
}

static bool is_report(const char *path)
{
	json_t *o = json_load_file(path, 0, NULL);
	bool ret = json_array_size(json_object_get(o, "events")) > 0;

	json_decref(o);
	return ret;
}

static unsigned dumps_in(void)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	unsigned n = 0;
	char path[512];

	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (strstr(e->d_name, ".json") && !strstr(e->d_name, ".tmp"))
			n += is_report(path) && mode_of(path) == 0600;
	}
	closedir(d);
	return n;
}

static void stall(struct abi *t)
{
	struct buf out;
	struct net *net;
	struct pair p;
	struct op op;

	own_directory();
	setenv("BRAID_STALL_WARN", "1", 1);
	setenv("BRAID_DUMP_DIR", dir, 1);
	warns_expected();
	net = abi_up(t);
	pair_open(net, &p);
	out = buf_new(net, p.send, LARGE, 0);
	op = op_send(net, p.send, &out, LARGE, TAG);
	while (!op_post(&op))
		;
	WAIT_FOR(dumps_in() == 1);
	TRUE(strstr(net_last_warn(), "See braid dump "));
	nap_ms(2500);
	EQ(1, dumps_in());		/* once */
	pair_close(net, &p);
	abi_down(net);
	sweep();
}

static const struct abi_case cases[] = {
	CASE("a stuck process: its messages, their ages, and what they wait for", stuck),
	CASE("a finished message that was not tested is reported", unasked),
	CASE("requests other than the three get no answer", strange_words, .since = 12),
	CASE("a client that connects and sends nothing delays no other", slow_reader, .since = 12),
	CASE("BRAID_STAT=0 makes no socket", turned_off),
	CASE("a directory that is not private has no effect on the job", bad_directory),
	CASE("a directory that can't be made has no effect on the job", no_such_directory),
	CASE("a user's files in the directory are left alone", users_files, .since = 12),
	CASE("a user's files with the names of our socket are left alone",
	     names_taken, .since = 12),
	CASE("metrics are written to a file", metrics_file, .since = 12),
	CASE("a process that exits with links takes its metrics along",
	     metrics_gone_at_exit, .since = 12),
	CASE("metrics are never written to a pipe, a device or through a link",
	     metrics_nowhere, .since = 12),
	CASE("a message that waits too long is dumped once, for its user alone",
	     stall, .since = 12, .warns = "peer-late"),
};

ABI_MAIN(cases)
