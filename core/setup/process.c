/* SPDX-License-Identifier: BSD-3-Clause */
/* process.c - see process.h. */
#include "core/setup/process.h"

#include <pthread.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/self.h"
#include "core/proto/auth.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/listener.h"
#include "core/setup/loop.h"
#include "core/setup/service.h"

static bool ready;			/* under braid_svc.lock */

int braid_service_init(const struct braid_service_hooks *hooks)
{
	int err = 0;

	braid_svc_lock();
	if (!ready) {
		/* Before libsodium, which aborts where it finds no random numbers. */
		err = braid_self_init();
		if (err) {
			braid_no_random(err);
			goto out;
		}
		err = braid_auth_init();
		if (!err)
			err = braid_os_atfork(braid_secrets_wipe);
		if (err) {
			braid_error(err, "can't prepare keys and forks: %s "
				    "[no-start]", strerror(-err));
			goto out;
		}
		braid_links_init();
		braid_listeners_init();
		braid_listens_init();
		braid_handshakes_init();
		braid_service_runs(braid_loop);
		if (hooks)
			braid_service_hooks = *hooks;
		ready = true;
	}
out:
	braid_svc_unlock();
	return err;
}
