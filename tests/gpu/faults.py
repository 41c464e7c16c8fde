# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/run that something happens to.

kill: all ranks reduce without end until rank 1 kills itself; the others must come to an error,
which is printed, and leave with status 3.

abort: rank 0 begins an all_reduce that nobody joins and aborts the group; then all make a new one,
which must work.  Status 77: this torch can't abort.
"""
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from group import DEVICE, RANK, WORLD, down, last_word, store, up, wait


def reduced(n):
    t = torch.full((n,), float(RANK + 1), device=DEVICE)
    dist.all_reduce(t)
    wait()
    if not bool((t == WORLD * (WORLD + 1) / 2).all()):
        sys.exit("an all_reduce has the wrong sum")


def kill():
    up(0)
    for _ in range(5):
        reduced(1 << 20)
    if RANK == 1:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    t = torch.ones(1 << 20, device=DEVICE)
    n = 0
    try:
        while True:
            dist.all_reduce(t, async_op=True).wait()  # which waits: TORCH_NCCL_BLOCKING_WAIT
            wait()
            n += 1
    except Exception as err:  # whatever torch makes of it
        text = " ".join(str(err).split())
        print(f"after {n} of them: {type(err).__name__}: {text}", flush=True)
        os._exit(3)  # no destructor is to wait for the dead


def abort_group():
    whole = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if whole:
        whole()
        return
    find = getattr(dist.group.WORLD, "_get_backend", None)
    backend = find(DEVICE) if find else None
    if not hasattr(backend, "abort"):
        os._exit(77)
    backend.abort()
    dist.destroy_process_group()


def abort():
    up(0)
    reduced(1 << 20)
    if RANK == 0:
        work = dist.all_reduce(torch.ones(1 << 20, device=DEVICE), async_op=True)
        time.sleep(1)
        if work.is_completed():
            sys.exit("an all_reduce that nobody joined is done")
        begun = time.monotonic()
        abort_group()
        print(f"the abort took {time.monotonic() - begun:.2f} s", flush=True)
        store().set("aborted", "yes")
    else:
        store().wait(["aborted"])
        abort_group()
    up(1)
    for n in (2, 1 << 20):
        reduced(n)
    down()
    last_word("end")


if __name__ == "__main__":
    {"kill": kill, "abort": abort}[sys.argv[1]]()
