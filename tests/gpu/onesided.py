# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/run's one-sided cases: two ranks that call NCCL by ctypes.

puts: each puts into the other's window with ncclPutSignal and waits with ncclWaitSignal.  Where a
put lands is set to 255 before, which no put has, and is checked with the bytes around it.
windows: collectives from one symmetric window into another, every value checked.

The last line is "RESULT {json}".  Faults are planted first; "planted" says which were not found.
Status 77 after "SKIP reason": this NCCL, or this driver, can't do it.  3: NCCL fails, 4: something
that was enqueued does not end in time.
"""
import contextlib
import ctypes
import json
import os
import sys
import time

import torch

from collectives import KIB, MIB, Checks, pattern
from group import DEVICE, RANK, WORLD, last_word, store

OLDEST = 23007  # 2.30.7: before it NCCL uses no RMA of a plugin
DRIVER = 12050  # of CUDA 12.5, which ncclPutSignal needs
UINT8, FLOAT32, SUM, SYMMETRIC = 1, 7, 0, 1  # of NCCL's enumerations, and NCCL_WIN_COLL_SYMMETRIC
IN_PROGRESS = 7
SECONDS = 40  # until what is enqueued must be done

INT, UINT, SIZE, PTR = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class WaitDesc(ctypes.Structure):
    _fields_ = [("count", INT), ("peer", INT), ("signal", INT), ("context", INT)]


# Arguments of the calls whose result is ncclResult_t, by nccl.h of NCCL 2.30.7.
# A communicator, a window and a stream are pointers.
CALLS = {
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(PTR), INT, UniqueId, INT),  # out, ranks, id, rank
    "ncclCommGetAsyncError": (PTR, ctypes.POINTER(INT)),
    "ncclCommDestroy": (PTR,),
    "ncclMemAlloc": (ctypes.POINTER(PTR), SIZE),
    "ncclMemFree": (PTR,),
    # communicator, memory, size, out, flags
    "ncclCommWindowRegister": (PTR, PTR, SIZE, ctypes.POINTER(PTR), INT),
    "ncclCommWindowDeregister": (PTR, PTR),
    # source, count, type, peer, window, offset, signal, context, flags, communicator, stream
    "ncclPutSignal": (PTR, SIZE, INT, INT, PTR, SIZE, INT, INT, UINT, PTR, PTR),
    "ncclSignal": (INT, INT, INT, UINT, PTR, PTR),  # peer, signal, context, flags, ...
    "ncclWaitSignal": (INT, ctypes.POINTER(WaitDesc), PTR, PTR),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    # source, destination, count, type, for a reduction what it is, communicator, stream
    "ncclAllGather": (PTR, PTR, SIZE, INT, PTR, PTR),
    "ncclAlltoAll": (PTR, PTR, SIZE, INT, PTR, PTR),
    "ncclAllReduce": (PTR, PTR, SIZE, INT, INT, PTR, PTR),
    "ncclReduceScatter": (PTR, PTR, SIZE, INT, INT, PTR, PTR),
}


def leave(status, line):
    print(line, flush=True)
    os._exit(status)  # no destructor is to wait for what will not come


def skip(why):
    leave(77, f"SKIP {why}")


class Nccl:
    """The libnccl.so.2 that this process has: torch's, or one that was loaded before it."""

    def __init__(self):
        try:
            self.lib = ctypes.CDLL("libnccl.so.2")
        except OSError as err:
            skip(f"no libnccl.so.2: {err}")
        self.lib.ncclGetVersion.argtypes = (ctypes.POINTER(INT),)
        code = INT()
        self.lib.ncclGetVersion(ctypes.byref(code))
        self.version = f"NCCL {code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"
        if code.value < OLDEST:
            skip(f"{self.version}, and one-sided calls through a plugin need 2.30.7 or newer")
        self.lib.ncclGetLastError.argtypes = (PTR,)
        self.lib.ncclGetLastError.restype = ctypes.c_char_p
        for name, arguments in CALLS.items():
            getattr(self.lib, name).argtypes = arguments

    def result(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def call(self, name, *arguments):
        result = self.result(name, *arguments)
        if result:
            leave(3, f"{name}: {self.error(result)}")

    def error(self, result):
        said = (self.lib.ncclGetLastError(None) or b"").decode(errors="replace").strip()
        return f"result {result} of {self.version}, whose last error is \"{said}\""


def driver_new_enough():
    version = INT()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError as err:
        skip(f"no libcuda.so.1: {err}")
    if version.value < DRIVER:
        skip(f"the driver is of CUDA {version.value // 1000}.{version.value % 1000 // 10}, and "
             "ncclPutSignal needs one of 12.5")


# -- a communicator, its windows, its stream ------------------------------------------------------

class Pointed:
    """Memory that is not torch's, for torch.as_tensor()."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "version": 2,
                                         "data": (address, False)}


class Window:
    def __init__(self, side, size):
        self.address, self.handle = PTR(), PTR()
        side.nccl.call("ncclMemAlloc", ctypes.byref(self.address), size)
        self.bytes = torch.as_tensor(Pointed(self.address.value, size), device=DEVICE)
        side.nccl.call("ncclCommWindowRegister", side.comm, self.address, size,
                       ctypes.byref(self.handle), SYMMETRIC)
        if not self.handle:
            skip(f"{side.nccl.version}: ncclCommWindowRegister succeeds and gives no window, so "
                 "symmetric memory is not supported")

    def at(self, offset):
        return self.address.value + offset


class Side:
    def __init__(self, nccl, stream):
        self.nccl, self.stream, self.comm = nccl, stream, PTR()
        self.windows, self.waits = [], 0
        ident = UniqueId()
        if RANK == 0:
            nccl.call("ncclGetUniqueId", ctypes.byref(ident))
            store().set("id", bytes(ident).hex())
        ident = UniqueId.from_buffer_copy(bytes.fromhex(store().get("id").decode()))
        nccl.call("ncclCommInitRank", ctypes.byref(self.comm), WORLD, ident, RANK)

    def window(self, size):
        self.windows.append(Window(self, -(-size // (2 * MIB)) * 2 * MIB))
        return self.windows[-1]

    def on_stream(self, name, *arguments):
        self.nccl.call(name, *arguments, self.comm, self.stream.cuda_stream)

    def failed(self):
        """What has failed in NCCL's own threads, or None."""
        err = INT()
        result = self.nccl.result("ncclCommGetAsyncError", self.comm, ctypes.byref(err)) \
            or err.value
        return None if result in (0, IN_PROGRESS) else self.nccl.error(result)

    def settle(self, name):
        """Until all that is enqueued is done, or the process ends."""
        event, end = self.stream.record_event(), time.monotonic() + SECONDS
        while True:
            failed = self.failed()
            if failed:
                leave(3, f"{name}: {failed}")
            if event.query():
                return
            if time.monotonic() > end:
                leave(4, f"rank {RANK}: {name}: not done after {SECONDS} s")
            time.sleep(0.0002)

    def close(self):
        for window in self.windows:
            self.nccl.call("ncclCommWindowDeregister", self.comm, window.handle)
        self.nccl.call("ncclCommDestroy", self.comm)
        for window in self.windows:
            self.nccl.call("ncclMemFree", window.address)


class Found(Checks):
    """What is planted is found, and is no failure."""

    def __init__(self):
        super().__init__(None)
        self.found = []

    def fail(self, what):
        self.found.append(what)

    def lacks(self, *planted):
        self.flush()
        return [what for what in planted if what not in self.found]


# -- puts and signals -----------------------------------------------------------------------------

OTHER = 1 - RANK
GUARD, BLANK = 64, 255  # bytes around a put that it must leave alone, and what they are
ROUNDS = ((8, 300), (4 * KIB, 300), (MIB, 100), (64 * MIB, 20))  # bytes, rounds
BURSTS = ((8, 16), (4 * KIB, 16), (MIB, 16))  # bytes, puts that one wait is for
HALF = 66 * MIB  # of the window: what is put lies before it, what comes behind it
HELD = 0.5  # seconds that a wait must last whose signal is held back


class Puts:
    def __init__(self, side):
        self.side, self.turn = side, 0
        self.window = side.window(2 * HALF)
        self.source, self.landing = self.window.bytes[:HALF], self.window.bytes[HALF:2 * HALF]
        self.landing.fill_(BLANK)
        side.settle("an empty window")
        self.supported()

    def supported(self):
        """The first signal; no put comes before the other's, whose window is empty by then."""
        side = self.side
        result = side.nccl.result("ncclSignal", OTHER, 0, 0, 0, side.comm,
                                  side.stream.cuda_stream)
        if result:
            said = side.nccl.error(result)
            if "not supported" in said or "requires" in said:
                skip(f"ncclSignal: {said}")
            leave(3, f"ncclSignal: {said}")
        self.wait()
        side.settle("the first signal")

    def bytes_of(self, rank, n):
        return pattern(n, 2 * self.turn + rank, 251, torch.uint8)

    def put(self, offset, to, n):
        self.side.on_stream("ncclPutSignal", self.window.at(offset), n, UINT8, OTHER,
                            self.window.handle, HALF + to, 0, 0, 0)

    def signal(self):
        self.side.on_stream("ncclSignal", OTHER, 0, 0, 0)

    def wait(self, count=1):
        self.side.on_stream("ncclWaitSignal", 1, ctypes.byref(WaitDesc(count, OTHER, 0, 0)))
        self.side.waits += count

    def exchange(self, checks, name, size, count=1, withhold=False, spoil=False):
        """`count` puts each way, and a signal alone once what came is checked."""
        self.turn += 1
        n, at = size * count, GUARD + self.turn % 16
        self.source[:n].copy_(self.bytes_of(RANK, n))
        with self.grouped(count > 1 and self.turn % 2):
            for i in range(count):
                if withhold:
                    self.signal()
                else:
                    self.put(i * size, at + i * size, size)
        self.wait(count)
        got = self.landing[:n + 2 * GUARD]
        if spoil:
            got[at] += 1
        want = torch.full_like(got, BLANK)
        want[at:at + n] = self.bytes_of(OTHER, n)
        checks.add(name, got, want, n)
        got.fill_(BLANK)
        self.signal()
        self.wait()
        self.side.settle(name)

    @contextlib.contextmanager
    def grouped(self, together):
        if together:
            self.side.nccl.call("ncclGroupStart")
        yield
        if together:
            self.side.nccl.call("ncclGroupEnd")

    def held_back(self, checks, when):
        """A wait whose signal comes late lasts until then: so no signal came that nobody sent."""
        for waiter in (0, 1):
            name = f"{when}, a wait of rank {waiter}"
            if RANK == waiter:
                self.wait()
                event = self.side.stream.record_event()
                time.sleep(HELD)
                if event.query():
                    checks.fail(f"{name}: it is over before its signal was sent")
                else:
                    checks.done += 1
                store().set(name, "it waits")
            else:
                store().get(name)
                self.signal()
            self.side.settle(name)

    def planted(self):
        found, size = Found(), 4 * KIB
        self.exchange(found, "a put withheld", size, withhold=True)
        first = GUARD + self.turn % 16
        self.exchange(found, "a byte changed", size, spoil=True)
        second = GUARD + self.turn % 16
        total = size + 2 * GUARD
        return found.lacks(f"a put withheld: {size} of {total} values, the first at {first}",
                           f"a byte changed: 1 of {total} values, the first at {second}")

    def run(self, checks):
        self.held_back(checks, "at first")
        for size, rounds in ROUNDS:
            for _ in range(rounds):
                self.exchange(checks, f"put of {size}, turn {self.turn + 1}", size)
        for size, count in BURSTS:
            for _ in range(20):
                self.exchange(checks, f"{count} puts of {size}, turn {self.turn + 1}", size, count)
        self.held_back(checks, "at last")


# -- collectives on windows -----------------------------------------------------------------------

MOST = 64 * MIB  # bytes of the larger of the two buffers
SIZES = ((KIB, 20), (64 * KIB, 20), (MIB, 20), (MOST, 5))  # bytes, calls of each kind
UNSENT = -2


class Collectives:
    def __init__(self, side):
        self.side, self.turn = side, 0
        self.source, self.result = side.window(MOST), side.window(MOST)

    def of(self, rank, n):
        return pattern(n, WORLD * self.turn + rank, 13, torch.float32)

    def part(self, t, rank):
        return t.view(WORLD, -1)[rank]

    def all_gather(self, n):
        m = n // WORLD
        return ("ncclAllGather", (m, FLOAT32), m, n,
                lambda: torch.cat([self.of(r, m) for r in range(WORLD)]))

    def all_to_all(self, n):
        return ("ncclAlltoAll", (n // WORLD, FLOAT32), n, n,
                lambda: torch.cat([self.part(self.of(r, n), RANK) for r in range(WORLD)]))

    def all_reduce(self, n):
        return ("ncclAllReduce", (n, FLOAT32, SUM), n, n,
                lambda: sum(self.of(r, n) for r in range(WORLD)))

    def reduce_scatter(self, n):
        return ("ncclReduceScatter", (n // WORLD, FLOAT32, SUM), n, n // WORLD,
                lambda: self.part(sum(self.of(r, n) for r in range(WORLD)), RANK))

    def call(self, checks, name, kind, size, withhold=False, spoil=False):
        self.turn += 1
        function, arguments, sends, gets, want = getattr(self, kind)(size // 4)
        source = self.source.bytes[:4 * sends].view(torch.float32)
        got = self.result.bytes[:4 * gets].view(torch.float32)
        source.copy_(self.of(RANK, sends))
        if withhold and RANK == 1:
            source.fill_(UNSENT)
        got.fill_(-1)
        self.side.on_stream(function, self.source.at(0), self.result.at(0), *arguments)
        if spoil:
            got[gets // 2] += 1
        checks.add(name, got, want(), gets // 2)
        self.side.settle(name)

    def planted(self):
        found, size = Found(), 4 * KIB
        n = size // 4
        self.call(found, "a part withheld", "all_gather", size, withhold=True)
        self.call(found, "a value changed", "all_reduce", size, spoil=True)
        return found.lacks(f"a part withheld: {n // 2} of {n} values, the first at {n // 2}",
                           f"a value changed: 1 of {n} values, the first at {n // 2}")

    def run(self, checks):
        for size, count in SIZES:
            for kind in ("all_gather", "all_to_all", "all_reduce", "reduce_scatter"):
                for _ in range(count):
                    self.call(checks, f"{kind} of {size}, turn {self.turn + 1}", kind, size)


def main():
    nccl = Nccl()
    driver_new_enough()
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    checks = Checks(None)
    with torch.cuda.stream(stream):
        side = Side(nccl, stream)
        what = {"puts": Puts, "windows": Collectives}[sys.argv[1]](side)
        planted = what.planted()
        what.run(checks)
        checks.flush()
        side.settle("all of it")
    last_word("done")  # nobody closes a window that the other still needs
    side.close()
    print("RESULT " + json.dumps({
        "done": checks.done, "wrong": checks.wrong, "had": checks.had, "planted": planted,
        "signals": side.waits, "versions": f"torch {torch.__version__}, {nccl.version}"}),
        flush=True)
    last_word("end")
    sys.exit(checks.wrong > 0 or bool(planted))


if __name__ == "__main__":
    main()
