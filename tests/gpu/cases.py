# SPDX-License-Identifier: BSD-3-Clause
"""The cases of tests/gpu/run, one line each: "ok", "not ok" or "skip", and why.

Each case has a time limit, and ends its processes as groups; all of them together have LIMIT
seconds: what finds no time left is skipped and says so.  Everything lies in a directory of this
run's, of which nothing stays unless --keep is given.
"""
import argparse
import concurrent.futures
import contextlib
import glob
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT = 530  # seconds for everything
GIB = 1 << 30
BEGUN = time.monotonic()


class Skip(Exception):
    pass


class Fail(Exception):
    pass


class Run:
    def __init__(self):
        self.lines, self.count = [], {"ok": 0, "not ok": 0, "skip": 0}

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def result(self, verdict, name, text):
        self.count[verdict] += 1
        self.say(f"{verdict:<6} {name}" + (f": {text}" if text else ""))

    def case(self, name, limit, body):
        """What body(seconds) returns is the line's end; None: it has told its own results."""
        begun = time.monotonic()
        left = LIMIT - (begun - BEGUN)
        try:
            if left < min(limit, 20):
                raise Skip(f"of the {LIMIT} seconds for everything {max(left, 0):.0f} are left")
            text = body(min(limit, left))
            if text is not None:
                self.result("ok", name, f"{text} ({time.monotonic() - begun:.0f} s)")
            return True
        except Skip as why:
            self.result("skip", name, why)
        except Fail as why:
            self.result("not ok", name, why)
        except Exception as err:  # a case that breaks has failed, and the next goes on
            self.result("not ok", name, f"{type(err).__name__}: {err}")
        return False


def tail(text, n=3):
    return " | ".join(line.strip() for line in text.strip().splitlines()[-n:])[-900:]


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def said(argv, seconds=20):
    """The output of a command that may not be there."""
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=seconds, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


# -- the plugin -----------------------------------------------------------------------------------

def made(argv, limit, **more):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=limit, check=False, **more)
    if done.returncode:
        raise Fail(f"{' '.join(argv[:2])} ...: {tail(done.stdout, 5)}")
    return done.stdout


def version():
    return re.search(r"AC_INIT\(\[braid\], \[([^]]*)\]", read(f"{ROOT}/configure.ac")).group(1)


def commit():
    return said(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12",
                 "--exclude=*"]) or read(f"{ROOT}/.git-hash").strip() or "unknown"


def by_autotools(into, limit):
    """In a copy, so that the sources stay as they are."""
    for tool in ("autoconf", "automake", "libtoolize", "make"):
        if not shutil.which(tool):
            raise Fail(f"no {tool}: build elsewhere, and name the PLUGIN.so")
    copy = f"{into}/copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(
        ".git", "build", "build-*", "vm", "autom4te.cache", "__pycache__"))
    with open(f"{copy}/.git-hash", "w") as f:
        f.write(commit() + "\n")
    end = time.monotonic() + limit
    made(["./autogen.sh"], end - time.monotonic(), cwd=copy)
    os.mkdir(f"{into}/autotools")
    for argv in (["../copy/configure", "--quiet"], ["make", "git-hash.h"],
                 ["make", "-j", str(os.cpu_count()), "plugin/libnccl-net-braid.la"]):
        made(argv, end - time.monotonic(), cwd=f"{into}/autotools")
    return f"{into}/autotools/plugin/.libs/libnccl-net-braid.so"


def built(run, given, into, limit):
    own = f"{ROOT}/build/plugin/.libs/libnccl-net-braid.so"
    if given:
        run.plugin, what = os.path.realpath(given), "as given"
    elif os.path.exists(own):
        run.plugin, what = own, "that of build/"
    else:
        run.plugin, what = by_autotools(into, limit), "built with autotools"
    if not os.path.exists(run.plugin):
        raise Fail(f"{run.plugin} is not there")
    symbols = said(["nm", "-D", run.plugin])
    if symbols and "ncclNetPlugin_v" not in symbols:
        raise Fail(f"{run.plugin} is no net plugin")
    return f"{os.path.relpath(run.plugin, ROOT) if not given else given}, {what}"


# -- ranks ----------------------------------------------------------------------------------------

