#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""metrics.py - read metrics from stdin; says what is wrong with them, and fails.

metrics.py prometheus: the text format that node exporters read.  metrics.py openmetrics: that one.
"""
import re
import sys

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(r'(braid_[a-z_]+)\{(%s(?:,%s)*)\} ([0-9]+(?:\.[0-9]+)?)' % (LABEL, LABEL))


def complaints(text, openmetrics):
    help_of, type_of, family = {}, {}, None
    samples, closed = set(), set()
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
            name, labels, _ = sample.groups()
            stem = name.removesuffix("_total") if openmetrics else name
            if stem not in type_of or stem not in help_of:
                yield f"{name} has no heading before it"
            if stem != family or stem in closed:
                yield f"{name} is not with its heading"
            if (type_of.get(stem) == "counter") != name.endswith("_total"):
                yield f"{name} is a {type_of.get(stem)}"
            pairs = re.findall(LABEL, labels)
            if len({p.split("=")[0] for p in pairs}) < len(pairs):
                yield f"a label twice: {line}"
            series = name, tuple(sorted(pairs))
            if series in samples:
                yield f"twice: {line}"
            samples.add(series)
        else:
            yield f"neither heading nor sample: {line}"
    for name, kind in type_of.items():
        if kind not in ("counter", "gauge"):
            yield f"{name} is a {kind}"
        if name not in help_of:
            yield f"{name} has no HELP"
        if openmetrics and name.endswith("_total"):
            yield f"the family {name} is named like its samples"


bad = list(complaints(sys.stdin.read(), sys.argv[1] == "openmetrics"))
print("\n".join(bad), end="")
sys.exit(1 if bad else 0)
