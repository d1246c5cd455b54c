"use strict";
// The page is complete without this: it adds the read-out under the pointer, the same step in all charts.
(() => {
  const { last, charts } = JSON.parse(document.getElementById("data").textContent);
  const figures = [...document.querySelectorAll(".chart")];
  const number = new Intl.NumberFormat("en");

  const make = (parent, className) => {
    const element = document.createElement("div");
    element.className = className;
    element.hidden = true;
    parent.append(element);
    return element;
  };

  const views = figures.map((figure, i) => {
    const plot = figure.querySelector(".plot");
    const outputs = [...figure.querySelectorAll("output")];
    return {
      figure, plot, outputs, chart: charts[i], texts: outputs.map((output) => output.textContent),
      guide: make(plot, "guide"), at: make(plot, "at"), spots: charts[i].lines.map((_, k) => make(plot, "spot c" + (k % 8))),
    };
  });

  // Index of the point nearest to a step.
  const nearest = (xs, step) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < step) low = middle + 1; else high = middle;
    }
    return low > 0 && step - xs[low - 1] < xs[low] - step ? low - 1 : low;
  };

  const height = (view, value) => {
    const logarithmic = view.figure.querySelector(".switch:checked") !== null;
    const [low, high] = logarithmic ? view.chart.log : view.chart.lin;
    return logarithmic ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  };

  const reading = (value) => String(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4)));

  const show = (step) => {
    for (const view of views) {
      view.guide.hidden = view.at.hidden = false;
      view.guide.style.left = view.at.style.left = 100 * step / last + "%";
      view.at.textContent = number.format(Math.round(step));
      view.chart.lines.forEach((line, k) => {
        const spot = view.spots[k], point = line.x.length ? nearest(line.x, step) : -1;
        const value = point < 0 ? null : line.y[point];
        spot.hidden = value === null;
        if (view.outputs[k]) view.outputs[k].textContent = value === null ? "–" : reading(value);
        if (value === null) return;
        spot.style.left = 100 * line.x[point] / last + "%";
        spot.style.top = 100 * (1 - height(view, value)) + "%";
      });
    }
  };

  const hide = () => {
    for (const view of views) {
      view.guide.hidden = view.at.hidden = true;
      view.spots.forEach((spot) => { spot.hidden = true; });
      view.outputs.forEach((output, k) => { output.textContent = view.texts[k]; });
    }
  };

  for (const view of views) {
    const follow = (event) => {
      const box = view.plot.getBoundingClientRect();
      show(last * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    };
    view.plot.addEventListener("pointermove", follow);
    view.plot.addEventListener("pointerdown", follow);
    view.plot.addEventListener("pointerleave", hide);
  }

  for (const time of document.querySelectorAll("time")) {
    const moment = new Date(time.dateTime);
    if (!isNaN(moment)) time.textContent = moment.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  }
})();