class Rank:
    def __init__(self, argv, env, out, log):
        self.log = log
        self.out = out
        with open(out, "w") as f:
            self.process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=f,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        self.ended = None  # when

    def poll(self):
        if self.ended is None and self.process.poll() is not None:
            self.ended = time.monotonic()
        return self.process.returncode

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.poll()

    def result(self):
        found = re.findall(r"^RESULT (.*)$", read(self.out), re.M)
        if not found:
            raise Fail(f"no result: {tail(read(self.out))}")
        return json.loads(found[-1])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def clean_env():
    return {k: v for k, v in os.environ.items()
            if not k.startswith(("NCCL_", "TORCH_NCCL_", "BRAID_GPU_TEST_"))}


def over(plugin):
    """Environment of NCCL over Braid, or (None) over its own sockets."""
    env = {"NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME", "lo"),
           "NCCL_MNNVL_ENABLE": "0",  # what joins GPUs of several hosts would join these
           "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if plugin:
        # NCCL 2.28 to 2.29.7 forget a plugin's name with the last communicator (doctor.md).
        return {**env, "NCCL_NET": "Braid", "NCCL_NET_PLUGIN": plugin,
                "NCCL_NET_PLUGIN_REF_COUNT": "1"}
    return {**env, "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"}


def start(run, name, world, argv, env, pair=0, port=None):
    port = port or free_port()
    if run.nccl:  # before torch's, which then is not loaded
        env = {**env, "LD_PRELOAD": ":".join(filter(None, (
            run.nccl, os.environ.get("LD_PRELOAD"))))}
    ranks = []
    for r in range(world):
        stem = f"{run.dir}/{name.replace(' ', '-')}.{pair}.{r}"
        ranks.append(Rank(
            [sys.executable, "-u", f"{HERE}/{argv[0]}", *argv[1:]],
            {**clean_env(), "RANK": str(r), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port), "NCCL_HOSTID": f"braid-{pair}-{r}",
             "PYTHONDONTWRITEBYTECODE": "1", "NCCL_DEBUG_FILE": f"{stem}.nccl", **env},
            f"{stem}.out", f"{stem}.nccl"))
    return ranks


def wait(ranks, limit, grace=15):
    """Until all have ended, or are made to; once one has failed the others have `grace` seconds."""
    end = time.monotonic() + limit
    failed = False
    try:
        while any(r.poll() is None for r in ranks):
            if not failed and any(r.poll() for r in ranks):
                failed = True
                end = min(end, time.monotonic() + grace)
            if time.monotonic() > end:
                break
            time.sleep(0.02)
    finally:
        for r in ranks:
            if r.poll() is None:
                r.kill()
    return [r.poll() for r in ranks]


def ended(rank, status, limit):
    if status == -signal.SIGKILL:
        return f"killed after its {limit:.0f} s"
    return f"died of signal {-status}" if status < 0 else f"status {status}"


def all_well(ranks, limit):
    status = wait(ranks, limit)
    for i, (rank, s) in enumerate(zip(ranks, status)):
        if s != 0:
            warns = re.findall(r"NCCL WARN (.*)", read(rank.log))
            raise Fail(f"rank {i}: {ended(rank, s, limit)}: {tail(read(rank.out), 4)}"
                       + (f"; first WARN: {warns[0][:300]}" if warns else ""))


def went_through(ranks, had):
    """NCCL's log names Braid and nothing else, and Braid has counted at least those bytes."""
    total = {"sent": 0, "received": 0}
    for i, (rank, least) in enumerate(zip(ranks, had)):
        log = read(rank.log)
        if not re.search(r"(Using network|Assigned NET plugin) Braid\b", log):
            raise Fail(f"rank {i}: NCCL's log has no \"Using network Braid\"")
        if not re.search(r"via NET/Braid/", log):
            raise Fail(f"rank {i}: NCCL's log has no \"via NET/Braid\"")
        other = re.search(r"via (?!NET/Braid/)[A-Z][A-Za-z0-9/]*", log)
        if other:
            raise Fail(f"rank {i}: NCCL's log has \"{other.group()}\"")
        told = re.findall(r"device (\d+): traffic: sent \d+ messages of (\d+) bytes, "
                          r"received \d+ of (\d+)", log)
        last = {dev: (int(s), int(r)) for dev, s, r in told}
        sent, received = (sum(v[k] for v in last.values()) for k in (0, 1))
        if received < least:
            raise Fail(f"rank {i}: Braid says that it received {received} bytes, and {least} are "
                       "the least that the results can have come from")
        total["sent"] += sent
        total["received"] += received
    if total["sent"] < sum(had):
        raise Fail(f"Braid says that {total['sent']} bytes were sent, of at least {sum(had)}")
    return (f"{total['sent']} bytes sent and {total['received']} received by Braid, at least "
            f"{sum(had)} were needed")


