# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/run: every collective of torch.distributed, every value checked exactly.

What a rank has at a place follows from the place and the rank: small whole numbers, which every
type holds and sums exactly, with a period that is no power of two, so that a chunk in another's
place shows.  Nothing is compared before several calls are under way.  The last line is
"RESULT {json}": how many results were right and wrong, and how many bytes this rank can't but have
had from others, which is what Braid's own count is held against.

--spoil NAME changes one value of one result on rank 0: then the run must fail.  A backend but NCCL
(BRAID_GPU_TEST_BACKEND=gloo) does without what that one doesn't have, and says so.
"""
import argparse
import json
import sys

import torch
import torch.distributed as dist

from group import BACKEND, DEVICE, RANK, WORLD, down, last_word, store, up, versions, wait

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8,
          torch.int32, torch.int64)
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
OPS = dist.ReduceOp


def pattern(n, seed, period, dtype=None):
    at = torch.arange(n, device=DEVICE, dtype=torch.int32)
    at.mul_(7).add_(seed * 31).remainder_(period)
    return at if dtype is None else at.to(dtype)


class Checks:
    """Results, compared on the device; looked at when there are many of them, or at the end."""

    def __init__(self, spoil):
        self.spoil, self.pending, self.held = spoil, [], 0
        self.done = self.wrong = self.had = 0
        self.without = set()

    def add(self, name, got, want, from_others):
        """`from_others`: how many of the values were somebody else's alone to send."""
        if name == self.spoil and RANK == 0:
            got.view(-1)[got.numel() // 2] += 1
        if got.shape != want.shape or got.dtype != want.dtype:
            self.fail(f"{name}: {got.shape} {got.dtype} instead of {want.shape} {want.dtype}")
            return
        unlike = got.reshape(-1) != want.reshape(-1)
        first = unlike.to(torch.uint8).argmax()
        self.pending.append((name, got.numel(), torch.stack((unlike.sum(), first))))
        self.had += from_others * got.element_size()
        self.held += got.numel() * got.element_size()
        if len(self.pending) >= 64 or self.held >= 64 * MIB:
            self.flush()

    def flush(self):
        if self.pending:
            found = torch.stack([row[2] for row in self.pending]).tolist()
            for (name, size, _), (count, first) in zip(self.pending, found):
                if count:
                    self.fail(f"{name}: {count} of {size} values, the first at {first}")
                else:
                    self.done += 1
        self.pending, self.held = [], 0

    def fail(self, what):
        self.wrong += 1
        print(f"rank {RANK}: wrong: {what}", flush=True)


def no_such(err):
    text = str(err).lower()
    return BACKEND != "nccl" and any(w in text for w in (
        "not support", "no support", "unsupported", "invalid tensor", "invalid scalar type",
        "cannot use", "not implemented"))


def reductions():
    """name, operation, what rank r has of n, what all of it comes to; all within int32."""
    ranks = range(WORLD)

    def folded(term, fold):
        def want(n):
            ret = term(n, 0)
            for r in ranks[1:]:
                ret = fold(ret, term(n, r))
            return ret
        return want

    def ones_twos(n, r):
        return pattern(n, r, 2) + 1

    def thirteen(n, r):
        return pattern(n, r, 13)

    def wide(n, r):
        return pattern(n, r, 127)

    def mean(n, r):  # of 2r + 1 it is WORLD
        return pattern(n, 0, 5) * WORLD + 2 * r + 1

    return (("sum", OPS.SUM, thirteen, folded(thirteen, torch.add)),
            ("prod", OPS.PRODUCT, ones_twos, folded(ones_twos, torch.mul)),
            ("min", OPS.MIN, wide, folded(wide, torch.minimum)),
            ("max", OPS.MAX, wide, folded(wide, torch.maximum)),
            ("avg", OPS.AVG, mean, lambda n: pattern(n, 0, 5) * WORLD + WORLD))


class Calls:
    """Each method is one call on n values in all of one type, given to the checks."""

    def __init__(self, checks):
        self.checks = checks

    def run(self, names, dtype, size):
        n = max(1, size // torch.empty((), dtype=dtype).element_size())
        for name in names:
            self.label = f"{name} {str(dtype)[6:]} {size}"
            try:
                getattr(self, name)(dtype, n)
            except (RuntimeError, ValueError, NotImplementedError, TypeError) as err:
                if not no_such(err):
                    raise RuntimeError(f"{self.label}: {err}") from err
                self.checks.without.add(f"{name} {str(dtype)[6:]}")

    def check(self, got, want, from_others, what=""):
        self.checks.add(f"{self.label} {what}".strip(), got, want, from_others)

    def mine(self, n, dtype, seed=None):
        return pattern(n, RANK if seed is None else seed, 127, dtype)

    def reduced(self, dtype, n, call, has):
        for name, op, term, total in reductions():
            if name == "avg" and BACKEND != "nccl":
                self.checks.without.add("avg")
                continue
            t = term(n, RANK).to(dtype)
            call(t, op)
            if has:
                self.check(t, total(n).to(dtype), n, name)

    def all_reduce(self, dtype, n):
        self.reduced(dtype, n, lambda t, op: dist.all_reduce(t, op), True)

    def all_reduce_sum(self, dtype, n):
        _, op, term, total = reductions()[0]
        t = term(n, RANK).to(dtype)
        dist.all_reduce(t, op)
        self.check(t, total(n).to(dtype), n)

    def reduce(self, dtype, n):
        dst = n % WORLD
        self.reduced(dtype, n, lambda t, op: dist.reduce(t, dst, op), RANK == dst)

    def broadcast(self, dtype, n):
        src = (n + 1) % WORLD
        t = self.mine(n, dtype)
        dist.broadcast(t, src)
        self.check(t, self.mine(n, dtype, src), 0 if RANK == src else n)

    def all_gather(self, dtype, n):
        m = max(1, n // WORLD)
        got = [torch.zeros(m, device=DEVICE, dtype=dtype) for _ in range(WORLD)]
        dist.all_gather(got, self.mine(m, dtype))
        self.gathered(got, m, dtype)

    def gathered(self, got, m, dtype):
        for r, t in enumerate(got):
            self.check(t, self.mine(m, dtype, r), 0 if r == RANK else m, f"of {r}")

    def all_gather_uneven(self, dtype, n):
        m = max(1, n // WORLD // WORLD)
        got = [torch.zeros(m * (r + 1), device=DEVICE, dtype=dtype) for r in range(WORLD)]
        dist.all_gather(got, self.mine(m * (RANK + 1), dtype))
        for r, t in enumerate(got):
            self.check(t, self.mine(m * (r + 1), dtype, r), 0 if r == RANK else t.numel(),
                       f"of {r}")

    def all_gather_into_tensor(self, dtype, n):
        m = max(1, n // WORLD)
        got = torch.zeros(m * WORLD, device=DEVICE, dtype=dtype)
        dist.all_gather_into_tensor(got, self.mine(m, dtype))
        self.gathered(got.view(WORLD, m), m, dtype)

    def scattered_sums(self, m):
        """Of what every rank has for me: rank r has pattern r + d for rank d."""
        ret = pattern(m, RANK, 13)
        for r in range(1, WORLD):
            ret = ret + pattern(m, r + RANK, 13)
        return ret

    def reduce_scatter(self, dtype, n):
        m = max(1, n // WORLD)
        got = torch.zeros(m, device=DEVICE, dtype=dtype)
        dist.reduce_scatter(got, [pattern(m, RANK + d, 13, dtype) for d in range(WORLD)])
        self.check(got, self.scattered_sums(m).to(dtype), m)

    def reduce_scatter_uneven(self, dtype, n):
        m = max(1, n // WORLD // WORLD)
        got = torch.zeros(m * (RANK + 1), device=DEVICE, dtype=dtype)
        dist.reduce_scatter(got, [pattern(m * (d + 1), RANK + d, 13, dtype) for d in range(WORLD)])
        self.check(got, self.scattered_sums(m * (RANK + 1)).to(dtype), got.numel())

    def reduce_scatter_tensor(self, dtype, n):
        m = max(1, n // WORLD)
        got = torch.zeros(m, device=DEVICE, dtype=dtype)
        dist.reduce_scatter_tensor(
            got, torch.cat([pattern(m, RANK + d, 13, dtype) for d in range(WORLD)]))
        self.check(got, self.scattered_sums(m).to(dtype), m)

    def for_rank(self, m, dtype, src, dst):
        return pattern(m, src * WORLD + dst, 127, dtype)

    def all_to_all(self, dtype, n):
        m = max(1, n // WORLD)
        got = [torch.zeros(m, device=DEVICE, dtype=dtype) for _ in range(WORLD)]
        dist.all_to_all(got, [self.for_rank(m, dtype, RANK, d) for d in range(WORLD)])
        for r, t in enumerate(got):
            self.check(t, self.for_rank(m, dtype, r, RANK), 0 if r == RANK else m, f"of {r}")

    def all_to_all_single(self, dtype, n):
        m = max(1, n // WORLD)
        got = torch.zeros(m * WORLD, device=DEVICE, dtype=dtype)
        dist.all_to_all_single(
            got, torch.cat([self.for_rank(m, dtype, RANK, d) for d in range(WORLD)]))
        self.check(got, torch.cat([self.for_rank(m, dtype, r, RANK) for r in range(WORLD)]),
                   m * (WORLD - 1))

    def all_to_all_uneven(self, dtype, n):
        m = max(1, n // WORLD // WORLD)
        out = [m * (RANK + d + 1) for d in range(WORLD)]
        got = torch.zeros(sum(out), device=DEVICE, dtype=dtype)  # as many from each as to it
        dist.all_to_all_single(
            got, torch.cat([self.for_rank(k, dtype, RANK, d) for d, k in enumerate(out)]),
            out, out)
        self.check(got, torch.cat([self.for_rank(k, dtype, r, RANK) for r, k in enumerate(out)]),
                   sum(out) - out[RANK])

    def gather(self, dtype, n):
        m, dst = max(1, n // WORLD), n % WORLD
        got = None
        if RANK == dst:
            got = [torch.zeros(m, device=DEVICE, dtype=dtype) for _ in range(WORLD)]
        dist.gather(self.mine(m, dtype), got, dst)
        self.gathered(got or (), m, dtype)

    def scatter(self, dtype, n):
        m, src = max(1, n // WORLD), (n + 1) % WORLD
        got = torch.zeros(m, device=DEVICE, dtype=dtype)
        dist.scatter(got, [self.for_rank(m, dtype, src, d) for d in range(WORLD)]
                     if RANK == src else None, src)
        self.check(got, self.for_rank(m, dtype, src, RANK), 0 if RANK == src else m)

    def send_recv(self, dtype, n):
        after, before = (RANK + 1) % WORLD, (RANK - 1) % WORLD
        t, got = self.mine(n, dtype), torch.zeros(n, device=DEVICE, dtype=dtype)
        if RANK % 2 == 0:
            dist.send(t, after)
        dist.recv(got, before)
        if RANK % 2:
            dist.send(t, after)
        self.check(got, self.mine(n, dtype, before), n)

    def batch_isend_irecv(self, dtype, n):
        after, before = (RANK + 1) % WORLD, (RANK - 1) % WORLD
        up_, down_ = self.mine(n, dtype), self.mine(n, dtype, RANK + WORLD)
        from_before = torch.zeros(n, device=DEVICE, dtype=dtype)
        from_after = torch.zeros(n, device=DEVICE, dtype=dtype)
        for req in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, up_, after), dist.P2POp(dist.irecv, from_before, before),
                dist.P2POp(dist.isend, down_, before), dist.P2POp(dist.irecv, from_after, after)]):
            req.wait()
        self.check(from_before, self.mine(n, dtype, before), n, "up")
        self.check(from_after, self.mine(n, dtype, after + WORLD), n, "down")


EACH = ("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_uneven",
        "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_uneven",
        "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "all_to_all_uneven", "gather",
        "scatter", "send_recv", "batch_isend_irecv")
LARGE = ("all_reduce_sum", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor",
         "all_to_all_single", "send_recv")
LARGEST = ("all_reduce_sum", "broadcast", "send_recv")

# A row is calls, types, sizes; a communicator lives for a list of rows.
SHORT = (((EACH, DTYPES[:1] + (torch.bfloat16, torch.int8), (8, 64 * KIB)),
          (EACH, DTYPES[:1], (MIB,)),
          (LARGEST, DTYPES[:1], (64 * MIB,))),)
FULL = (((EACH, DTYPES, (8, 64 * KIB + 24)),
         (EACH, DTYPES[:1], (KIB, MIB, 16 * MIB)),
         (LARGE, DTYPES[:1], (256 * MIB,)),
         (LARGEST, DTYPES[:1], (GIB,))),
        ((("all_reduce",), DTYPES, (8, 64 * KIB + 24)),
         (EACH, DTYPES[:1], (8, MIB)),
         (("all_reduce_sum",), DTYPES[:1], (GIB,))))


def barrier(checks, turn):
    """Who comes out has been awaited by all."""
    store().add(f"barrier {turn}", 1)
    dist.barrier()
    wait()
    if store().add(f"barrier {turn}", 0) == WORLD:
        checks.done += 1
    else:
        checks.fail("barrier: somebody was still on the way")


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--short", action="store_true")
    arg.add_argument("--spoil")
    arg.add_argument("--most", type=int, default=GIB, help="bytes of the largest call")
    arg = arg.parse_args()
    checks, largest = Checks(arg.spoil), 0
    calls = Calls(checks)
    for turn, rows in enumerate(SHORT if arg.short else FULL):
        up(turn)
        for names, dtypes, sizes in rows:
            for size in (s for s in sizes if s <= arg.most):
                for dtype in dtypes:
                    calls.run(names, dtype, size)
                largest = max(largest, size)
        checks.flush()
        barrier(checks, turn)
        down()
    print("RESULT " + json.dumps({
        "done": checks.done, "wrong": checks.wrong, "had": checks.had, "largest": largest,
        "groups": turn + 1, "without": sorted(checks.without), "versions": versions()}), flush=True)
    last_word("end")
    sys.exit(checks.wrong > 0)


if __name__ == "__main__":
    main()
