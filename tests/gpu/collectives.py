# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/run: all_reduce and send/recv over NCCL, every value checked, twice."""
import os

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def all_reduce(count):
    t = torch.arange(count, device="cuda", dtype=torch.float32) % 1024 + RANK
    dist.all_reduce(t)
    want = (torch.arange(count, device="cuda", dtype=torch.float32) % 1024) * WORLD
    want += sum(range(WORLD))
    assert torch.equal(t, want), f"all_reduce of {count} values"


def send_recv(count):
    t = torch.full((count,), float(RANK), device="cuda")
    peer = 1 - RANK
    if RANK == 0:
        dist.send(t, peer)
        dist.recv(t, peer)
    else:
        got = torch.empty_like(t)
        dist.recv(got, peer)
        dist.send(t, peer)
        t = got
    assert torch.equal(t, torch.full_like(t, float(peer))), f"send/recv of {count} values"


def main():
    torch.cuda.set_device(0)
    for _ in range(2):
        dist.init_process_group("nccl", rank=RANK, world_size=WORLD)
        for count in (2, 257, 65536, 1 << 20, 16 << 20):
            all_reduce(count)
            send_recv(count)
        torch.cuda.synchronize()
        dist.destroy_process_group()
    print(f"rank {RANK}: all values right, torch {torch.__version__}, "
          f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")


if __name__ == "__main__":
    main()
