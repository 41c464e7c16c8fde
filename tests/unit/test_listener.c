/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_listener.c - the sockets at which a device listens: one port number at all of its addresses,
 * and what happens when descriptors run out.
 *
 * Sockets are rows of a table behind a fake braid_os.  The neighbours in core/setup that find
 * addresses, bind sockets, watch descriptors and begin handshakes are replaced here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/setup/bind.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listener.h"
#include "core/setup/unpaced.h"
#include "core/setup/ways.h"
#include "tests/lib/warns.h"

enum { FDS = 64, FIRST_FD = 10, CHOSEN = 5000, EVENT_FD = 900 };

static struct braid_dev dev;
static struct braid_listener *p;
static const struct braid_conn_owner owner;

static struct {
	struct braid_at at[BRAID_HANDLE_ADDRS];	/* addresses of the device */
	unsigned nat;
	bool shared;			/* another interface is in the same subnet */

	struct socket {
		bool open, listens, bound, reuse, reuse_late, v6only;
		uint16_t port;
		uint32_t events;	/* that are watched */
	} fd[FDS];
	unsigned sockets, watches;
	uint16_t chosen;		/* the port that the kernel chooses next */
	uint16_t used[2];		/* ports that others use at all but the first address */
	bool all_used;			/* they use every port */
	int socket_err, watch_err, tie_err;
	uint32_t gone;			/* an IPv4 address that does not exist any more */

	unsigned queued;		/* connections that wait */
	int accept_err;			/* instead of them ... */
	bool then_err;			/* ... or after them */
	bool full;			/* too many handshakes are under way */
	unsigned rooms;			/* strangers that can be dropped */
	unsigned accepted, made_rooms;
	int handshake_err;
	int device_fd;			/* of the transport's events */
	bool device_watched;
	unsigned read;			/* events() */
} w;

/* --- the neighbours ------------------------------------------------------------------------ */

unsigned braid_dev_addrs(const struct braid_dev *of, struct braid_at ret[BRAID_HANDLE_ADDRS])
{
	assert_ptr_equal(of, &dev);
	memcpy(ret, w.at, w.nat * sizeof(*ret));
	return w.nat;
}

bool braid_bind_listens(const struct braid_at *at)
{
	(void)at;
	return w.shared;
}

static struct socket *of(int fd)
{
	assert_true(fd >= FIRST_FD && fd < FIRST_FD + FDS && w.fd[fd - FIRST_FD].open);
	return &w.fd[fd - FIRST_FD];
}

int braid_bind_listener(int fd, const struct braid_netdev *net, bool to_interface)
{
	(void)net;
	of(fd)->bound = to_interface;
	return to_interface ? w.tie_err : 0;
}

void braid_socket_unpaced(int fd, char ret[BRAID_CONGESTION_SIZE])
{
	assert_false(of(fd)->listens);
	assert_ptr_equal(ret, dev.congestion);
}

int braid_watch(int op, int fd, uint32_t events, void *obj, enum braid_tag tag)
{
	if (fd == EVENT_FD) {
		assert_int_equal(tag, BRAID_TAG_DEVICE);
		assert_true(events & EPOLLET);
		w.device_watched = true;
		return 0;
	}
	assert_int_equal(tag, BRAID_TAG_PORT);
	assert_non_null(obj);
	if (op == EPOLL_CTL_ADD && w.watch_err && w.watches)
		return w.watch_err;
	w.watches += op == EPOLL_CTL_ADD;
	of(fd)->events = events;
	return 0;
}

void braid_unwatch(int fd)
{
	if (fd == EVENT_FD) {
		w.device_watched = false;
		return;
	}
	w.watches--;
	of(fd)->events = 0;
}

int braid_handshake_accept(int fd, struct braid_dev *to, const struct braid_conn_owner *by,
			   const struct sockaddr_storage *from, uint64_t now)
{
	assert_int_equal(fd, 777);
	assert_ptr_equal(to, &dev);
	assert_ptr_equal(by, &owner);
	assert_int_equal(from->ss_family, AF_INET);
	assert_int_equal(now, 5 * SEC);
	w.accepted++;
	return w.handshake_err;
}