# -- cases ----------------------------------------------------------------------------------------

def checker(run):
    """Without a GPU, over gloo: one wrong value is found, and without it none is."""
    def body(limit):
        env = {"BRAID_GPU_TEST_BACKEND": "gloo", "GLOO_SOCKET_IFNAME": "lo"}
        argv = ["collectives.py", "--short", "--most", "65536"]
        spoilt = "broadcast float32 65536"
        fine = start(run, "checker-fine", 2, argv, env)
        wrong = start(run, "checker-wrong", 2, [*argv, "--spoil", spoilt], env)
        both = wait(fine + wrong, limit, grace=limit)
        if both[:2] != [0, 0]:
            raise Fail(f"over gloo: {both[:2]}: {tail(read(fine[0].out))}")
        found = f"rank 0: wrong: {spoilt}: 1 of 16384 values, the first at 8192"
        if both[2:] != [1, 0] or found not in read(wrong[0].out):
            raise Fail(f"a wrong value is not found: {both[2:]}: {tail(read(wrong[0].out))}")
        count = fine[0].result()["done"]
        return f"{count} results over gloo are right, and the one spoilt is found"
    return body


def collectives(run, name, world, more=(), env=None):
    def body(limit):
        ranks = start(run, name, world, ["collectives.py", *more, "--most", str(run.most)],
                      {**over(run.plugin), **(env or {})})
        all_well(ranks, limit)
        results = [r.result() for r in ranks]
        if any(r["wrong"] or not r["done"] or r["without"] for r in results):
            raise Fail(f"{results[0]}")
        first = results[0]
        run.proof.append((name, ranks, [r["had"] for r in results]))
        run.versions = first["versions"]
        return (f"{sum(r['done'] for r in results)} results right, 0 wrong, up to "
                f"{first['largest']} bytes, {first['groups']} communicators after each other, "
                f"{first['versions']}")
    return body


def by_name(run):
    def body(limit):
        directory, name = os.path.split(run.plugin)
        if name != "libnccl-net-braid.so":
            raise Skip(f"it is called {name}")
        path = ":".join(filter(None, (directory, os.environ.get("LD_LIBRARY_PATH"))))
        return collectives(run, "by name", 2, ["--short"], {
            "NCCL_NET_PLUGIN": "braid", "LD_LIBRARY_PATH": path})(limit)
    return body


def proof(run):
    def body(_limit):
        if not run.proof:
            raise Skip("no case before came to an end")
        for name, ranks, had in run.proof:
            try:
                run.say(f"#      {name}: {went_through(ranks, had)}")
            except Fail as why:
                raise Fail(f"{name}: {why}") from why
        loaded = re.search(r"NET/Plugin: (.*)", read(run.proof[0][1][0].log))
        return f"of {len(run.proof)} cases; NCCL says: {loaded.group(1).strip() if loaded else '-'}"
    return body


def cannot(ranks, status):
    """Why a rank has skipped: a Skip, or a Fail where what NCCL lacks is Braid's to give."""
    i = status.index(77)
    why = re.search(r"^SKIP (.*)$", read(ranks[i].out), re.M)
    why = why.group(1) if why else "no reason given"
    if not re.search("ncclCommWindowRegister|ncclSignal:", why):
        return Skip(why)  # before there was a communicator
    said = re.findall(r"NCCL (?:INFO|WARN) (Symmetric memory is not supported.*|RMA/Plugin: .*|"
                      r"One.sided RMA.*)", read(ranks[i].log))
    text = f"{why}; NCCL's log: {' | '.join(said) or 'nothing about it'}"[:1200]
    # Without a GIN type NCCL found no RMA device, though the GPU has all that is asked of it.
    braid = ("RMA/Plugin: Assigned plugin Braid to comm" not in text
             or re.search(r"cuMemEnable 1.*globalGinSupport 0\b.*cuMemGdrSupport 1", text))
    return Fail(text) if braid else Skip(text)


