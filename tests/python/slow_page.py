"""report.html in a real browser: its curves are there, it fits any width, and the script does what it is for."""
from __future__ import annotations

import math
import unittest

import minimind
from browser import CHROMIUM, Browser
from support import Case

STEPS = 3000

# What is wrong with the layout: figures without size, labels and dots outside, text over text, a page that is too wide.
LAYOUT = """(() => {
  const wrong = [], inside = (a, b, slack) => a.left >= b.left - slack && a.right <= b.right + slack &&
    a.top >= b.top - slack && a.bottom <= b.bottom + slack;
  if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is wider than its window");
  for (const figure of document.querySelectorAll("figure")) {
    const box = figure.getBoundingClientRect(), plot = figure.querySelector(".plot").getBoundingClientRect();
    const title = figure.querySelector("h3").textContent;
    if (plot.width < 150 || plot.height < 100) wrong.push(title + ": the plot is small");
    if (!inside(plot, box, 0)) wrong.push(title + ": the plot leaves its card");
    for (const kind of [".x", ".y.lin"]) {
      let before = null;
      for (const label of figure.querySelectorAll(kind)) {
        const at = label.getBoundingClientRect();
        if (!inside(at, box, 0)) wrong.push(title + ": the label " + label.textContent + " leaves its card");
        if (before && kind === ".x" && at.left < before.right + 2) wrong.push(title + ": labels touch");
        if (before && kind !== ".x" && at.bottom > before.top - 1) wrong.push(title + ": labels touch");
        before = at;
      }
    }
    for (const path of figure.querySelectorAll("svg.lin path")) {
      const at = path.getBoundingClientRect();
      if (at.width + at.height > 0 && !inside(at, plot, 8)) wrong.push(title + ": a curve leaves its plot");
    }
  }
  return wrong;
})()"""

BOX = "(() => {{ const b = document.querySelector('{}').getBoundingClientRect(); return [b.left, b.top, b.width, b.height] }})()"


def tell(report: minimind.Report) -> None:
    for step in range(1, STEPS + 1):
        noise = math.sin(step * step)
        report.add(step, loss=2 + 5 * math.exp(-step / 400) + 0.1 * noise, learning_rate=1e-3 * (1 - step / STEPS) + 1e-7,
                   grad_norm=math.nan if step == 900 else 1 + 0.3 * noise, tokens_per_s=900 + 20 * noise, memory=2e9,
                   **{"time/forward": 0.1, "time/backward": 0.2 + 0.01 * noise})
        if step % 10 == 0:
            report.add(step, {"expert_load/layer 0": [0.4 + 0.05 * noise, 0.3, 0.2, 0.1 - 0.05 * noise]})
        if step % 300 == 0:
            report.add(step, {"validation_loss": 2.1 + 5 * math.exp(-step / 400),
                              "“你是谁？”": f"step {step}\n</script><script>document.title = 'broken'</script><b>&"})
    report.fact("Model", "a name that is rather long, so that it does not fit into one line of a narrow page")
    report.flush()


@unittest.skipUnless(CHROMIUM, "chromium is missing")
class Page(Case):
    def setUp(self) -> None:
        super().setUp()
        with minimind.Report(self.directory / "report", title="A run <of> \"some\" kind", total_steps=4000) as report:
            tell(report)
        self.page = self.directory / "report" / "report.html"
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def test_every_curve_is_there_and_nothing_is_asked_of_the_network(self):
        self.browser.open(self.page)
        ask = self.browser.ask
        self.assertEqual(ask("document.title"), "A run <of> \"some\" kind")
        self.assertEqual(ask("[...document.querySelectorAll('h3')].map(h => h.textContent)"),
                         ["Loss", "Learning rate", "Gradient norm", "Tokens per second", "Memory", "Time",
                          "Expert load, layer 0"])
        self.assertEqual(ask("[...document.querySelectorAll('figure')].map(f => f.querySelectorAll('svg.lin .line').length)"),
                         [2, 1, 1, 1, 1, 2, 4])
        self.assertTrue(ask("[...document.querySelectorAll('.line')].every(path => path.getTotalLength() > 1000)"))
        self.assertEqual(ask("document.querySelectorAll('tbody tr').length"), 10)
        self.assertIn("</script><script>", ask("document.querySelector('td').textContent"))
        self.assertEqual(ask("document.querySelectorAll('td *').length"), 0)
        self.assertEqual(ask("document.querySelector('progress').position"), 0.75)
        self.assertEqual(self.browser.complaints(), [])

    def test_it_fits_any_width_in_light_and_dark(self):
        colours = set()
        for width in (320, 390, 700, 1200, 2000):
            for dark in (False, True):
                self.browser.open(self.page, width=width, dark=dark)
                self.assertEqual(self.browser.ask(LAYOUT), [], f"{width} pixels wide")
                colours.add(self.browser.ask("getComputedStyle(document.body).backgroundColor"))
                self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(len(colours), 2)

    def test_the_pointer_reads_the_same_step_in_every_chart(self):
        self.browser.open(self.page)
        left, top, width, height = self.browser.ask(BOX.format(".plot"))
        before = self.browser.ask("[...document.querySelectorAll('output')].map(o => o.textContent)")
        self.browser.move(left + width / 2, top + height / 2)
        self.assertEqual(set(self.browser.ask("[...document.querySelectorAll('.at')].map(a => a.textContent)")),
                         {"1,500"})
        read = self.browser.ask("[...document.querySelectorAll('output')].map(o => Number(o.textContent))")
        self.assertAlmostEqual(read[0], 2 + 5 * math.exp(-1500 / 400), delta=0.1)
        self.assertAlmostEqual(read[1], 2.1 + 5 * math.exp(-1500 / 400), delta=1e-3)
        self.assertAlmostEqual(read[2], 5e-4, delta=1e-5)
        spot = self.browser.ask("(() => { const s = document.querySelectorAll('.spot')[1].getBoundingClientRect(); "
                                "return [s.left + s.width / 2, s.top + s.height / 2] })()")
        self.assertAlmostEqual(spot[0], left + width / 2, delta=1)
        self.browser.move(2, 2)
        self.assertEqual(self.browser.ask("[...document.querySelectorAll('output')].map(o => o.textContent)"), before)
        self.assertEqual(self.browser.complaints(), [])

    def test_the_logarithmic_scale_is_a_click_away(self):
        for script in (True, False):
            self.browser.open(self.page, script=True)
            left, top, width, height = self.browser.ask(BOX.format(".switch + label"))
            self.browser.call("Emulation.setScriptExecutionDisabled", value=not script)
            self.browser.click(left + width / 2, top + height / 2)
            self.browser.call("Emulation.setScriptExecutionDisabled", value=False)
            self.assertEqual(self.browser.ask("['lin', 'log'].map(form => getComputedStyle("
                                              "document.querySelector('svg.' + form)).display)"), ["none", "block"])

    def test_it_can_be_read_without_javascript(self):
        self.browser.open(self.page, script=False)
        html = self.browser.html()
        self.assertEqual(html.count('class="line '), 12 + 10)   # on both scales, where there are two
        self.assertIn("UTC</time>", html)
        self.assertGreater(len(self.browser.screenshot()), 30000)
        self.assertEqual(self.browser.complaints(), [])
