/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_zerocopy.c - large payloads that the kernel reads where they lie, on one TCP lane.
 *
 * The kernel is the test's: it takes MSG_ZEROCOPY, or refuses it, and its error queue has what a case
 * puts there.  The peer is the other end of a socket pair, which the test reads and answers for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/types.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/dev.h"
#include "core/link/link_int.h"
#include "core/link/recover.h"
#include "core/mem/later.h"
#include "core/msg/comm.h"
#include "core/proto/frame.h"
#include "core/proto/aead.h"
#include "core/proto/keys.h"
#include "socket/stream.h"
#include "tests/lib/null.h"

enum { K = 1024, LARGE = 256 * K, QUEUE = 16, RECVERR = IP_RECVERR };

extern const struct braid_transport braid_tcp;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static struct {				/* the kernel; the lock guards the error queue */
	pthread_mutex_t lock;
	struct sock_extended_err queue[QUEUE];
	unsigned queued, reads;
	unsigned late;			/* reads that find nothing yet */
	uint32_t held;			/* calls that it has not let go of */
	int level, type;		/* of its messages */
	int queue_err, option_err, send_err, disconnect_err;
	unsigned options, lent, copied, disconnects;
	atomic_uint closes;
	const char *first;		/* the last lent piece */
	size_t len, most;		/* most: bytes that a call takes; 0: any */
	unsigned full;			/* so many large pieces find no room */
	bool same_host, no_thread;
	int recv_err;
} k = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const struct braid_os *real_os;
static struct braid_os os;
static struct braid_params saved;
static struct braid_dev dev;
static struct braid_link *the_link;
static struct braid_lane *lane;
static struct braid_comm *comm;
static struct braid_mr mr;
static struct braid_lane_keys keys;
static int peer;
static unsigned infos;
static char info[512], data[LARGE];
static unsigned fail_in;		/* so many callocs from now on one fails; 0: none does */

void *__wrap_calloc(size_t n, size_t size)
{
	return fail_in && !--fail_in ? NULL : __real_calloc(n, size);
}

static void keep_info(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)line;
	if (level != BRAID_LOG_INFO || !strstr(file, "zerocopy"))
		return;
	infos++;
	snprintf(info, sizeof(info), "%s", text);
}

static int fails(int err)
{
	errno = err;
	return -1;
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	(void)fd, (void)val, (void)len;
	if (level != SOL_SOCKET || name != SO_ZEROCOPY)
		return 0;
	k.options++;
	return k.option_err ? fails(k.option_err) : 0;
}

static int os_name(int fd, struct sockaddr *sa, socklen_t *len, uint32_t last)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	(void)fd;
	in.sin_addr.s_addr = htonl(0x0a000001u + (k.same_host ? 0 : last));
	memcpy(sa, &in, sizeof(in));
	*len = sizeof(in);
	return 0;
}

static int os_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	return os_name(fd, sa, len, 0);
}

static int os_getpeername(int fd, struct sockaddr *sa, socklen_t *len)
{
	return os_name(fd, sa, len, 1);
}

static ssize_t os_send(int fd, const void *buf, size_t len, int flags)
{
	if (k.most && len > k.most)
		len = k.most;
	if (!(flags & MSG_ZEROCOPY)) {
		if (k.full && len >= BRAID_LEND_MIN) {
			k.full--;
			return fails(EAGAIN);
		}
		k.copied += len >= BRAID_LEND_MIN;
		return send(fd, buf, len, flags);
	}
	if (k.send_err)
		return fails(k.send_err);
	k.lent++;
	k.held++;
	k.first = buf;
	k.len = len;
	return send(fd, buf, len, flags & ~MSG_ZEROCOPY);
}