def assigned(ranks):
    for i, rank in enumerate(ranks):
        found = re.findall(r"RMA/Plugin: Assigned plugin (.*) to comm", read(rank.log))
        if not found or set(found) != {"Braid"}:
            raise Fail(f"rank {i}: NCCL's log assigns {', '.join(found) or 'no plugin'} for RMA")
    connected = re.search(r"ncclRmaProxyConnectOnce: (.*)", read(ranks[0].log))
    return "RMA/Plugin: Assigned plugin Braid" + (f", {connected.group(1)}" if connected else "")


def onesided(run, name, what, env=None):
    """What is planted in it is a case of its own."""
    def body(limit):
        ranks = start(run, name, 2, ["onesided.py", what], {
            **over(run.plugin), "BRAID_RMA": "on", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING",
            **(env or {})})
        status = wait(ranks, limit)
        if 77 in status:
            raise cannot(ranks, status)
        if all("\nRESULT " in f"\n{read(r.out)}" for r in ranks):
            missed = sorted({fault for r in ranks for fault in r.result()["planted"]})
            run.result("not ok" if missed else "ok", f"{name}, planted",
                       f"not found: {missed}" if missed else "both faults are found by both ranks")
        all_well(ranks, limit)
        results = [r.result() for r in ranks]
        ways = sorted(set(re.findall(r"\] NCCL INFO (\w+ \[[A-Z][^]]*\]).*", read(ranks[0].log))))
        run.say(f"#      {assigned(ranks)}" + (f"; {', '.join(ways)}" if ways else ""))
        signals = sum(r["signals"] for r in results)
        return (f"{sum(r['done'] for r in results)} results right, 0 wrong, "
                + (f"{signals} signals waited for, " if signals else "")
                + results[0]["versions"])
    return body


def killed_rank(run):
    within = 3  # seconds that are promised: fails at ten times that

    def body(limit):
        ranks = start(run, "killed", 2, ["faults.py", "kill"], {
            **over(run.plugin), "TORCH_NCCL_BLOCKING_WAIT": "1"})
        status = wait(ranks, limit, grace=10 * within)
        if status[1] != -signal.SIGKILL or ranks[1].ended is None:
            raise Fail(f"rank 1 was to kill itself: {ended(ranks[1], status[1], limit)}: "
                       f"{tail(read(ranks[1].out))}")
        out, log = read(ranks[0].out), read(ranks[0].log)
        took = ranks[0].ended - ranks[1].ended
        if status[0] in (0, -signal.SIGKILL):
            raise Fail(f"rank 0 has no error {10 * within} s after rank 1 was killed: {tail(out)}")
        pid = ranks[1].process.pid
        warn = re.search(rf"NCCL WARN (braid: .*\(pid {pid}\b.*)", log)
        if not warn:
            raise Fail(f"no WARN of Braid's names pid {pid}: "
                       f"{tail(chr(10).join(re.findall(r'NCCL WARN .*', log)))}")
        if took > 10 * within:
            raise Fail(f"the error came after {took:.1f} s")
        run.say(f"#      {warn.group(1)}")
        return f"the other's error came after {took:.1f} s: {tail(out, 1)[:300]}"
    return body


def abort(run):
    def body(limit):
        ranks = start(run, "abort", 2, ["faults.py", "abort"], over(run.plugin))
        status = wait(ranks, limit)
        if 77 in status:
            raise Skip("this torch has no abort")
        for i, s in enumerate(status):
            if s:
                raise Fail(f"rank {i}: {ended(ranks[i], s, limit)}: {tail(read(ranks[i].out))}")
        return f"{tail(read(ranks[0].out), 1)}, and a new group works"
    return body


