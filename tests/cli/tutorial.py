# SPDX-License-Identifier: BSD-3-Clause
"""tutorial.py DOCUMENT BRAID - run every command of a document and compare what it prints, in shape.

A block is fenced with ```console: a line that begins with "$ " is a command, and what follows it is
what it prints.  All commands of a document run in one shell, in an empty folder.  A comment before a
block changes how it is run:

    <!-- not run: WHY -->       it is skipped, for that reason
    <!-- as root: ... -->       in another shell, which has a network and a /run of its own

Numbers, times, rates, addresses, hashes, hosts and interfaces are replaced by placeholders on both
sides, and blanks count as one.  A line "..." stands for any lines, "..." in a line for any text.
Each block in which a command printed something is then compared with versions of itself in which one
line was changed, added or left out; all of these must differ.  Prints TAP.
"""
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

SLOW = max(1, int(os.environ.get("BRAID_TEST_SLOW", "1") or 1))
# These look at what another process does: they are run again until it does what the document says.
LOOKS = ("braid stat", "braid dump", "braid top")
# These end with 1 if they found something, as they may on any host.
FINDS = ("braid doctor", "braid mesh", "braid validate")
NAMES = sorted({"eth0", *os.listdir("/sys/class/net")}, key=len, reverse=True)
HOSTS = sorted({"node1", socket.gethostname(), socket.gethostname().split(".")[0]}, key=len, reverse=True)

SHAPES = [
    (r"(?<![\w.])\d+\.\d+\.\d+(?![\w.]*\w)", "VERSION"),
    (r"\b[0-9a-f]{12}\b(-dirty)?|0x[0-9a-f]+", "HASH"),
    (r"\b\d+(\.\d+){3}(:\d+)?\b|\b[0-9a-f]{0,4}(:[0-9a-f]{0,4}){2,7}\b", "ADDRESS"),
    (r"(?<![\w.])(%s)(?![\w.])" % "|".join(map(re.escape, HOSTS)), "HOST"),
    (r"(?<![\w.])(%s)(?![\w.])" % "|".join(map(re.escape, NAMES)), "DEVICE"),
    (r"(?<![\w.])-?\d+(\.\d+)?([eE][+-]?\d+|[kMGT])?(?![\w.]*\w)", "#"),
    (r"# (ns|us|ms|s|min)\b", "TIME"),
    (r"# [kMGT]?bit/s", "RATE"),
    (r"# [kMGT]?i?B\b", "SIZE"),
    (r"\s+", " "),
]


def shape(line):
    for pattern, name in SHAPES:
        line = re.sub(pattern, name, line)
    return line.strip()


def line_matches(want, have):
    parts = [re.escape(shape(part)) for part in want.split("...")]
    return re.fullmatch(r"\s*.*\s*".join(parts), shape(have)) is not None


def matches(want, have):
    """Whether the lines `have` are what `want` says, where "..." is any lines."""
    reach = {0}
    for line in want:
        if line.strip() == "...":
            reach = set(range(min(reach), len(have) + 1)) if reach else reach
        else:
            reach = {i + 1 for i in reach if i < len(have) and line_matches(line, have[i])}
    return len(have) in reach


def visible(lines):
    return [line for line in lines if line.strip()]


def spoiled(want, have):
    """Outputs that are nearly `have`, and must not be taken for what `want` says."""
    fixed = [line for line in want if line.strip() != "..." and re.search(r"[A-Za-z]{3}", line)]
    for line in fixed:
        i = next((i for i, other in enumerate(have) if line_matches(line, other)), None)
        if i is None:
            continue
        word = max((w for part in line.split("...") for w in re.findall(r"[A-Za-z]{3,}", part)
                    if w in have[i] and w in shape(have[i])), key=len, default=None)
        if word:
            changed = [other.replace(word, "quite-else") if line_matches(line, other) else other
                       for other in have]
            yield f"'{word}' was changed", changed
        yield "a line was left out", [other for other in have if not line_matches(line, other)]
    if want and "..." not in (line.strip() for line in want):
        yield "a line was added", have + ["one more"]


