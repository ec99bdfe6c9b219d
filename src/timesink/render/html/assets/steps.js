"use strict";
// Step times in order, with percentiles as dashed lines. A click on a step shows it in the timeline.
(() => {
  const place = document.getElementById("step-plot");
  const island = document.getElementById("data");
  if (!place || !island || typeof uPlot === "undefined") return;
  const series = JSON.parse(island.textContent).series;
  const steps = [...new Set(series.flatMap((line) => line.number))].sort((a, b) => a - b);
  const strokes = ["--k-compute", "--k-host", "--k-communication", "--k-copy", "--k-wait", "--k-host3", "--k-gpu3", "--accent"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const ms = (value) => (value === null || value === undefined ? "–" : `${value.toPrecision(4)} ms`);
  const lines = [];
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
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const goes = (made) => made.over.addEventListener("click", () => {
      if (made.cursor.idx !== null) document.dispatchEvent(new CustomEvent("timesink-step", { detail: { rank: series[0].rank, step: steps[made.cursor.idx] } }));
    });
    plot = new uPlot({
      hooks: { ready: [goes] },
      width: Math.max(place.clientWidth, 200), height: 260, scales: { x: { time: false } },
      axes: [{ ...axis, label: "step", labelSize: 20 }, { ...axis, label: "ms", labelSize: 20, size: 56 }],
      series: [{ label: "step" }, ...lines.map((line) => ({
        label: line.label, stroke: colour(line.name), width: line.spike ? 0 : line.dash ? 1 : 1.6, dash: line.dash,
        points: line.spike ? { show: true, size: 11, fill: colour(line.name) } : { show: !line.dash && steps.length < 200, size: 6 },
        value: (_, value, __, at) => (line.level ? ms(line.level) : line.spike ? standing.get(steps[at]) ?? "–" : ms(value)),
      }))],
    }, [steps, ...lines.map((line) => line.values)], place);
  };
  draw();
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) { width = place.clientWidth; draw(); }
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
