/* SPDX-License-Identifier: BSD-3-Clause */
/* test_flush.c - iflush: requests that end once the GPU sees what NICs have written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/link/link.h"
#include "core/msg/flush.h"
#include "core/mem/mrcache.h"

static struct braid_dev dev = { .net.name = "nic0:1" };
static struct braid_link link = { .key.dev = &dev };
static struct braid_comm comm = { .link = &link };
static struct braid_mr mr = { .gpu = true }, host = { 0 };
static char buf[64];
static int answer;			/* of the NICs */
static unsigned asked, warns;

int __wrap_braid_mr_flush(const struct braid_mr *of, char *at, struct braid_mr_flush *f);
int __wrap_braid_mr_flush(const struct braid_mr *of, char *at, struct braid_mr_flush *f)
{
	(void)f;
	assert_ptr_equal(of, &mr);
	assert_ptr_equal(at, buf);
	asked++;
	return answer;
}

static void hear(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level == BRAID_LOG_WARN && strstr(text, "[flush-failed]"))
		warns++;
}

static int setup(void **state)
{
	(void)state;
	braid_list_init(&comm.flushes);
	asked = warns = 0;
	braid_log_to(hear);
	return 0;
}

static struct braid_req *flush(struct braid_mr *of, int size)
{
	struct braid_req *req;
	void *data = buf;

	assert_int_equal(braid_flush_start(&comm, 1, &data, &size, &of, &req), 0);
	return req;
}

static void without_gpu_memory_there_is_nothing_to_wait_for(void **state)
{
	(void)state;
	answer = -EAGAIN;
	assert_null(flush(NULL, 8));
	assert_null(flush(&host, 8));
	assert_null(flush(&mr, 0));
	assert_int_equal(asked, 0);
	answer = 0;
	assert_null(flush(&mr, 8));		/* the NIC has done it at once */
	assert_int_equal(asked, 1);
	assert_true(braid_list_empty(&comm.flushes));
}

static void a_flush_is_done_when_the_nic_says_so(void **state)
{
	struct braid_req *req;
	bool done;

	(void)state;
	answer = -EAGAIN;
	req = flush(&mr, 8);
	assert_int_equal(braid_flush_test(req, &done), 0);
	assert_false(done);
	answer = 0;
	assert_int_equal(braid_flush_test(req, &done), 0);
	assert_true(done);
	assert_true(braid_list_empty(&comm.flushes));
}

static void a_flush_that_fails_warns_once(void **state)
{
	struct braid_req *req;
	bool done;

	(void)state;
	answer = -EAGAIN;
	req = flush(&mr, 8);
	answer = -ENODEV;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(braid_flush_test(req, &done), -EIO);
		assert_int_equal(warns, 1);
	}
	braid_flush_forget(&comm);
	assert_true(braid_list_empty(&comm.flushes));
}

static void flushes_of_memory_taken_back_fail_and_are_moved_no_more(void **state)
{
	struct braid_req *req;
	bool done;

	(void)state;
	answer = -EAGAIN;
	req = flush(&mr, 8);
	braid_flush_cancel(&comm, &host);
	assert_int_equal(braid_flush_test(req, &done), 0);
	braid_flush_cancel(&comm, &mr);
	asked = 0;
	assert_int_equal(braid_flush_test(req, &done), -ECANCELED);
	assert_int_equal(asked, 0);
	assert_int_equal(warns, 0);
	braid_flush_forget(&comm);
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(without_gpu_memory_there_is_nothing_to_wait_for),
		CASE(a_flush_is_done_when_the_nic_says_so),
		CASE(a_flush_that_fails_warns_once),
		CASE(flushes_of_memory_taken_back_fail_and_are_moved_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