bool braid_handshake_has_room(uint64_t now)
{
	assert_int_equal(now, 5 * SEC);
	return !w.full;
}

bool braid_handshake_make_room(uint64_t now, bool at_once)
{
	assert_int_equal(now, 5 * SEC);
	assert_true(at_once);
	if (!w.rooms)
		return false;
	w.rooms--;
	w.made_rooms++;
	return true;
}

/* --- sockets ------------------------------------------------------------------------------- */

static int os_socket(int family, int protocol)
{
	(void)family, (void)protocol;
	if (w.socket_err) {
		errno = w.socket_err;
		return -1;
	}
	assert_true(w.sockets < FDS);
	w.fd[w.sockets].open = true;
	return FIRST_FD + (int)w.sockets++;
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	(void)val, (void)len;
	if (level == SOL_SOCKET && name == SO_REUSEPORT)
		of(fd)->reuse = true, of(fd)->reuse_late = of(fd)->listens;
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
		of(fd)->v6only = true;
	return 0;
}

static uint16_t port_of(const struct sockaddr *sa)
{
	const union braid_netdev_addr *a = (const union braid_netdev_addr *)sa;

	return ntohs(sa->sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port);
}

static int os_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	const union braid_netdev_addr *a = (const union braid_netdev_addr *)sa;
	uint16_t port = port_of(sa);

	(void)len;
	if (sa->sa_family == AF_INET && w.gone && a->in.sin_addr.s_addr == w.gone) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	for (unsigned i = 0; i < sizeof(w.used) / sizeof(w.used[0]) && port; i++) {
		if (port == w.used[i] || w.all_used) {
			errno = EADDRINUSE;
			return -1;
		}
	}
	of(fd)->port = port ? port : w.chosen++;
	return 0;
}

static int os_listen(int fd, int backlog)
{
	assert_true(backlog >= 128);
	of(fd)->listens = true;
	return 0;
}

static int os_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	union braid_netdev_addr *a = (union braid_netdev_addr *)sa;
	uint16_t port = htons(of(fd)->port);

	(void)len;
	*(sa->sa_family == AF_INET ? &a->in.sin_port : &a->in6.sin6_port) = port;
	return 0;
}

static int os_accept(int fd, struct sockaddr *sa, socklen_t *len)
{
	assert_true(of(fd)->listens);
	assert_int_equal(*len, sizeof(struct sockaddr_storage));
	if (w.accept_err && !w.made_rooms && !(w.then_err && w.queued)) {
		errno = w.accept_err;
		return -1;
	}
	if (!w.queued) {
		errno = EAGAIN;
		return -1;
	}
	w.queued--;
	sa->sa_family = AF_INET;
	return 777;
}

static int os_close(int fd)
{
	assert_int_equal(of(fd)->events, 0);	/* it is not watched any more, or never was */
	of(fd)->open = false;
	return 0;
}

static int event_fd(const struct braid_dev *d)
{
	assert_ptr_equal(d, &dev);
	return w.device_fd;
}

static bool events(struct braid_dev *d)
{
	assert_ptr_equal(d, &dev);
	return ++w.read == 1;
}

static int os_random(void *buf, size_t len)
{
	memset(buf, 0, len);
	return 0;
}

/* --- a device ------------------------------------------------------------------------------ */

static const struct braid_netdev net = { .name = "eth0" };

static void add_addr(const char *ip)
{
	struct braid_at *a = &w.at[w.nat++];
	union braid_netdev_addr *to = &a->ip.addr;
	bool v6 = strchr(ip, ':') != NULL;

	*a = (struct braid_at){ .net = &net };
	to->sa.sa_family = v6 ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(to->sa.sa_family, ip, v6 ? (void *)&to->in6.sin6_addr :
						       (void *)&to->in.sin_addr), 1);
}