static ssize_t os_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	struct sock_extended_err e;

	if (!(flags & MSG_ERRQUEUE))
		return k.recv_err ? fails(k.recv_err) : recvmsg(fd, msg, flags);
	pthread_mutex_lock(&k.lock);
	k.reads++;
	if (k.queue_err || !k.queued || k.late) {
		k.late -= k.late > 0;
		pthread_mutex_unlock(&k.lock);
		return fails(k.queue_err ? k.queue_err : EAGAIN);
	}
	e = k.queue[0];
	memmove(k.queue, k.queue + 1, --k.queued * sizeof(e));
	pthread_mutex_unlock(&k.lock);
	c->cmsg_level = k.level;
	c->cmsg_type = k.type;
	c->cmsg_len = CMSG_LEN(sizeof(e) + sizeof(struct sockaddr_in));
	memcpy(CMSG_DATA(c), &e, sizeof(e));
	msg->msg_controllen = CMSG_SPACE(sizeof(e) + sizeof(struct sockaddr_in));
	return 0;
}

static ssize_t os_recv(int fd, void *buf, size_t len, int flags)
{
	return k.recv_err ? fails(k.recv_err) : recv(fd, buf, len, flags);
}

static int os_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	(void)fd, (void)len;
	assert_int_equal(sa->sa_family, AF_UNSPEC);
	k.disconnects++;
	return k.disconnect_err ? fails(k.disconnect_err) : 0;
}

static int os_close(int fd)
{
	atomic_fetch_add(&k.closes, 1);
	return close(fd);
}

static int os_thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	return k.no_thread ? -EAGAIN : real_os->thread_start(ret, fn, arg, name);
}

/* The kernel has let go of calls `first` to `last`. */
static void notify(uint32_t first, uint32_t last, uint8_t code)
{
	pthread_mutex_lock(&k.lock);
	k.held -= last - first + 1;
	k.queue[k.queued++] = (struct sock_extended_err){
		.ee_origin = SO_EE_ORIGIN_ZEROCOPY, .ee_code = code, .ee_info = first,
		.ee_data = last,
	};
	pthread_mutex_unlock(&k.lock);
}

/* --- a link with one lane ------------------------------------------------------------------ */

static void lane_new(const struct braid_lane_keys *with)
{
	struct braid_link_key key = { .dev = &dev, .traffic_class = -1 };
	struct braid_carrier c = { .tr = &braid_tcp, .keys = with };
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	peer = fd[1];
	c.fd = fd[0];
	the_link = braid_link_new(&key);
	assert_non_null(the_link);
	the_link->lanes_max = 1;
	the_link->msg.tx_window = 64 << 20;
	strcpy(the_link->peer, "the peer");
	assert_int_equal(braid_link_add_lane(the_link, 0, &c), 0);
	assert_int_equal(braid_link_attach(the_link), 0);
	atomic_store(&the_link->state, BRAID_LINK_UP);
	lane = the_link->lane[0];
	braid_lock_wait(&the_link->lock);
	comm = braid_comm_new(the_link, 0, true);
	braid_unlock(&the_link->lock);
	comm->opened = true;
}

/* Has the kernel let go of all that it had when this is called, within ten times what it takes? */
static bool lets_go(bool soon)
{
	struct braid_stops s;
	uint64_t until = real_os->now_ns() + (soon ? 10000000000u : 20000000u);

	braid_stops_mark(&dev, &s);
	while (!braid_stops_past(&dev, &s) && real_os->now_ns() < until)
		sched_yield();
	return braid_stops_past(&dev, &s);
}

/* The kernel lets go of all, so that no job is left for the next case. */
static void lane_end(void)
{
	k.queue_err = 0;
	k.type = RECVERR;
	k.level = SOL_IP;
	if (k.held)
		notify(0, k.held - 1, 0);
	null_link_free(the_link);
	assert_true(lets_go(true));
	while (braid_later_busy(&dev, BRAID_STOP_CHECK))	/* it closes the socket after that */
		sched_yield();
	close(peer);
	k.queued = 0;
}

static void again(const struct braid_lane_keys *with)
{
	lane_end();
	k.options = 0;
	k.closes = 0;
	infos = 0;
	lane_new(with);
}

