/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_bind.c - which sockets are bound to their interface, for routes and socket options that the
 * test makes up.
 *
 * The device is "nic0", 10.1.0.1/24 on interface 901.  Interface 902 is in the same subnet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/link/link.h"
#include "core/setup/bind.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/ways.h"
#include "tests/lib/warns.h"

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

enum { FD = 40, NIC = 901, OTHER = 902, VRF = 77 };	/* numbers that no real interface has */

static struct {
	unsigned leaves_by;		/* routes use that interface, whatever the address */
	unsigned routes;		/* questions about routes */
	const char *local;		/* an address of this host's; or NULL */
	unsigned came_by;		/* packets of an accepted socket; 0: the kernel does not say */
	int tells;			/* IP_PKTINFO: packets come with their interface */
	int bound_to;			/* SO_BINDTOIFINDEX */
	unsigned binds;			/* calls that set it */
	int bind_err;
} w;

static struct braid_dev dev;
static uint64_t now_ns;

/* --- the kernel ---------------------------------------------------------------------------- */

static bool is(const struct sockaddr *sa, const char *ip)
{
	return ip && ((const struct sockaddr_in *)sa)->sin_addr.s_addr == inet_addr(ip);
}

static int os_route(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
		    struct braid_route *ret)
{
	(void)from;
	w.routes++;
	*ret = (struct braid_route){ .ifindex = ifindex ? ifindex : w.leaves_by, .local = is(to, w.local) };
	return 0;
}

static int os_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	assert_int_equal(fd, FD);
	assert_int_equal(len, sizeof(int));
	if (level == IPPROTO_IP && name == IP_PKTINFO) {
		memcpy(&w.tells, val, sizeof(w.tells));
		return 0;
	}
	assert_int_equal(level, SOL_SOCKET);
	assert_int_equal(name, SO_BINDTOIFINDEX);
	w.binds++;
	if (w.bind_err) {
		errno = w.bind_err;
		return -1;
	}
	memcpy(&w.bound_to, val, sizeof(w.bound_to));
	return 0;
}

static int os_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
	struct in_pktinfo info = { .ipi_ifindex = (int)w.came_by };
	struct cmsghdr h = {
		.cmsg_len = CMSG_LEN(sizeof(info)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO,
	};

	assert_int_equal(fd, FD);
	if (level == SOL_SOCKET) {
		assert_int_equal(name, SO_BINDTOIFINDEX);
		memcpy(val, &w.bound_to, sizeof(w.bound_to));
		return 0;
	}
	assert_int_equal(name, IP_PKTOPTIONS);
	assert_true(*len >= CMSG_SPACE(sizeof(info)));
	if (!w.came_by || !w.tells) {
		*len = 0;
		return 0;
	}
	memcpy(val, &h, sizeof(h));
	memcpy((char *)val + CMSG_LEN(0), &info, sizeof(info));
	*len = CMSG_SPACE(sizeof(info));
	return 0;
}

static int os_getsockname(int fd, struct sockaddr *sa, socklen_t *len)
{
	assert_int_equal(fd, FD);
	assert_true(*len >= sizeof(dev.net.addr.in));
	memcpy(sa, &dev.net.addr.in, sizeof(dev.net.addr.in));
	return 0;
}

static uint64_t os_now_ns(void)
{
	return now_ns;
}

static const struct braid_os fake = {
	.route = os_route, .setsockopt = os_setsockopt, .getsockopt = os_getsockopt,
	.getsockname = os_getsockname, .now_ns = os_now_ns,
};

/* --- the device ---------------------------------------------------------------------------- */

static union braid_netdev_addr addr(const char *ip)
{
	union braid_netdev_addr a = { .in = { .sin_family = AF_INET } };

	assert_int_equal(inet_pton(AF_INET, ip, &a.in.sin_addr), 1);
	return a;
}

static struct braid_at at(const char *ip, unsigned prefix)
{
	return (struct braid_at){ .net = &dev.net, .ip = { addr(ip), prefix } };
}

static struct braid_way way(void)
{
	return (struct braid_way){ .pair = { .net = &dev.net, .from = { addr("10.1.0.1"), 24 },
					     .to = addr("10.1.0.9") } };
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.leaves_by = OTHER;
	memset(&dev, 0, sizeof(dev));
	dev.net.addr = addr("10.1.0.1");
	dev.net.prefix = 24;
	dev.net.ifindex = NIC;
	strcpy(dev.net.name, "nic0");
	braid_os = &fake;
	now_ns += 1000000000000ull;		/* the gates of earlier WARNs are open again */
	warns_keep();
	braid_svc_lock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	braid_log_to(NULL);
	return 0;
}

/* --- listening and dialling ---------------------------------------------------------------- */

static void a_subnet_that_leaves_by_another_interface_needs_a_bound_listener(void **state)
{
	struct braid_at a = at("10.1.0.1", 24), host = at("10.1.0.1", 32);

	(void)state;
	assert_true(braid_bind_listens(&a));
	w.leaves_by = NIC;
	w.routes = 0;
	assert_false(braid_bind_listens(&a));
	assert_int_equal(w.routes, 1);		/* each delays the first connection */
	/* An address without a subnet has no neighbours. */
	w.leaves_by = OTHER;
	assert_false(braid_bind_listens(&host));
}

static void a_neighbour_that_is_this_host_itself_decides_nothing(void **state)
{
	struct braid_at a = at("10.1.0.1", 24), pair = at("10.1.0.1", 31);

	(void)state;
	w.local = "10.1.0.0";			/* the first neighbour that is tried */
	assert_true(braid_bind_listens(&a));
	/* A subnet of two addresses has one neighbour. */
	assert_false(braid_bind_listens(&pair));
	w.local = "10.1.0.3";
	assert_true(braid_bind_listens(&pair));
}