static int setup(void **state)
{
	static const struct braid_os os = {
		.socket = os_socket, .setsockopt = os_setsockopt, .bind = os_bind,
		.listen = os_listen, .getsockname = os_getsockname, .accept = os_accept,
		.close = os_close, .random = os_random,
	};
	static const struct braid_transport tr = { .event_fd = event_fd, .events = events };
	static const struct braid_transport *const list[] = { &tr, NULL };

	(void)state;
	memset(&w, 0, sizeof(w));
	braid_param.port_range[0] = 0;
	w.chosen = CHOSEN;
	w.device_fd = -1;
	dev = (struct braid_dev){ .net.name = "eth0", .addr = "10.0.0.1" };
	add_addr("10.0.0.1");
	braid_os = &os;
	braid_transports_use(list);
	warns_keep();
	p = NULL;
	braid_svc_lock();
	braid_listeners_init();
	return 0;
}

static unsigned open_sockets(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < FDS; i++)
		n += w.fd[i].open;
	return n;
}

static int teardown(void **state)
{
	struct braid_listener *l;

	(void)state;
	braid_list_for(l, &braid_listeners, node)
		of(l->fd)->events = 0;		/* as after the end of the epoll set */
	braid_listeners_close();
	braid_svc_unlock();
	assert_int_equal(open_sockets(), 0);
	return 0;
}

static void open_it(void)
{
	assert_int_equal(braid_listener_open(&dev, false, &p), 0);
	assert_non_null(p);
	assert_true(p->first);
}

/* --- where it listens ---------------------------------------------------------------------- */

static void a_device_listens_once_at_a_port_that_the_kernel_chooses(void **state)
{
	(void)state;
	open_it();
	assert_int_equal(p->port, CHOSEN);
	assert_true(of(p->fd)->listens);
	assert_int_equal(of(p->fd)->events, EPOLLIN);
	assert_false(of(p->fd)->reuse);
	open_it();
	assert_int_equal(w.sockets, 1);
	assert_int_equal(braid_listener_port(&dev), CHOSEN);
}

static void all_addresses_have_the_same_port(void **state)
{
	(void)state;
	add_addr("10.0.1.1");
	add_addr("fd00::1");
	open_it();
	assert_int_equal(open_sockets(), 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(w.fd[i].listens);
		assert_int_equal(w.fd[i].port, CHOSEN);
		assert_int_equal(w.fd[i].events, EPOLLIN);
	}
	assert_true(w.fd[2].v6only);		/* else it would take the IPv4 address as well */
}

static void another_port_is_tried_if_one_is_not_free_everywhere(void **state)
{
	(void)state;
	add_addr("10.0.1.1");
	w.used[0] = CHOSEN;
	w.used[1] = CHOSEN + 1;
	open_it();
	assert_int_equal(p->port, CHOSEN + 2);
	assert_int_equal(open_sockets(), 2);
}

static void in_the_last_try_it_does_with_fewer_addresses(void **state)
{
	(void)state;
	add_addr("10.0.1.1");
	w.all_used = true;
	open_it();
	assert_true(p->port > CHOSEN);
	assert_int_equal(open_sockets(), 1);
}

static void with_a_range_its_port_is_free_everywhere(void **state)
{
	(void)state;
	strcpy(braid_param.port_range, "7001-7003");
	add_addr("10.0.1.1");
	w.used[0] = 7001;
	w.used[1] = 7003;
	open_it();
	assert_int_equal(p->port, 7002);
	assert_int_equal(open_sockets(), 2);
}

static void a_range_that_is_in_use_is_named_in_one_line(void **state)
{
	(void)state;
	strcpy(braid_param.port_range, "7001-7002");
	w.used[0] = 7001;
	w.used[1] = 7002;
	assert_int_equal(braid_listener_open(&dev, false, &p), -EADDRINUSE);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device eth0: can't listen"));
	assert_non_null(strstr(warn_text, "BRAID_PORT_RANGE=7001-7002"));
	assert_non_null(strstr(warn_text, "[port-range]"));
}

