# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/run's comparison: Braid and NCCL's own sockets, all_reduce, taking turns.

Each is a pair of processes of its own, for NCCL takes one network for a process.  All four share a
store, where a number says whose turn it is; who waits calls nothing of NCCL's.  The last line of
rank 0 is "RESULT {json}": microseconds of each call, by size.
"""
import json
import os
import time

import torch
import torch.distributed as dist

from group import DEVICE, RANK, down, store, up, wait

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = ((8, 40), (64 * KIB, 40), (MIB, 20), (64 * MIB, 4), (GIB, 1))  # bytes, calls of one turn
ROUNDS = 3
PAIR, PAIRS = int(os.environ["BRAID_GPU_TEST_PAIR"]), 2
MOST = int(os.environ.get("BRAID_GPU_TEST_MOST", GIB))
SECONDS = float(os.environ.get("BRAID_GPU_TEST_SECONDS", 60))


def measured(size, calls):
    t = torch.zeros(size // 4, device=DEVICE)
    ret = []
    for i in range(calls + 1):
        wait()
        begun = time.perf_counter()
        dist.all_reduce(t)
        wait()
        if i:  # the first opens what this size needs
            ret.append((time.perf_counter() - begun) * 1e6)
    return ret


def go_on(begun, turn):
    """Rank 0 of the first pair says whether there is time for another turn."""
    key = f"go {turn}"
    if RANK == 0 and PAIR == 0:
        store().set(key, "yes" if time.monotonic() - begun < SECONDS else "no")
    return store().get(key) == b"yes"


def main():
    found = {}
    begun, turn = time.monotonic(), 0
    up(f"pair {PAIR}")
    for _ in range(ROUNDS):
        for size, calls in (row for row in SIZES if row[0] <= MOST):
            turn += 1
            if not go_on(begun, turn):
                continue
            for pair in range(PAIRS):
                if pair == PAIR:
                    found.setdefault(size, []).extend(measured(size, calls))
                    store().set(f"done {turn} {pair} {RANK}", "yes")
                for rank in range(2):
                    store().get(f"done {turn} {pair} {rank}")
    down()
    if RANK == 0:
        print("RESULT " + json.dumps(found), flush=True)
    store().add("end", 1)
    while RANK == 0 and PAIR == 0 and store().add("end", 0) < 2 * PAIRS:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
