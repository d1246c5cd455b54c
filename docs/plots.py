#!/usr/bin/env python3
"""The pictures of docs/performance.md from what examples/bench prints with --json, and the README's from a quickstart.

    build/examples/bench train --json >figures.jsonl        # and so on; docs/performance.md lists the runs
    docs/plots.py figures.jsonl [more.jsonl …]              # writes docs/images/*.svg
    docs/plots.py out/quickstart/pretrained.run/report/metrics.jsonl
    docs/plots.py --run NAME TITLE metrics.jsonl            # of any run: docs/images/NAME.svg

Nothing but Python's own library. A picture whose figures are not there is left as it is.
"""
import html
import json
import math
import pathlib
import sys
import textwrap
from statistics import median

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 40, 55
COLOURS = ["#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#6a4c93", "#00798c", "#8d5524", "#f26ca7",
           "#7fb800", "#202020", "#9e9e9e", "#ff7f50"]


class Axis:
    """Maps numbers to places, linearly or by their logarithms."""

    def __init__(self, low, high, start, end, log=False):
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def place(self, value):
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self):
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            return [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5) if self.low <= m * 10.0**e <= self.high * 1.0001]
        raw = (self.high - self.low) / 5
        step = min((m * 10 ** math.floor(math.log10(raw)) for m in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
        return [self.low + i * step for i in range(int((self.high - self.low) / step + 1e-9) + 1)]


class Picture:
    def __init__(self, title, x, y, x_label, y_label):
        self.x, self.y = x, y
        self.legend = 0
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        ]
        self.text(LEFT, 22, title, size=15)
        self.text((x.start + x.end) / 2, HEIGHT - 12, x_label, anchor="middle")
        self.parts.append(f'<text transform="translate(18 {(y.start + y.end) / 2:.1f}) rotate(-90)" text-anchor="middle" '
                          f'fill="#333">{y_label}</text>')
        for value in y.ticks():
            self.rule(x.start, y.place(value), x.end, y.place(value))
            self.text(x.start - 6, y.place(value) + 4, short(value), anchor="end")

    def x_ticks(self, values=None):
        for value in values or self.x.ticks():
            self.rule(self.x.place(value), self.y.start, self.x.place(value), self.y.end)
            self.text(self.x.place(value), self.y.start + 16, short(value), anchor="middle")

    def rule(self, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>')

    def text(self, x, y, words, anchor="start", size=12, colour="#333"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{words}</text>')

    def line(self, points, colour, dashed=False):
        places = " ".join(f"{self.x.place(x):.1f},{self.y.place(y):.1f}" for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{self.x.place(x):.1f}" cy="{self.y.place(y):.1f}" r="4.5" fill="{colour}"/>')

    def bar(self, x, width, value, colour):
        top, bottom = self.y.place(value), self.y.place(self.y.low)
        self.parts.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}" fill="{colour}"/>')

    def name(self, words, colour):
        """One line of the legend, at the right."""
        y = TOP + 14 + 20 * self.legend
        self.legend += 1
        self.parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 9}" width="12" height="9" fill="{colour}"/>')
        self.text(WIDTH - RIGHT + 32, y, words)

    def save(self, path):
        path.write_text("\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")
        print(path)


def short(value):
    return f"{value:.10g}" if 0.001 <= abs(value) < 1e5 or value == 0 else f"{value:.0e}"


def x_axis(low, high, log=False):
    return Axis(low, high, LEFT, WIDTH - RIGHT, log)


def y_axis(low, high, log=False):
    return Axis(low, high, HEIGHT - BOTTOM, TOP, log)


def roofline(records, path):
    """Arithmetic per byte of weights read, and what was reached, under the machine's two ceilings."""
    points = [r for r in records if r["what"] in ("train", "prefill", "decode", "batch") and "gflops" in r]
    ceilings = [r for r in records if r["what"] in ("train", "prefill") and "sgemm_gflops" in r]
    slopes = [r for r in records if r["what"] == "decode" and r["dtype"] == "f32" and "read_gbytes_per_s" in r]
    if not points or not ceilings or not slopes:
        return
    flat, slope = median(r["sgemm_gflops"] for r in ceilings), median(r["read_gbytes_per_s"] for r in slopes)
    high = 2 * max([flat] + [r["gflops"] for r in points])
    picture = Picture(f"Roofline, {points[0]['preset']}, threads: {points[0]['threads']}", x_axis(0.2, 20000, True),
                      y_axis(1, high, True), "operations per byte of weights", "GFLOP/s")
    picture.x_ticks([0.2, 1, 10, 100, 1000, 10000])
    picture.line([(0.2, 0.2 * slope), (flat / slope, flat), (20000, flat)], "#444", dashed=True)
    picture.name(f"sgemm {flat:.0f} GFLOP/s", "#444")
    picture.name(f"memory {slope:.1f} GB/s", "#444")
    for i, r in enumerate(sorted(points, key=lambda r: (r["flops_per_weight_byte"], r["dtype"]))):
        colour = COLOURS[i % len(COLOURS)]
        picture.dot(r["flops_per_weight_byte"], r["gflops"], colour)
        many = f" × {r['sequences']:g}" if r["what"] == "batch" else ""
        dtype = r["dtype"] if r.get("compute", "f32") == "f32" else r["compute"]
        picture.name(f"{'decode' if many else r['what']}{many} {dtype}", colour)
    picture.save(path)


def scaling(records, path):
    """The speed of the most threads as a multiple of one thread's, a group of bars for each model."""
    kinds = ["train", "prefill", "decode"]
    rows = {}
    for r in records:
        if r["what"].startswith("scaling-") and r["threads"] > 1:
            rows.setdefault((r["preset"], r["threads"]), {})[r["what"][8:]] = r["ratio_to_one"]
    if not rows:
        return
    most = max(threads for _, threads in rows)
    rows = {preset: bars for (preset, threads), bars in rows.items() if threads == most}
    high = max([most] + [v for bars in rows.values() for v in bars.values()])
    picture = Picture(f"{most} threads over one", x_axis(0, len(rows)), y_axis(0, math.ceil(high * 2) / 2), "", "times as fast")
    for i, (preset, bars) in enumerate(rows.items()):
        width = (picture.x.place(1) - picture.x.place(0)) / 4
        for j, kind in enumerate(kinds):
            if kind in bars:
                picture.bar(picture.x.place(i) + (j + 0.5) * width, width * 0.9, bars[kind], COLOURS[j])
        picture.text(picture.x.place(i + 0.5), picture.y.start + 14 + 13 * (i % 3), preset, anchor="middle", size=11)
    picture.line([(0, 1), (len(rows), 1)], "#444", dashed=True)
    for j, kind in enumerate(kinds):
        picture.name(kind, COLOURS[j])
    picture.name("one thread", "#444")
    picture.save(path)


def long_context(records, path):
    """Attention's time per token grows with the length, the rest's does not, and memory per token stays."""
    rows = sorted((r for r in records if r["what"] == "attention"), key=lambda r: r["length"])
    if len(rows) < 2:
        return
    lengths = [r["length"] for r in rows]
    high = 1.15 * max(max(r["attention_us_per_token"], r["rest_us_per_token"]) for r in rows)
    picture = Picture("One layer, forward and backward", x_axis(0, lengths[-1] * 1.05), y_axis(0, high), "tokens in the row",
                      "processor time per token, µs")
    picture.x_ticks(lengths[-4:])
    slope = sum(r["attention_us_per_token"] * r["length"] for r in rows) / sum(n * n for n in lengths)
    picture.line([(0, 0), (lengths[-1], slope * lengths[-1])], "#bbb", dashed=True)
    for key, colour, words in (("attention_us_per_token", COLOURS[0], "attention"), ("rest_us_per_token", COLOURS[2], "all else")):
        picture.line([(r["length"], r[key]) for r in rows], colour)
        for r in rows:
            picture.dot(r["length"], r[key], colour)
        picture.name(words, colour)
    picture.name(f"{slope * 1000:.2f} ns per key", "#bbb")
    scale = high / 1.15 / max(r["activation_bytes"] / r["length"] for r in rows) / 2
    picture.line([(r["length"], r["activation_bytes"] / r["length"] * scale) for r in rows], COLOURS[1], dashed=True)
    picture.name("memory per token,", COLOURS[1])
    picture.text(WIDTH - RIGHT + 32, TOP + 14 + 20 * picture.legend,
                 f"{rows[0]['activation_bytes'] / lengths[0] / 1024:.0f} to {rows[-1]['activation_bytes'] / lengths[-1] / 1024:.0f} KiB")
    picture.save(path)


def loss_curve(records, path, title, samples):
    """The loss of every step of a report and the mean of those around it; with `samples` how the model went on with its first prompt."""
    points = [(r["step"], r["loss"]) for r in records if "step" in r and "loss" in r]
    if len(points) < 2:
        return
    last = points[-1][0]
    near = [[y for _, y in points[max(0, i - 5):i + 6]] for i in range(len(points))]
    means = [(step, sum(ys) / len(ys)) for (step, _), ys in zip(points, near)]
    other = any(name in r for r in records for name in ("cross_entropy", "margin", "reward"))   # of another stage, as reports know it
    low, high = min(y for _, y in points), max(y for _, y in points)
    picture = Picture(title, x_axis(0, last), y_axis(min(0, math.floor(low)), math.ceil(high)), "step",
                      "loss" if other else "loss, nats per token")
    picture.x_ticks()
    picture.line(points, "#b9d3e6")
    picture.line(means, COLOURS[0])
    picture.name("each step", "#b9d3e6")
    picture.name("mean of 11", COLOURS[0])
    texts = [(r["step"], name, text) for r in records if "step" in r for name, text in r.items() if isinstance(text, str)]
    said = [(step, text) for step, name, text in texts if samples and name == texts[0][1]]
    if said:
        x, y = LEFT + 105, TOP + 30
        picture.text(x, y, html.escape(f"How it goes on with {texts[0][1]}"), size=11, colour="#777")
        for i in sorted({0, len(said) // 4, len(said) // 2, len(said) - 1}):
            y += 22
            picture.text(x, y, f"step {said[i][0]}", size=11, colour="#777")
            words = textwrap.shorten(said[i][1], 52, placeholder=" …")
            picture.text(x + 60, y, html.escape(words), size=11)
    picture.save(path)


def main(paths):
    if not paths or paths[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return 1
    run = None
    if paths[0] == "--run":
        run, paths = paths[1:3], paths[3:]
    lines = [json.loads(line) for path in paths for line in open(path, encoding="utf-8") if line.strip()]
    records, steps = [r for r in lines if "what" in r], [r for r in lines if "what" not in r]
    images = pathlib.Path(__file__).resolve().parent / "images"
    images.mkdir(exist_ok=True)
    if run:
        loss_curve(steps, images / f"{run[0]}.svg", run[1], False)
        return 0
    roofline(records, images / "roofline.svg")
    scaling(records, images / "scaling.svg")
    long_context(records, images / "long-context.svg")
    loss_curve(steps, images / "quickstart.svg", "The quickstart's pretraining", True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