/* Else the kernel gives the port to another process of this user, too. */
static void in_a_range_the_port_is_shared_only_once_it_listens(void **state)
{
	(void)state;
	strcpy(braid_param.port_range, "7001-7003");
	w.shared = true;
	open_it();
	assert_int_equal(open_sockets(), 2);
	assert_true(w.fd[0].reuse_late);
	assert_true(w.fd[1].reuse && !w.fd[1].reuse_late);
}

static void an_address_that_has_gone_is_left_out(void **state)
{
	(void)state;
	add_addr("10.0.1.1");
	add_addr("10.0.2.1");
	w.gone = w.at[1].ip.addr.in.sin_addr.s_addr;
	open_it();
	assert_int_equal(open_sockets(), 2);
}

static void a_device_whose_addresses_have_all_gone_can_not_listen(void **state)
{
	(void)state;
	w.gone = w.at[0].ip.addr.in.sin_addr.s_addr;
	assert_int_equal(braid_listener_open(&dev, false, &p), -EADDRNOTAVAIL);
	assert_null(p);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[cannot-listen]"));
	w.nat = 0;
	assert_int_equal(braid_listener_port(&dev), 0);
}

static void in_a_shared_subnet_a_second_socket_is_bound_to_the_interface(void **state)
{
	(void)state;
	w.shared = true;
	open_it();
	assert_int_equal(open_sockets(), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(w.fd[i].reuse);
		assert_int_equal(w.fd[i].port, CHOSEN);
		assert_int_equal(w.fd[i].bound, i);
	}
	assert_false(p->bound);
}

static void without_the_right_to_bind_one_socket_does(void **state)
{
	(void)state;
	w.shared = true;
	w.tie_err = -EPERM;
	open_it();
	assert_int_equal(open_sockets(), 1);
	assert_int_equal(warn_count, 0);
}

static void a_socket_that_can_not_be_watched_closes_all(void **state)
{
	(void)state;
	add_addr("10.0.1.1");
	w.watch_err = -ENOSPC;			/* of the second */
	assert_int_equal(braid_listener_open(&dev, false, &p), -ENOSPC);
	assert_null(p);
	assert_int_equal(open_sockets(), 0);
	assert_int_equal(w.watches, 0);
	assert_true(braid_list_empty(&braid_listeners));
}

static void without_descriptors_the_warning_names_the_limit_unless_it_is_quiet(void **state)
{
	(void)state;
	w.socket_err = EMFILE;
	assert_int_equal(braid_listener_open(&dev, true, &p), -EMFILE);
	assert_int_equal(warn_count, 0);
	assert_int_equal(braid_listener_open(&dev, false, &p), -EMFILE);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "ulimit -n"));
	w.socket_err = EACCES;
	assert_int_equal(braid_listener_open(&dev, true, &p), -EACCES);
	assert_int_equal(warn_count, 2);		/* quiet is about descriptors only */
}

/* --- peers --------------------------------------------------------------------------------- */

static void arrive(unsigned n)
{
	w.queued = n;
	braid_listener_event(p, &owner, 5 * SEC);
}

static void all_that_wait_are_accepted_but_a_flood_in_rounds(void **state)
{
	(void)state;
	open_it();
	arrive(3);
	assert_int_equal(w.accepted, 3);
	arrive(1000);
	assert_true(w.accepted >= 3 + 64 && w.accepted < 1000);
	assert_int_equal(of(p->fd)->events, EPOLLIN);	/* the rest raises the next event */
}

static void a_round_ends_when_memory_runs_out(void **state)
{
	(void)state;
	open_it();
	w.handshake_err = -ENOMEM;
	arrive(3);
	assert_int_equal(w.accepted, 1);
	w.handshake_err = -EINVAL;		/* that one peer's affair */
	arrive(3);
	assert_int_equal(w.accepted, 4);
}

