#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""look.py PICTURES PAGE.html[=REPORT.json] ... - look at pages in Chromium, as a reader would.

Each page is opened at 390 and 1440 pixels, light and dark.  It must fit its width, ask for nothing,
report nothing on the console, have no script, and have letters that can be read: large enough, and
with contrast to what is behind them.  Given a report, each number on the page is compared with the
report's.  Pictures go to PICTURES.  Prints TAP.

Chromium is driven by its own protocol over two pipes, so that nothing else is needed.
"""
import base64
import html.parser
import json
import os
import subprocess
import sys
import tempfile

WIDTHS = {390: 844, 1440: 900}
LEAST_PIXELS = 8.5		# of a letter's height, as shown
LEAST_CONTRAST = 4.5		# WCAG 2.1, level AA


class Browser:
    def __init__(self, program):
        to_child, self.out = os.pipe()
        self.inp, from_child = os.pipe()
        self.profile = tempfile.TemporaryDirectory()
        self.net = os.path.join(self.profile.name, "net.json")

        def pipes():			# the protocol is on descriptors 3 and 4
            a, b = os.dup(to_child), os.dup(from_child)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.child = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--no-first-run", "--user-data-dir=" + self.profile.name,
             "--remote-debugging-pipe", "about:blank"],
            preexec_fn=pipes, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.rest = b""
        self.last = 0
        self.events = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.ask(domain + ".enable")

    def read(self):
        while b"\0" not in self.rest:
            more = os.read(self.inp, 1 << 16)
            if not more:
                raise EOFError("the browser has gone")
            self.rest += more
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def ask(self, method, **params):
        self.last += 1
        question = {"id": self.last, "method": method, "params": params}
        if getattr(self, "session", None):
            question["sessionId"] = self.session
        os.write(self.out, json.dumps(question).encode() + b"\0")
        while True:
            got = self.read()
            if got.get("id") == self.last:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.events.append(got)

    def open(self, url, width, dark):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=WIDTHS[width],
                 deviceScaleFactor=1, mobile=width < 500)
        self.ask("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.ask("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.read())

    def value(self, expression):
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"])
        return got["result"].get("value")

    def picture(self, path):
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip={
            "x": 0, "y": 0, "width": self.value("innerWidth"), "scale": 1,
            "height": min(self.value("document.documentElement.scrollHeight"), 16000)})
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))

    def close(self):
        self.session = None
        try:
            self.ask("Browser.close")
        except (EOFError, OSError):
            pass
        self.child.wait(20)
        self.profile.cleanup()


# What a reader can't make out: [text, pixels, contrast] of each.
UNREADABLE = """(() => {
  const rgb = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const over = (a, b) => { const t = a[3] === undefined ? 1 : a[3];
    return [0, 1, 2].map(i => a[i] * t + b[i] * (1 - t)); };
  const light = c => { const [r, g, b] = c.map(v => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { let under = [], n;
    for (n = e; n && n.nodeType === 1; n = n.parentNode) {
      const c = rgb(getComputedStyle(n).backgroundColor);
      if (c.length && c[3] !== 0) under.push(c); }
    const rect = e.closest('svg.c g') && e.closest('svg.c g').querySelector('rect');
    let c = under.reverse().reduce((a, b) => over(b, a), [255, 255, 255]);
    return rect && e.tagName === 'text' ? over(rgb(getComputedStyle(rect).fill), c) : c; };
  const bad = [];
  for (const e of document.querySelectorAll('p,h1,h2,td,th,summary,figcaption,caption,svg.c text')) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const svg = e.closest('svg.c'), s = getComputedStyle(e);
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const px = parseFloat(s.fontSize) * scale, ink = over(rgb(svg ? s.fill : s.color), behind(e));
    const a = light(ink), b = light(behind(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (px < %g || contrast < %g) bad.push([e.textContent.slice(0, 40), px, contrast]);
  }
  return bad.slice(0, 5); })()""" % (LEAST_PIXELS, LEAST_CONTRAST)

# Letters that lie over each other: within one chart, labels of one kind.
OVERLAPS = """(() => {
  const bad = [];
  for (const svg of document.querySelectorAll('svg.c')) {
    const v = [...svg.querySelectorAll(':scope > text')].map(e => [e, e.getBoundingClientRect()]);
    for (let i = 0; i < v.length; i++) for (let k = i + 1; k < v.length; k++) {
      const [a, b] = [v[i][1], v[k][1]];
      if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
        bad.push(v[i][0].textContent + ' / ' + v[k][0].textContent);
    }
  }
  return bad.slice(0, 5); })()"""


class Numbers(html.parser.HTMLParser):
    """Each cell with a number: what it shows, and what it stands for."""

    def __init__(self, text):
        super().__init__()
        self.cells = []
        self.inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = dict(attrs).get("data-n") if tag == "td" else self.inside
        if tag == "td" and self.inside is not None:
            self.cells.append([self.inside, ""])

    def handle_endtag(self, tag):
        if tag == "td":
            self.inside = None

    def handle_data(self, data):
        if self.inside is not None:
            self.cells[-1][1] += data


# Keys whose numbers a page leaves out: for programs, or a picture has them.
HIDDEN = {"cdf_us", "samples", "seed", "bounce_ns", "cpu_share", "fds_src", "fds_dst", "threads_src",
          "threads_dst", "latency_least", "port", "starved", "hosts"}


def numbers_in(o):
    if isinstance(o, dict):
        o = [v for k, v in o.items() if k not in HIDDEN]
    if isinstance(o, list):
        return [x for v in o for x in numbers_in(v)]
    return [float(o)] if isinstance(o, (int, float)) and not isinstance(o, bool) else []


def rows_of(report):
    """Numbers that the page must show: those of every row, pair, figure or check."""
    lists = [report.get(k, []) for k in ("rows", "pairs", "figures", "checks")]
    if report["schema"].startswith("braid-compare"):
        lists = [p["summary"] for p in report["patterns"]]
    return [x for rows in lists for x in numbers_in(rows) if x > 0]


def shown_number(text):
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    return float(text[:-1]) * units[text[-1]] if text[-1:] in units else float(text)


def compare_numbers(page, path):
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    with open(page, encoding="utf-8") as f:
        cells = Numbers(f.read()).cells
    for stands, shows in cells:
        x, y = float(stands), shown_number(shows)
        if abs(x - y) > 0.006 * abs(x):
            return f"a cell of {x} shows {shows}"
    there = sorted(float(c[0]) for c in cells)
    if not there:
        return "no numbers on the page"
    for x in rows_of(report):
        if not any(abs(x - y) <= 1e-7 * max(abs(x), abs(y)) for y in there):
            return f"{x} of the report is not on the page"
    return None


def faults(browser, page, width):
    found = []
    for e in browser.events:
        method, params = e.get("method", ""), e.get("params", {})
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if url != "file://" + page and not url.startswith("data:"):
                found.append("a request: " + url)
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            found.append(f"the console: {json.dumps(params)[:300]}")
        if method == "Page.javascriptDialogOpening":
            found.append("a dialog")
    wide = browser.value("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{wide} pixels wide")
    if browser.value("document.querySelectorAll('script,iframe,object,embed,form').length"):
        found.append("it has elements that run or load something")
    if browser.value("[...document.querySelectorAll('*')].some(e => [...e.attributes].some("
                     "a => a.name.startsWith('on')))"):
        found.append("it has handlers of events")
    browser.ask("Runtime.evaluate", expression="document.querySelectorAll('details').forEach("
                "d => d.open = true)")
    for text, px, contrast in browser.value(UNREADABLE):
        found.append(f"'{text}' has {px:.1f} pixels and a contrast of {contrast:.1f}")
    for pair in browser.value(OVERLAPS):
        found.append("one label over another: " + pair)
    return found


def main():
    pictures, pages = sys.argv[1], [a.split("=") for a in sys.argv[2:]]
    browser = Browser(os.environ.get("BRAID_TEST_CHROMIUM", "chromium"))
    nth = failed = 0

    def tell(name, found):
        nonlocal nth, failed
        nth += 1
        failed += bool(found)
        print(f"{'not ok' if found else 'ok'} {nth} - {name}", flush=True)
        for line in found[:10]:
            print("# " + line, flush=True)

    for page, *report in pages:
        name = os.path.basename(page)[:-len(".html")]
        for width in WIDTHS:
            for dark in False, True:
                scheme = "dark" if dark else "light"
                browser.open("file://" + page, width, dark)
                tell(f"{name} at {width} pixels, {scheme}, can be read and does nothing else",
                     faults(browser, page, width))
                browser.picture(f"{pictures}/{name}-{width}-{scheme}.png")
        if report:
            wrong = compare_numbers(page, report[0])
            tell(f"{name} shows the numbers of its report", [wrong] if wrong else [])
    browser.close()
    print(f"1..{nth}")
    sys.exit(failed > 0)


main()
