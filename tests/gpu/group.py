# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of tests/gpu/run share: who they are, and process groups made again and again.

RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are in the environment, as torchrun would put them there.
One TCPStore, kept by rank 0, serves all groups, each under a prefix of its own.
"""
import inspect
import os
from datetime import timedelta

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BRAID_GPU_TEST_BACKEND", "nccl")  # gloo: the CPU's, to check the checks
DEVICE = torch.device("cuda", 0) if BACKEND == "nccl" else torch.device("cpu")

_store = None


def store():
    global _store
    if _store is None:
        keeper = RANK == 0 and os.environ.get("BRAID_GPU_TEST_PAIR", "0") == "0"
        _store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None,
                               keeper, timedelta(seconds=100), wait_for_workers=False)
    return _store


def up(generation):
    more = {}
    if BACKEND == "nccl":
        torch.cuda.set_device(0)
        if "device_id" in inspect.signature(dist.init_process_group).parameters:
            more["device_id"] = DEVICE
    dist.init_process_group(BACKEND, store=dist.PrefixStore(f"group {generation}", store()),
                            rank=RANK, world_size=WORLD, timeout=timedelta(seconds=100), **more)


def down():
    wait()
    dist.destroy_process_group()


def wait():
    if BACKEND == "nccl":
        torch.cuda.synchronize()


def versions():
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if BACKEND == "nccl" else "none"
    return f"torch {torch.__version__}, NCCL {nccl}"


def last_word(name):
    """All wait until all have come, so that rank 0, who keeps the store, leaves last."""
    store().add(name, 1)
    if RANK == 0:
        while store().add(name, 0) < WORLD:
            pass
