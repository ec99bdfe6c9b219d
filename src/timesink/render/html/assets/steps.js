"use strict";
// Step times in order, with percentiles as dashed lines where there is one rank, and what each step of a chosen rank is
// made of as bars. A click on a step shows it in the timeline; so does Enter on the one that the arrow keys choose.
(() => {
  const place = document.getElementById("step-plot");
  const island = document.getElementById("data");
  if (!place || !island || typeof uPlot === "undefined") return;
  const series = JSON.parse(island.textContent).series;
  const steps = [...new Set(series.flatMap((line) => line.number))].sort((a, b) => a - b);
  const strokes = ["--k-compute", "--k-host", "--k-communication", "--k-copy", "--k-wait", "--k-host3", "--k-gpu3", "--accent"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ms = (value) => (value === null || value === undefined ? "–" : `${value.toPrecision(4)} ms`);
  // The colour of a part of the step, as the style has it for bars.
  const probe = document.createElementNS("http://www.w3.org/2000/svg", "svg"), mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  probe.setAttribute("class", "swatch hidden");
  probe.setAttribute("aria-hidden", "true");
  probe.append(mark);
  place.after(probe);
  const partColour = (kind) => { mark.setAttribute("class", `k-${kind}`); return getComputedStyle(mark).fill; };
  const lines = [];
  // The parts of each step of a rank: the whole behind, its parts before it. A step that the rank lacks has none.
  const bars = ({ number, parts }) => {
    const found = [], at = steps.map((step) => number.indexOf(step));
    let sum = steps.map(() => 0);
    for (const [kind, words, times] of parts) {
      const own = at.map((place) => times[place] || 0);
      sum = sum.map((below, place) => below + own[place] / 1e6);
      found.unshift({ label: words, values: sum, part: kind, own });
    }
    return found;
  };
  const named = new Map(series.flatMap((line) => line.number.map((step, at) => [step, line.label[at]])));
  const numbers = [...named].map(([step, name]) => [step, /\d+$/.exec(name)?.[0]]), apart = new Set(numbers.map(([, end]) => end));
  const ends = new Map(apart.size === named.size ? numbers : []);  // steps are numbered as the program numbers them
  const standing = new Map(series.flatMap((line) => line.spikes.map(([step, cause]) => [step, cause])));
  for (const [at, line] of series.entries()) {
    const known = new Map(line.number.map((step, place) => [step, line.period[place] / 1e6]));
    lines.push({ label: series.length > 1 ? `rank ${line.rank}` : "step time", values: steps.map((step) => known.get(step) ?? null), name: strokes[at % strokes.length] });
  }
  if (series.length === 1) {
    for (const mark of ["p50", "p90", "p99"]) {
      const value = series[0][mark];
      if (value !== null) lines.push({ label: mark, level: value / 1e6, values: steps.map(() => value / 1e6), name: mark === "p50" ? "--k-gpu" : "--k-wait2", dash: [6, 4] });
    }
  }
  if (standing.size) {
    const slowest = (step) => Math.max(...series.map((line) => (line.spikes.some(([at]) => at === step) ? line.period[line.number.indexOf(step)] / 1e6 : 0)));
    lines.push({ label: "stands out", spike: true, values: steps.map((step) => (standing.has(step) ? slowest(step) : null)), name: "--k-wait" });
  }
  let plot = null, chosen = -1, rank = 0;
  const go = (at) => document.dispatchEvent(new CustomEvent("timesink-step", { detail: { rank: series[rank].rank, step: named.get(steps[at]) } }));
  place.tabIndex = 0;
  place.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || (!by && event.key !== "Enter")) return;
    event.preventDefault();
    if (!plot) draw();
    if (!by) { if (chosen >= 0) go(chosen); return; }
    chosen = Math.min(Math.max(chosen + by, 0), steps.length - 1);
    plot.setCursor({ left: plot.valToPos(steps[chosen], "x"), top: 10 });
  });
  const wide = () => Math.max(place.clientWidth, 200);
  const draw = () => {
    if (plot) plot.destroy();
    const shown = [...bars(series[rank]), ...lines], stacked = shown.length > lines.length;
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const goes = (made) => made.over.addEventListener("click", () => { if (made.cursor.idx !== null) go(made.cursor.idx); });
    plot = new uPlot({
      hooks: { ready: [goes] },
      width: wide(), height: 260, scales: { x: { time: false, range: (_, from, to) => [from - 0.6, to + 0.6] }, y: { range: (_, from, to) => (stacked ? [0, to * 1.05] : [from - (to - from) * 0.1 - 1e-6, to + (to - from) * 0.1 + 1e-6]) } },
      axes: [{ ...axis, label: "step", labelSize: 20, values: (_, at) => at.map((step) => ends.get(step) ?? step), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5, 1e6] }, { ...axis, label: "ms", labelSize: 20, size: 56 }],
      series: [{ label: "step", value: (_, step) => named.get(step) ?? "–" }, ...shown.map((line) => ({
        label: line.label, ...(line.part ? { fill: partColour(line.part), stroke: partColour(line.part), paths: uPlot.paths.bars({ size: [0.8, 60] }) } : { stroke: colour(line.name) }),
        width: line.spike || line.part ? 0 : line.dash ? 1 : 1.6, dash: line.dash,
        points: line.part ? { show: false } : line.spike ? { show: true, size: 11, fill: colour(line.name) } : { show: !line.dash && steps.length < 200, size: 6 },
        value: (_, value, __, at) => (line.part ? (at === null || at === undefined ? "–" : ms(line.own[at] / 1e6)) : line.level ? ms(line.level) : line.spike ? standing.get(steps[at]) ?? "–" : ms(value)),
      }))],
    }, [steps, ...shown.map((line) => line.values)], place);
  };
  if (series.filter((line) => line.parts.length).length > 1) {
    const label = document.createElement("label"), choice = document.createElement("select");
    label.className = "quiet";
    label.textContent = "the bars are of ";
    series.forEach((line, at) => choice.append(new Option(`rank ${line.rank}`, at)));
    choice.addEventListener("change", () => { rank = Number(choice.value); draw(); });
    label.append(choice);
    place.before(label);
  }
  later(() => {
    draw();
    new ResizeObserver(() => { if (plot.width !== wide()) draw(); }).observe(place);
  });
  View.themed(() => plot && draw());
})();
