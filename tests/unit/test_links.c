/* SPDX-License-Identifier: BSD-3-Clause */
/* test_links.c - what links.h promises of rtnetlink's answers, which the test writes itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "topo/links.h"

enum { VRF = 7, PORT = 8 };

/* The linker wraps these (-Wl,--wrap=send,--wrap=recv). */
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t len, int flags);

static unsigned dumps, torn;		/* asked for; of these, torn by a change */
static bool begun;

static void put(char *buf, size_t *n, const void *data, size_t len)
{
	memcpy(buf + *n, data, len);
	*n += NLMSG_ALIGN(len);
}

static void put_attr(char *buf, size_t *n, unsigned type, const void *data, size_t len)
{
	struct nlattr a = { .nla_len = (uint16_t)(sizeof(a) + len), .nla_type = (uint16_t)type };

	put(buf, n, &a, sizeof(a));
	put(buf, n, data, len);
}

/* An interface, of that kind or with that master. */
static size_t newlink(char *buf, int index, const char *kind, unsigned master, unsigned flags)
{
	struct nlmsghdr h = { .nlmsg_type = RTM_NEWLINK, .nlmsg_flags = (uint16_t)flags };
	struct ifinfomsg m = { .ifi_index = index };
	char info[64] = { 0 };
	size_t n = sizeof(h), used = 0;

	put(buf, &n, &m, sizeof(m));
	put_attr(info, &used, IFLA_INFO_KIND, kind, strlen(kind) + 1);
	put_attr(buf, &n, IFLA_LINKINFO, info, used);
	if (master)
		put_attr(buf, &n, IFLA_MASTER, &master, sizeof(master));
	h.nlmsg_len = (uint32_t)n;
	memcpy(buf, &h, sizeof(h));
	return n;
}

ssize_t __wrap_send(int fd, const void *data, size_t len, int flags)
{
	(void)fd;
	(void)data;
	(void)flags;
	dumps++;
	begun = false;
	return (ssize_t)len;
}

/* In a dump that is torn the second interface is missing. */
ssize_t __wrap_recv(int fd, void *data, size_t len, int flags)
{
	struct nlmsghdr done = { .nlmsg_len = sizeof(done), .nlmsg_type = NLMSG_DONE };
	bool is_torn = dumps <= torn;
	char *buf = data;
	size_t n;

	(void)fd;
	(void)flags;
	assert_true(len > 1024);
	memset(buf, 0, 1024);
	if (begun) {
		memcpy(buf, &done, sizeof(done));
		return sizeof(done);
	}
	begun = true;
	n = newlink(buf, VRF, "vrf", 0, is_torn ? NLM_F_DUMP_INTR : 0);
	if (!is_torn)
		n += newlink(buf + n, PORT, "veth", VRF, 0);
	return (ssize_t)n;
}

static struct braid_links *load(unsigned n_torn)
{
	dumps = 0;
	torn = n_torn;
	return braid_links_load();
}

static void an_interface_knows_its_vrf(void **state)
{
	struct braid_links *l = load(0);

	(void)state;
	assert_non_null(l);
	assert_int_equal(dumps, 1);
	assert_int_equal(braid_link_vrf(l, VRF), VRF);
	assert_int_equal(braid_link_vrf(l, PORT), VRF);
	assert_int_equal(braid_link_vrf(l, 9), 0);
	assert_int_equal(braid_link_vrf(NULL, VRF), 0);
	braid_links_free(l);
}

static void a_torn_answer_is_asked_for_again(void **state)
{
	struct braid_links *l = load(2);

	(void)state;
	assert_non_null(l);
	assert_int_equal(dumps, 3);
	assert_int_equal(braid_link_vrf(l, PORT), VRF);
	braid_links_free(l);
}

static void one_that_is_always_torn_is_taken_as_it_is(void **state)
{
	struct braid_links *l = load(1000);

	(void)state;
	assert_non_null(l);
	assert_true(dumps < 100);
	assert_int_equal(braid_link_vrf(l, VRF), VRF);
	braid_links_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_interface_knows_its_vrf),
		cmocka_unit_test(a_torn_answer_is_asked_for_again),
		cmocka_unit_test(one_that_is_always_torn_is_taken_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
