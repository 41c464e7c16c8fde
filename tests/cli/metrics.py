#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""metrics.py - read metrics from stdin; says what is wrong with them, and fails.

metrics.py prometheus: the text format that node exporters read.  metrics.py openmetrics: that one.
"""
import re
import sys

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(r'(braid_[a-z_]+)\{(%s(?:,%s)*)\} ([0-9]+(?:\.[0-9]+)?)' % (LABEL, LABEL))


def histogram_complaints(name, points):
    """points: (end of the sample's name, le or None, number), in the order of the text."""
    buckets = [(float(le), float(n)) for end, le, n in points if end == "_bucket" and le]
    rest = [(end, n) for end, le, n in points if end != "_bucket"]
    if any(end == "_bucket" and not le for end, le, _ in points):
        yield f"a bucket of {name} has no le"
    if [b[0] for b in buckets] != sorted({b[0] for b in buckets}):
        yield f"the buckets of {name} are not in order"
    if [b[1] for b in buckets] != sorted(b[1] for b in buckets):
        yield f"the buckets of {name} are not cumulative"
    if not buckets or buckets[-1][0] != float("inf"):
        yield f"{name} has no bucket +Inf"
    if sorted(end for end, _ in rest) != ["_count", "_sum"]:
        yield f"{name} has not one count and one sum"
    elif buckets and float(dict(rest)["_count"]) != buckets[-1][1]:
        yield f"the count of {name} is not that of its last bucket"


def complaints(text, openmetrics):
    help_of, type_of, family = {}, {}, None
    samples, closed, histograms = set(), set(), {}
    if text and not text.endswith("\n"):
        yield "the last line has no end"
    lines = text.splitlines()
    if lines and lines[-1] == "# EOF":
        lines.pop()
    elif openmetrics:
        yield "the last line is not # EOF"
    for line in lines:
        heading = re.fullmatch(r"# (HELP|TYPE) (braid_[a-z_]+) (.+)", line)
        sample = SAMPLE.fullmatch(line)
        if heading:
            what, name, words = heading.groups()
            known = help_of if what == "HELP" else type_of
            if name in known:
                yield f"{what} of {name} twice"
            known[name] = words
            if name != family:
                closed.add(family)
                family = name
        elif sample:
            name, labels, number = sample.groups()
            stem = name.removesuffix("_total") if openmetrics else name
            whole = re.sub("_(bucket|sum|count)$", "", name)
            if type_of.get(whole) == "histogram":
                stem = whole
            if stem not in type_of or stem not in help_of:
                yield f"{name} has no heading before it"
            if stem != family or stem in closed:
                yield f"{name} is not with its heading"
            if (type_of.get(stem) == "counter") != name.endswith("_total"):
                yield f"{name} is a {type_of.get(stem)}"
            pairs = re.findall(LABEL, labels)
            if len({p.split("=")[0] for p in pairs}) < len(pairs):
                yield f"a label twice: {line}"
            if type_of.get(stem) == "histogram":
                le = [p[4:-1] for p in pairs if p.startswith("le=")]
                key = stem, tuple(sorted(p for p in pairs if not p.startswith("le=")))
                point = name.removeprefix(stem), le[0] if le else None, number
                histograms.setdefault(key, []).append(point)
            series = name, tuple(sorted(pairs))
            if series in samples:
                yield f"twice: {line}"
            samples.add(series)
        else:
            yield f"neither heading nor sample: {line}"
    for key, points in histograms.items():
        yield from histogram_complaints(key[0], points)
    for name, kind in type_of.items():
        if kind not in ("counter", "gauge", "histogram"):
            yield f"{name} is a {kind}"
        if name not in help_of:
            yield f"{name} has no HELP"
        if openmetrics and name.endswith("_total"):
            yield f"the family {name} is named like its samples"


bad = list(complaints(sys.stdin.read(), sys.argv[1] == "openmetrics"))
print("\n".join(bad), end="")
sys.exit(1 if bad else 0)
