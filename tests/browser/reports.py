#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""reports.py DIR - reports that are too slow, or too hostile, to be measured for a test.

mesh.json: sixteen hosts with a slow one and a pair that can't talk.  soak.json: a day with faults.
before.json, after.json: of braid perf, for braid diff.  hostile.json: strings that want to be HTML.
"""
import json
import random
import sys

EVIL = ("</style></td><script>console.log(1)</script><img src='http://192.0.2.1/x' onerror=alert(1)>"
        "\"'><svg onload=alert(2)><a href=javascript:alert(3)>")

random.seed(1)
folder = sys.argv[1]


def write(name, report):
    with open(f"{folder}/{name}.json", "w", encoding="utf-8") as f:
        json.dump(report, f)


def mesh(hosts, mark=""):
    pairs = []
    for a in hosts:
        for b in hosts:
            if a == b:
                continue
            bad = {a, b} == {hosts[2], hosts[-1]}
            speed = random.uniform(11e9, 12e9) * (0.2 if hosts[1] in (a, b) else 1)
            pairs.append({"from": a, "to": b, "state": "failed" if bad else "done",
                          "bandwidth": None if bad else speed,
                          "latency": None if bad else random.uniform(9e-6, 1e-5),
                          "latency_least": None, "resent": None if bad else 0.0, "cpu_share": None,
                          "error": "no route to host" + mark if bad else None})
    return {"schema": "braid-mesh-1", "braid": "0", "date": "2026-01-01T00:00:00Z",
            "command": "braid mesh hosts.txt", "over": "Braid" + mark, "size": 1 << 20,
            "seconds": 0.3, "took": 30.5, "complete": True,
            "median": {"bandwidth": 11.5e9, "latency": 9.5e-6},
            "hosts": [{"name": h, "address": "192.0.2.9", "host": h, "kernel": "6.1" + mark,
                       "nic": "mlx5_0", "side": "a", "speed_mbps": 100000, "error": None}
                      for h in hosts],
            "pairs": pairs,
            "findings": [{"kind": "host-slow", "hosts": [hosts[1]], "with": [], "value": 2.3e9,
                          "others": 11.5e9, "text": f"{hosts[1]} is slow{mark}",
                          "next": "braid doctor there" + mark}],
            "host": {"name": hosts[0], "kernel": "6.1", "nics": []}}


def perf(factor):
    rows = [{"fabric": "plugin", "round": r, "size": s, "p50_us": factor * random.uniform(9, 10),
             "cpu_share": 1.0} for s in (8, 4096) for r in range(9)]
    return {"schema": "braid-perf-1", "pattern": "pingpong", "fabrics": {
        "plugin": {"name": "Braid", "device": "eth0"}}, "rows": rows}


write("mesh", mesh([f"node{i:02}" for i in range(16)]))
write("before", perf(1))
write("after", perf(1.5))
checks = [{"id": i, "group": "fault", "title": i, "profile": "faults", "ends": "both",
           "result": r, "seconds": 2.5, "seed": 7, "saw": ["a thing"], "mend": "do it",
           "figures": []} for i, r in (("fault-kill", "pass"), ("fault-port", "fail"))]
write("soak", {
    "schema": "braid-validate", "version": 1, "braid": "0", "profile": "soak", "plugin": "x.so",
    "faults": True, "complete": True, "seed": 7, "seconds": 86400.0, "peer": None,
    "counts": {"pass": 400, "fail": 1, "skip": 3}, "checks": checks,
    "events": [{"at": random.uniform(0, 86000), "seconds": 30.0, "id": c["id"],
                "result": c["result"], "seed": 7} for c in checks * 20],
    "host": {"name": "node00", "kernel": "6.1", "cpus": 64, "environment": {}}})
write("hostile", mesh([f"n{i}{EVIL}" for i in range(3)], EVIL))