def nccl_tests(run):
    def body(limit):
        for tool in ("all_reduce_perf", "mpirun"):
            if not shutil.which(tool):
                raise Skip(f"no {tool} on PATH")
        log = f"{run.dir}/nccl-tests"
        each = ('NCCL_HOSTID=braid-${OMPI_COMM_WORLD_RANK:-$PMI_RANK} '
                f'NCCL_DEBUG_FILE={log}.%p exec all_reduce_perf -b 8 -e 64M -f 8 -c 1 -n 5 -w 2')
        argv = ["mpirun", "-np", "2"]
        if os.geteuid() == 0 and "Open MPI" in said(["mpirun", "--version"]):
            argv += ["--allow-run-as-root", "--oversubscribe"]
        rank = Rank([*argv, "sh", "-c", each],
                    {**clean_env(), **over(run.plugin), "NCCL_TESTS_DEVICE": "0"}, f"{log}.out", "")
        status = wait([rank], limit)[0]
        out = read(rank.out)
        if not re.search(r"Rank +1 ", out) and status == 0:
            raise Skip("all_reduce_perf is not built with MPI")
        wrong = re.search(r"Out of bounds values *: *(\d+) (\w+)", out)
        if status or not wrong or wrong.group(1) != "0":
            raise Fail(f"{ended(rank, status, limit)}: {tail(out, 4)}")
        logs = [read(path) for path in glob.glob(f"{log}.*") if not path.endswith(".out")]
        if sum("via NET/Braid/" in text for text in logs) != 2:
            raise Fail("NCCL's log does not show Braid")
        return f"all_reduce_perf -c 1: {wrong.group(0)}"
    return body


def speed(run):
    """For people: a number is never a failure."""
    def body(limit):
        port, pairs = free_port(), []
        try:
            for i, plugin in enumerate((run.plugin, None)):
                pairs.append(start(run, "speed", 2, ["speed.py"], {
                    **over(plugin), "BRAID_GPU_TEST_PAIR": str(i),
                    "BRAID_GPU_TEST_MOST": str(run.most),
                    "BRAID_GPU_TEST_SECONDS": str(max(limit - 50, 10))}, i, port))
            status = wait(pairs[0] + pairs[1], limit)
            braid, sockets = (pair[0].result() for pair in pairs)
        except Fail as why:
            raise Skip(f"not measured: {why}") from why
        if any(status):
            raise Skip(f"not measured: {status}: {tail(read(pairs[0][0].out))}")
        run.say("#      all_reduce, 2 ranks of one GPU       Braid us   Socket us  ratio   calls")
        for size in braid:
            a, b = statistics.median(braid[size]), statistics.median(sockets[size])
            run.say(f"#      {int(size):>10} bytes {'':<18} {a:>10.1f}  {b:>10.1f}  {b / a:5.2f}   "
                    f"{len(braid[size])} + {len(sockets[size])}")
        return "medians above, taken in turns; the ratio is Socket's time to Braid's"
    return body


# -- the litmus -----------------------------------------------------------------------------------

CC = os.environ.get("CC", "cc")
CFLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-D_GNU_SOURCE=", "-pthread"]


def nvcc():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc")


def litmus_built(into, limit):
    cuda = nvcc()
    if not cuda:
        raise Skip("no nvcc")
    end = time.monotonic() + limit
    objects = []
    for src in ("tests/gpu/litmus.c", "tools/proxy.c", "gdr/stage.c", "gdr/cuda.c"):
        obj = f"{into}/litmus-{os.path.basename(src)[:-2]}.o"
        made([CC, *CFLAGS, f"-I{ROOT}", "-c", f"{ROOT}/{src}", "-o", obj], limit)
        objects.append(obj)
    for arch in (["-arch=native"], []):  # without: the driver compiles for its GPU
        try:
            made([cuda, "-O2", "-std=c++17", *arch, f"-I{ROOT}", "-o", f"{into}/litmus",
                  f"{HERE}/litmus.cu", *objects, "-lpthread", "-ldl"], end - time.monotonic())
            break
        except Fail:
            if not arch:
                raise
    return f"{into}/litmus"


def litmus(run, building):
    """Its own lines are cases."""
    def body(limit):
        program = building.result(timeout=limit)
        env = {**clean_env(), "CUDA_MODULE_LOADING": "EAGER", "NCCL_SOCKET_IFNAME": "lo"}
        rank = Rank([program, run.plugin], env, f"{run.dir}/litmus.out", "")
        status = wait([rank], limit)[0]
        lines = re.findall(r"^(ok|not ok|skip) ([^:]*): (.*)$", read(rank.out), re.M)
        for verdict, name, text in lines:
            run.result(verdict, f"litmus, {name}", text)
        if status and not any(verdict == "not ok" for verdict, _, _ in lines):
            raise Fail(f"{ended(rank, status, limit)}: {tail(read(rank.out))}")
        if not lines:
            raise Fail("the litmus has said nothing")
    return body