class Shell:
    """A shell that runs commands one after the other; what it has started ends with it."""

    def __init__(self, command, env, folder):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, cwd=folder, stdin=pipe, stdout=pipe,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        self.command = os.path.join(folder, ".command")
        self.pids = {}                      # those of the document, and who they are here

    def run(self, command):
        for pid, mine in self.pids.items():
            command = command.replace(pid, mine)
        with open(self.command, "w", encoding="utf-8") as f:
            f.write(command + "\n")
        self.process.stdin.write(f". {self.command} </dev/null\necho \"@done $?\"\n".encode())
        self.process.stdin.flush()
        text, end = "", time.monotonic() + 60 * SLOW
        while not (done := re.search(r"^@done (\d+)\n", text, re.M)):
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                return None, text.splitlines() + ["(it did not end)"]
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return None, text.splitlines() + ["(the shell ended)"]
            text += more.decode(errors="replace")
        return int(done.group(1)), text[:done.start()].splitlines()

    def descends(self, pid):
        while pid > 1 and pid != self.process.pid:
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                    pid = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                return False
        return pid == self.process.pid

    def learn(self, want, have):
        """Find out which processes here are those of the document's braid stat; False if they are not there."""
        there = [line.split()[0] for line in want if re.match(r"\s*\d+ ", line)]
        here = [line.split()[0] for line in have if re.match(r"\s*\d+ ", line)]
        here = [pid for pid in here if self.descends(int(pid))]
        if not self.pids and len(here) == len(there):
            self.pids.update(zip(there, here))
        return all(pid in self.pids for pid in there)

    def end(self):
        subprocess.run(["pkill", "-KILL", "-s", str(self.process.pid)], check=False)
        self.process.wait()


def blocks(document):
    """(comment, [(command, output)]) of each block."""
    with open(document, encoding="utf-8") as f:
        text = f.read()
    for comment, body in re.findall(r"(?:<!-- (.*?) -->\s*)?^```console\n(.*?)^```$", text, re.M | re.S):
        steps = []
        for line in body.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
        yield " ".join(comment.split()), steps


def root_shell():
    """The command of a shell with a network of its own, or None where that can't be had."""
    needs = ["mount -t tmpfs tmpfs /run", "ip link set lo up", "ip netns add a", "ip netns del a",
             "ip link add v0 type veth peer name v1", "ip link del v0", "ip link add b0 type bridge",
             "ip link del b0", "tc qdisc add dev lo root tbf rate 1mbit burst 16k limit 4m",
             "tc qdisc del dev lo root", 'exec "$@"']
    command = ["unshare", "--mount", "--net", "sh", "-c", " && ".join(needs), "sh"]
    if os.getuid() or subprocess.run(command + ["true"], capture_output=True, check=False).returncode:
        return None
    return command + ["bash"]


def settled(shell, command, want):
    """The status and output of a command; of one that looks at others, when it says what is wanted."""
    end = time.monotonic() + 30 * SLOW
    while True:
        status, have = shell.run(command)
        good = matches(visible(want), visible(have)) and (command != "braid stat" or shell.learn(want, have))
        if good or not command.startswith(LOOKS) or time.monotonic() > end:
            return status, have
        time.sleep(0.2)


class Tap:
    def __init__(self):
        self.n, self.failed = 0, 0

    def say(self, good, name, notes=()):
        self.n += 1
        self.failed += not good
        for note in () if good else notes:
            print(f"# {note}")
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}", flush=True)


def compare(tap, command, want, have, status):
    want, have = visible(want), visible(have)
    good = status == 0 or (status == 1 and command.startswith(FINDS))
    if good and matches(want, have):
        missed = [how for how, other in spoiled(want, have) if matches(want, other)]
        tap.say(not missed, command, [f"not noticed: {how}" for how in missed])
    else:
        tap.say(False, command, [f"status {status}", "the document has:", *map(shape, want),
                                 "it printed:", *have, "which is:", *map(shape, have)])


def run(tap, document, shells, commands, env, folder):
    for comment, steps in blocks(document):
        kind = "root" if comment.startswith("as root") else ""
        why = comment[9:] if comment.startswith("not run: ") else None
        if not why and not commands[kind]:
            why = "only root can make networks, and not everywhere"
        for command, want in steps:
            if why:
                tap.say(True, f"{command.replace('#', '')} # SKIP {why}")
                continue
            if kind not in shells:
                shells[kind] = Shell(commands[kind], env, folder)
            status, have = settled(shells[kind], command, want)
            compare(tap, command, want, have, status)


def main(document, braid):
    tap, shells = Tap(), {}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "BRAID_"))}
    env.update(PATH=f"{os.path.dirname(os.path.abspath(braid))}:{os.environ['PATH']}",
               COLUMNS="80", LC_ALL="C.UTF-8")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(tap, document, shells, {"": ["bash"], "root": root_shell()}, env, folder)
        finally:
            for shell in shells.values():
                shell.end()
    print(f"1..{tap.n}")
    return tap.failed > 0


sys.exit(main(*sys.argv[1:]))