static void a_listener_is_tied_to_its_interface_or_to_its_vrf(void **state)
{
	(void)state;
	assert_int_equal(braid_bind_listener(FD, &dev.net, false), 0);
	assert_int_equal(w.binds, 0);
	assert_int_equal(braid_bind_listener(FD, &dev.net, true), 0);
	assert_int_equal(w.bound_to, NIC);
	dev.net.vrf = VRF;
	assert_int_equal(braid_bind_listener(FD, &dev.net, false), 0);
	assert_int_equal(w.bound_to, VRF);
	w.bind_err = EPERM;
	assert_int_equal(braid_bind_listener(FD, &dev.net, true), -EPERM);
	assert_int_equal(warn_count, 0);		/* the caller decides whether it matters */
}

static void a_dialler_is_bound_only_where_that_makes_a_difference(void **state)
{
	struct braid_way way_ = way();

	(void)state;
	assert_true(braid_bind_dialler(FD, &way_));
	assert_int_equal(w.bound_to, NIC);
	w.binds = 0;
	way_.loose = true;			/* it was dialled bound, in vain */
	assert_false(braid_bind_dialler(FD, &way_));
	way_.loose = false;
	w.leaves_by = NIC;
	assert_false(braid_bind_dialler(FD, &way_));
	assert_int_equal(w.binds, 0);
}

static void a_dialler_that_is_not_bound_stays_in_its_vrf(void **state)
{
	struct braid_way way_ = way();

	(void)state;
	dev.net.vrf = VRF;
	way_.loose = true;
	assert_false(braid_bind_dialler(FD, &way_));
	assert_int_equal(w.bound_to, VRF);
}

static void where_binding_is_forbidden_there_is_one_warn(void **state)
{
	struct braid_way way_ = way();

	(void)state;
	w.bind_err = EPERM;
	assert_false(braid_bind_dialler(FD, &way_));
	assert_false(braid_bind_dialler(FD, &way_));
	assert_int_equal(w.binds, 2);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device nic0"));
	assert_non_null(strstr(warn_text, "Operation not permitted"));
	assert_non_null(strstr(warn_text, "[not-by-device]"));
}

/* --- accepting ----------------------------------------------------------------------------- */

static bool accepted(void)
{
	struct braid_conn c = { .fd = FD, .met = &dev, .addr = "10.1.0.9:5" };
	union braid_netdev_addr from = addr("10.1.0.9");

	memcpy(&c.to, &from, sizeof(from));
	braid_bind_accepted(&c);
	return c.bound;
}

static void what_a_bound_listener_accepts_is_bound_already(void **state)
{
	(void)state;
	w.bound_to = NIC;
	w.came_by = NIC;
	assert_true(accepted());
	assert_int_equal(w.binds, 0);
}

static void an_accepted_socket_is_bound_if_packets_come_in_by_its_interface(void **state)
{
	(void)state;
	w.came_by = NIC;
	assert_true(accepted());
	assert_int_equal(w.bound_to, NIC);
	assert_false(w.tells);			/* the data path reads no such thing */
	assert_int_equal(warn_count, 0);
}

static void one_whose_answers_leave_by_its_interface_anyway_is_not_bound(void **state)
{
	(void)state;
	w.came_by = NIC;
	w.leaves_by = NIC;
	assert_false(accepted());
	assert_int_equal(w.binds, 0);
}

static void one_whose_packets_come_in_by_another_interface_is_reported(void **state)
{
	(void)state;
	w.came_by = OTHER;
	assert_false(accepted());
	assert_false(accepted());
	assert_int_equal(w.binds, 0);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device nic0, peer 10.1.0.9:5"));
	assert_non_null(strstr(warn_text, "arp_ignore=1"));
	assert_non_null(strstr(warn_text, "[not-by-device]"));
}

static void without_the_kernels_answer_nothing_is_bound_or_logged(void **state)
{
	(void)state;
	assert_false(accepted());
	assert_int_equal(w.binds + warn_count, 0);
}

/* --- binding does not help ----------------------------------------------------------------- */

static void a_link_that_works_only_unbound_is_reported_once(void **state)
{
	static struct braid_link link;
	struct braid_way way_ = way();

	(void)state;
	memset(&link, 0, sizeof(link));
	link.key.dev = &dev;
	strcpy(link.peer, "host (pid 3)");
	/* The routes have changed since: what leaves unbound leaves by this interface. */
	w.leaves_by = NIC;
	braid_bind_failed(&link, &way_);
	assert_int_equal(warn_count, 0);
	w.leaves_by = OTHER;
	braid_bind_failed(&link, &way_);
	braid_bind_failed(&link, &way_);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device nic0, peer host (pid 3)"));
	assert_non_null(strstr(warn_text, "[not-by-device]"));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_subnet_that_leaves_by_another_interface_needs_a_bound_listener),
		CASE(a_neighbour_that_is_this_host_itself_decides_nothing),
		CASE(a_listener_is_tied_to_its_interface_or_to_its_vrf),
		CASE(a_dialler_is_bound_only_where_that_makes_a_difference),
		CASE(a_dialler_that_is_not_bound_stays_in_its_vrf),
		CASE(where_binding_is_forbidden_there_is_one_warn),
		CASE(what_a_bound_listener_accepts_is_bound_already),
		CASE(an_accepted_socket_is_bound_if_packets_come_in_by_its_interface),
		CASE(one_whose_answers_leave_by_its_interface_anyway_is_not_bound),
		CASE(one_whose_packets_come_in_by_another_interface_is_reported),
		CASE(without_the_kernels_answer_nothing_is_bound_or_logged),
		CASE(a_link_that_works_only_unbound_is_reported_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