static void while_handshakes_are_many_peers_wait_in_the_kernel(void **state)
{
	(void)state;
	open_it();
	w.full = true;
	arrive(3);
	assert_int_equal(w.accepted, 0);
	assert_int_equal(warn_count, 0);
	assert_int_equal(of(p->fd)->events, 0);
	w.full = false;
	assert_true(braid_listeners_resume(5 * SEC));
	assert_false(braid_listeners_resume(5 * SEC + 10 * MS));
	assert_int_equal(of(p->fd)->events, EPOLLIN);
	arrive(3);
	assert_int_equal(w.accepted, 3);
}

static void without_descriptors_strangers_make_room(void **state)
{
	(void)state;
	open_it();
	w.accept_err = EMFILE;
	w.rooms = 1;
	arrive(1);
	assert_int_equal(w.made_rooms, 1);
	assert_int_equal(w.accepted, 1);
	assert_int_equal(warn_count, 0);
}

static void without_room_it_pauses_with_one_warning_and_tries_again(void **state)
{
	(void)state;
	open_it();
	w.accept_err = ENFILE;
	arrive(1);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[no-descriptors]"));
	assert_int_equal(of(p->fd)->events, 0);
	arrive(1);
	assert_int_equal(warn_count, 1);		/* not again so soon */
	assert_true(braid_listeners_resume(5 * SEC));
	assert_int_equal(of(p->fd)->events, 0);
	assert_false(braid_listeners_resume(6 * SEC));
	assert_int_equal(of(p->fd)->events, EPOLLIN);
	assert_false(braid_listeners_resume(7 * SEC));
	w.accept_err = 0;
	arrive(1);
	assert_int_equal(w.accepted, 1);
}

/* The kernel says so before it looks whether another connection waits. */
static void descriptors_that_run_out_in_mid_round_are_the_next_events_affair(void **state)
{
	(void)state;
	open_it();
	w.accept_err = EMFILE;
	w.then_err = true;
	arrive(2);
	assert_int_equal(w.accepted, 2);
	assert_int_equal(warn_count, 0);
	assert_int_equal(of(p->fd)->events, EPOLLIN);
}

/* --- events of the transports' devices ----------------------------------------------------- */

static void a_transports_events_are_watched_with_the_devices_first_port(void **state)
{
	(void)state;
	add_addr("10.0.1.1");
	w.device_fd = EVENT_FD;
	open_it();
	assert_true(w.device_watched);
	assert_true(braid_listeners_read_events());	/* once a device: more are to come */
	assert_int_equal(w.read, 1);
	assert_false(braid_listener_read_events(p));
	assert_int_equal(w.read, 2);
	for (unsigned i = 0; i < FDS; i++)
		w.fd[i].events = 0;
	braid_listeners_close();
	assert_false(w.device_watched);
	assert_true(braid_list_empty(&braid_listeners));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_device_listens_once_at_a_port_that_the_kernel_chooses),
		CASE(all_addresses_have_the_same_port),
		CASE(another_port_is_tried_if_one_is_not_free_everywhere),
		CASE(in_the_last_try_it_does_with_fewer_addresses),
		CASE(with_a_range_its_port_is_free_everywhere),
		CASE(a_range_that_is_in_use_is_named_in_one_line),
		CASE(in_a_range_the_port_is_shared_only_once_it_listens),
		CASE(an_address_that_has_gone_is_left_out),
		CASE(a_device_whose_addresses_have_all_gone_can_not_listen),
		CASE(in_a_shared_subnet_a_second_socket_is_bound_to_the_interface),
		CASE(without_the_right_to_bind_one_socket_does),
		CASE(a_socket_that_can_not_be_watched_closes_all),
		CASE(without_descriptors_the_warning_names_the_limit_unless_it_is_quiet),
		CASE(all_that_wait_are_accepted_but_a_flood_in_rounds),
		CASE(a_round_ends_when_memory_runs_out),
		CASE(while_handshakes_are_many_peers_wait_in_the_kernel),
		CASE(without_descriptors_strangers_make_room),
		CASE(without_room_it_pauses_with_one_warning_and_tries_again),
		CASE(descriptors_that_run_out_in_mid_round_are_the_next_events_affair),
		CASE(a_transports_events_are_watched_with_the_devices_first_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