static int setup(void **state)
{
	(void)state;
	real_os = braid_os;
	saved = braid_param;
	os = *real_os;
	os.setsockopt = os_setsockopt;
	os.getsockname = os_getsockname;
	os.getpeername = os_getpeername;
	os.send = os_send;
	os.recv = os_recv;
	os.recvmsg = os_recvmsg;
	os.connect = os_connect;
	os.close = os_close;
	os.thread_start = os_thread_start;
	braid_os = &os;
	memset((char *)&k + sizeof(k.lock), 0, sizeof(k) - sizeof(k.lock));
	k.level = SOL_IP;
	k.type = RECVERR;
	memset(&dev, 0, sizeof(dev));
	dev.nmembers = 1;
	dev.member[0] = &dev;
	strcpy(dev.net.name, "eth7");
	mr = (struct braid_mr){ .dev = &dev, .data = data, .size = sizeof(data) };
	braid_param.zerocopy = 1;
	braid_param.eager = 1 << 20;
	braid_log_to(keep_info);
	infos = 0;
	lane_new(NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lane_end();
	braid_pool_trim();
	braid_log_to(NULL);
	braid_param = saved;
	braid_os = real_os;
	return 0;
}

/* --- what happens on it -------------------------------------------------------------------- */

/* Read all that has come. */
static size_t came(void)
{
	static char sink[LARGE];
	size_t all = 0;
	ssize_t n;

	while ((n = recv(peer, sink, sizeof(sink), MSG_DONTWAIT)) > 0)
		all += (size_t)n;
	return all;
}

static struct braid_req *isend(size_t size, struct braid_mr *of)
{
	struct braid_req *req = NULL;
	size_t left = size + BRAID_HDR_SIZE;

	assert_int_equal(braid_comm_isend(comm, data, size, 0, of, &req), 0);
	assert_non_null(req);
	for (int i = 0; i < 1000 && lane->tx.unsent; i++) {
		left -= came();
		braid_lock_wait(&the_link->lock);
		braid_lane_push(lane);
		braid_unlock(&the_link->lock);
	}
	assert_int_equal(left - came(), 0);
	return req;
}

/* A large message in pieces of 64 KiB: so many calls. */
enum { CALLS = LARGE / (64 * K) };
static struct braid_req *lend(void)
{
	unsigned before = k.lent;
	struct braid_req *req;

	k.most = 64 * K;
	req = isend(LARGE, &mr);
	assert_int_equal(k.lent - before, CALLS);
	return req;
}

static void acknowledge(void)
{
	braid_lock_wait(&the_link->lock);
	assert_int_equal(braid_tx_acked(lane, lane->tx.f_sent), 0);
	braid_unlock(&the_link->lock);
}

static bool done(struct braid_req *req)
{
	return atomic_load(&req->done);
}

static void fence(void)
{
	unsigned n = braid_link_stop(the_link);

	lane->tr->lane_fence(lane);
	braid_link_go(the_link, n);
}

static bool closed(unsigned times)
{
	uint64_t until = real_os->now_ns() + 10000000000u;

	while (k.closes != times && real_os->now_ns() < until)
		sched_yield();
	return k.closes == times;
}

/* --- what is lent -------------------------------------------------------------------------- */

static void a_large_payload_leaves_by_itself_from_the_users_memory(void **state)
{
	(void)state;
	isend(LARGE, &mr);
	assert_int_equal(k.options, 1);
	assert_true(k.lent >= 1);
	assert_true(k.first >= data && k.first + k.len <= data + LARGE);
	assert_int_equal(atomic_load(&dev.zerocopy_copied), 0);
	assert_true(atomic_load(&dev.zerocopy_bytes) > LARGE - 64 * K);
	assert_true(lane->lent);
}

static void small_messages_and_memory_that_is_not_registered_are_copied(void **state)
{
	(void)state;
	isend(64 * K - 1, &mr);
	isend(LARGE, NULL);
	assert_int_equal(k.lent, 0);
	assert_false(lane->lent);
	isend(64 * K, &mr);
	assert_int_equal(k.lent, 1);
	assert_ptr_equal(k.first, data);
}

static void nothing_is_lent_unless_asked_for_nor_within_a_host_nor_of_an_encrypted_lane(void **state)
{
	(void)state;
	k.same_host = true;
	again(NULL);
	isend(LARGE, &mr);
	k.same_host = false;
	assert_true(braid_aead_ciphers() & BRAID_CIPHER_CHACHA20);
	keys.cipher = BRAID_CIPHER_CHACHA20;
	again(&keys);
	assert_false(atomic_load(&lane->lends));
	braid_param.zerocopy = 0;
	again(NULL);
	isend(LARGE, &mr);
	assert_int_equal(k.options, 0);
	assert_int_equal(k.lent, 0);
	assert_int_equal(k.reads, 0);
}

static void a_send_is_done_by_the_peers_acknowledgement_not_by_the_kernels(void **state)
{
	struct braid_req *req = lend();

	(void)state;
	assert_false(done(req));
	notify(0, CALLS - 1, 0);
	lane->tr->arm(lane);
	assert_false(done(req));
	acknowledge();
	assert_true(done(req));
	req = lend();
	acknowledge();
	assert_true(done(req));
}

/* --- what the kernel refuses --------------------------------------------------------------- */

static void a_kernel_without_the_option_is_named_once_and_all_is_copied(void **state)
{
	(void)state;
	k.option_err = ENOPROTOOPT;
	again(NULL);
	assert_int_equal(infos, 1);
	assert_non_null(strstr(info, "eth7"));
	assert_non_null(strstr(info, "SO_ZEROCOPY"));
	isend(LARGE, &mr);
	assert_int_equal(k.lent, 0);
}

static void resume(void)
{
	struct braid_carrier c = { .tr = &braid_tcp, .epoch = lane->epoch + 1 };
	int fd[2];

	assert_int_equal(braid_lane_fence(lane), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	close(peer);
	peer = fd[1];
	c.fd = fd[0];
	assert_int_equal(braid_lane_resume(lane, &c, lane->tx.f_acked, 0), 0);
}

static void without_memory_all_is_copied(void **state)
{
	(void)state;
	fail_in = 1;
	resume();
	assert_int_equal(fail_in, 0);
	isend(LARGE, &mr);
	assert_int_equal(k.lent, 0);
	acknowledge();
	resume();
	lend();
}

static void a_kernel_without_room_copies_that_call_only(void **state)
{
	(void)state;
	k.send_err = ENOBUFS;
	k.most = 64 * K;
	isend(LARGE, &mr);
	assert_int_equal(k.lent, 0);
	assert_int_equal(k.copied, CALLS);
	assert_int_equal(atomic_load(&dev.zerocopy_copied), CALLS);
	assert_int_equal(atomic_load(&dev.zerocopy_bytes), 0);
	assert_int_equal(infos, 0);
	k.send_err = 0;
	lend();
	k.send_err = ENOBUFS;
	isend(64 * K, &mr);
	assert_int_equal(k.reads, 1);		/* of the error queue, which may make room */
	assert_int_equal(infos, 0);
}

/* A kernel without room says so before it finds that the socket is full. */
static void a_call_that_sends_nothing_does_not_count_as_copied(void **state)
{
	(void)state;
	k.send_err = ENOBUFS;
	k.full = 3;
	k.most = 64 * K;
	isend(LARGE, &mr);
	assert_int_equal(k.full, 0);
	assert_int_equal(atomic_load(&dev.zerocopy_copied), CALLS);
}

static void memory_that_can_not_be_pinned_is_copied_from_then_on(void **state)
{
	(void)state;
	k.send_err = EFAULT;
	isend(LARGE, &mr);
	assert_int_equal(infos, 1);
	assert_non_null(strstr(info, "pin"));
	k.send_err = 0;
	isend(LARGE, &mr);
	assert_int_equal(k.lent, 0);
}

static void another_error_is_the_lanes(void **state)
{
	struct braid_req *req;

	(void)state;
	k.send_err = ECONNRESET;
	assert_int_equal(braid_comm_isend(comm, data, LARGE, 0, &mr, &req), 0);
	braid_lock_wait(&the_link->lock);
	braid_lane_push(lane);
	braid_unlock(&the_link->lock);
	assert_false(braid_lane_up(lane));
	assert_int_equal(k.copied, 0);
}

/* --- notifications ------------------------------------------------------------------------- */

static void a_kernel_that_copies_after_all_is_named_once_and_lent_no_more(void **state)
{
	(void)state;
	lend();
	notify(0, 2, SO_EE_CODE_ZEROCOPY_COPIED);
	notify(3, 3, SO_EE_CODE_ZEROCOPY_COPIED);
	lane->tr->arm(lane);
	lane->tr->arm(lane);
	assert_int_equal(infos, 1);
	assert_non_null(strstr(info, "eth7"));
	assert_non_null(strstr(info, "copied"));
	assert_int_equal(atomic_load(&dev.zerocopy_copied), 4);
	isend(LARGE, &mr);
	assert_int_equal(k.lent, CALLS);
	assert_true(braid_lane_up(lane));
}

/* Once as many calls are notified as were made, nothing asks the kernel any more. */
static void ranges_are_counted_also_where_their_numbers_wrap(void **state)
{
	unsigned reads;

	(void)state;
	lend();
	notify(UINT32_MAX - 1, 1, 0);
	lane->tr->arm(lane);
	reads = k.reads;
	lane->tr->arm(lane);
	assert_int_equal(k.reads, reads);
	fence();
	assert_int_equal(k.disconnects, 0);
}

static void notifications_of_ipv6_count_and_those_of_others_do_not(void **state)
{
	unsigned reads;

	(void)state;
	lend();
	notify(0, 3, 0);
	k.queue[0].ee_origin = SO_EE_ORIGIN_ICMP;
	lane->tr->arm(lane);
	notify(0, 3, 0);
	k.queue[0].ee_errno = EHOSTUNREACH;
	lane->tr->arm(lane);
	k.type = IP_TTL;
	notify(0, 3, 0);
	lane->tr->arm(lane);
	k.held = CALLS;
	reads = k.reads;
	lane->tr->arm(lane);
	assert_int_equal(k.reads, reads + 1);	/* it still waits for these calls */
	k.level = SOL_IPV6;
	k.type = IPV6_RECVERR;
	notify(0, 3, 0);
	lane->tr->arm(lane);
	reads = k.reads;
	lane->tr->arm(lane);
	assert_int_equal(k.reads, reads);
}

static void a_sender_looks_for_notifications_once_in_eight_calls(void **state)
{
	(void)state;
	lend();
	lend();
	assert_int_equal(k.reads, 0);
	lend();
	assert_true(k.reads >= 1 && k.reads <= CALLS);
	notify(0, 3 * CALLS - 1, 0);
	lend();
	k.reads = 0;
	lend();
	assert_int_equal(k.reads, 0);
}

static void an_error_queue_that_fails_costs_no_lane_but_the_saving(void **state)
{
	(void)state;
	lend();
	k.queue_err = EIO;
	lane->tr->arm(lane);
	assert_int_equal(infos, 1);
	assert_non_null(strstr(info, "error queue"));
	assert_true(braid_lane_up(lane));
	isend(LARGE, &mr);
	assert_int_equal(k.lent, CALLS);
	k.queue_err = 0;
	notify(0, CALLS - 1, 0);
	lane->tr->arm(lane);
	fence();
	assert_int_equal(k.disconnects, 0);
}

/* EPOLLERR may mean both. */
static void an_error_of_the_connection_beside_a_notification_is_found(void **state)
{
	unsigned reads;

	(void)state;
	lend();
	notify(0, 3, 0);
	k.recv_err = ECONNRESET;
	assert_true(lane->tr->arm(lane));
	reads = k.reads;
	braid_link_move(the_link);
	assert_false(braid_lane_up(lane));
	assert_int_equal(k.reads, reads);
	assert_int_equal(k.queued, 0);
}

/* --- memory is taken back ------------------------------------------------------------------ */

static void memory_is_given_back_only_once_the_kernel_has_let_go_of_it(void **state)
{
	(void)state;
	lend();
	fence();
	assert_int_equal(k.disconnects, 1);
	assert_false(lets_go(false));
	notify(0, 2, 0);
	assert_false(lets_go(false));
	fence();			/* asks for nothing more */
	assert_int_equal(k.disconnects, 1);
	notify(3, 3, 0);
	assert_true(lets_go(true));
	assert_int_equal(k.closes, 0);
}

static void a_lane_closes_before_the_kernel_lets_go_and_its_socket_after(void **state)
{
	(void)state;
	lend();
	braid_lock_wait(&the_link->lock);
	braid_lane_lost(lane, -ECONNRESET);
	braid_unlock(&the_link->lock);
	assert_int_equal(braid_lane_fence(lane), 0);
	assert_int_equal(lane->fd, -1);
	assert_int_equal(k.disconnects, 1);
	assert_int_equal(k.closes, 0);
	assert_false(lets_go(false));
	notify(0, CALLS - 1, 0);
	assert_true(lets_go(true));
	assert_true(closed(1));
}

static void a_socket_that_can_not_be_disconnected_is_waited_for_as_well(void **state)
{
	(void)state;
	lend();
	k.disconnect_err = EBUSY;
	fence();
	assert_false(lets_go(false));
	notify(0, CALLS - 1, 0);
	assert_true(lets_go(true));
}

static void without_a_thread_the_caller_collects_what_has_come(void **state)
{
	(void)state;
	lend();
	k.no_thread = true;
	notify(0, CALLS - 1, 0);
	k.late = 3;			/* before and after the disconnect, and at first in the job */
	fence();
	assert_int_equal(k.disconnects, 1);
	assert_true(lets_go(true));
}

static void what_the_peer_has_acknowledged_ends_no_connection(void **state)
{
	(void)state;
	lend();
	acknowledge();
	fence();
	assert_int_equal(k.disconnects, 0);
	assert_int_equal(braid_lane_fence(lane), 0);
	assert_int_equal(k.disconnects, 0);
	assert_int_equal(k.closes, 1);
}

static void what_the_kernel_has_let_go_of_ends_no_connection(void **state)
{
	(void)state;
	lend();
	notify(0, CALLS - 1, 0);
	fence();
	assert_int_equal(k.disconnects, 0);
}

static void a_comm_that_closes_with_a_send_on_its_way_has_it_aborted(void **state)
{
	(void)state;
	lend();
	braid_comm_close(comm);
	assert_int_equal(k.disconnects, 1);
	assert_false(braid_lane_up(lane));
	assert_false(lets_go(false));
	notify(0, CALLS - 1, 0);
	assert_true(lets_go(true));
}

static void a_comm_that_closes_when_all_has_arrived_costs_no_lane(void **state)
{
	struct braid_req *req = lend();

	(void)state;
	acknowledge();
	assert_true(done(req));
	braid_comm_close(comm);
	assert_int_equal(k.disconnects, 0);
	assert_true(braid_lane_up(lane));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_large_payload_leaves_by_itself_from_the_users_memory),
		CASE(small_messages_and_memory_that_is_not_registered_are_copied),
		CASE(nothing_is_lent_unless_asked_for_nor_within_a_host_nor_of_an_encrypted_lane),
		CASE(a_send_is_done_by_the_peers_acknowledgement_not_by_the_kernels),
		CASE(a_kernel_without_the_option_is_named_once_and_all_is_copied),
		CASE(without_memory_all_is_copied),
		CASE(a_kernel_without_room_copies_that_call_only),
		CASE(a_call_that_sends_nothing_does_not_count_as_copied),
		CASE(memory_that_can_not_be_pinned_is_copied_from_then_on),
		CASE(another_error_is_the_lanes),
		CASE(a_kernel_that_copies_after_all_is_named_once_and_lent_no_more),
		CASE(ranges_are_counted_also_where_their_numbers_wrap),
		CASE(notifications_of_ipv6_count_and_those_of_others_do_not),
		CASE(a_sender_looks_for_notifications_once_in_eight_calls),
		CASE(an_error_queue_that_fails_costs_no_lane_but_the_saving),
		CASE(an_error_of_the_connection_beside_a_notification_is_found),
		CASE(memory_is_given_back_only_once_the_kernel_has_let_go_of_it),
		CASE(a_lane_closes_before_the_kernel_lets_go_and_its_socket_after),
		CASE(a_socket_that_can_not_be_disconnected_is_waited_for_as_well),
		CASE(without_a_thread_the_caller_collects_what_has_come),
		CASE(what_the_peer_has_acknowledged_ends_no_connection),
		CASE(what_the_kernel_has_let_go_of_ends_no_connection),
		CASE(a_comm_that_closes_with_a_send_on_its_way_has_it_aborted),
		CASE(a_comm_that_closes_when_all_has_arrived_costs_no_lane),
	};

	braid_aead_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