# -- all of it ------------------------------------------------------------------------------------

def header(run):
    gpu = said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.free",
                "--format=csv,noheader"]).splitlines()
    free = re.search(r"(\d+) MiB$", gpu[0]) if gpu else None
    # Four ranks, and a call has up to a dozen buffers of its size.
    run.most = GIB if not free or int(free.group(1)) >= 80 << 10 else 64 << 20
    cuda = re.search(r"release ([^,]*)", said([nvcc(), "--version"])) if nvcc() else None
    run.say(time.strftime("# %Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    run.say(f"# Braid {version()}, {commit()}")
    run.say(f"# GPU, driver, memory: {gpu[0] if gpu else 'none'}")
    run.say(f"# CUDA's nvcc {cuda.group(1) if cuda else 'none'}, Linux {platform.release()}, "
            f"{os.cpu_count()} CPUs, Python {platform.python_version()}")
    run.say(f"# tests/gpu/run {' '.join(sys.argv[1:])}".rstrip())
    if run.most < GIB:
        run.say(f"# calls of at most {run.most} bytes: a GPU with less than 80 GiB free")


def cases(run, arg):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    building = pool.submit(litmus_built, run.dir, 120)  # meanwhile
    if not run.case("the plugin", 150, lambda s: built(run, arg.plugin, run.dir, s)):
        return
    run.case("the checks", 60, checker(run))
    run.case("collectives, 2 ranks", 130, collectives(run, "2 ranks", 2))
    run.case("a rank killed", 75, killed_rank(run))
    run.case("an abort", 60, abort(run))
    run.case("litmus", 120, litmus(run, building))
    for protocol in ("LL", "LL128", "Simple"):
        run.case(f"collectives, NCCL_PROTO={protocol}", 60,
                 collectives(run, protocol, 2, ["--short"], {"NCCL_PROTO": protocol}))
    run.case("collectives, 4 ranks", 150, collectives(run, "4 ranks", 4))
    run.case("found by its name", 60, by_name(run))
    run.case("host RMA", 100, onesided(run, "host RMA", "puts"))
    run.case("symmetric windows", 100, onesided(
        run, "symmetric windows", "windows", {"NCCL_CTA_POLICY": "ZERO"}))
    run.case("all of it went through Braid", 30, proof(run))
    run.case("nccl-tests", 60, nccl_tests(run))
    run.case("Socket beside Braid", 110, speed(run))


def main():
    arg = argparse.ArgumentParser(prog="tests/gpu/run", description="Braid under real NCCL.")
    arg.add_argument("--results", metavar="FILE", help="also write there what was run and found")
    arg.add_argument("--keep", action="store_true", help="leave the logs, and say where")
    arg.add_argument("--nccl", metavar="FILE", help="a libnccl.so.2 in place of PyTorch's")
    arg.add_argument("plugin", nargs="?", metavar="PLUGIN.so")
    arg = arg.parse_args()
    if arg.nccl and not os.path.exists(arg.nccl):
        sys.exit(f"tests/gpu/run: there is no {arg.nccl}")
    run = Run()
    run.nccl = os.path.realpath(arg.nccl) if arg.nccl else None
    run.plugin, run.most, run.proof = None, GIB, []
    run.dir = tempfile.mkdtemp(prefix="braid-gpu-")
    # Who ends us ends the ranks: each is a group of its own, and wait() kills what is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        header(run)
        cases(run, arg)
    finally:
        if arg.keep:
            run.say(f"# logs: {run.dir}")
        else:
            shutil.rmtree(run.dir, ignore_errors=True)
    run.say(f"{run.count['ok']} passed, {run.count['not ok']} failed, {run.count['skip']} skipped")
    if arg.results:
        with open(arg.results, "w") as f:
            f.write("\n".join(run.lines) + "\n")
    sys.exit(run.count["not ok"] > 0 or not run.count["ok"])


if __name__ == "__main__":
    main()
