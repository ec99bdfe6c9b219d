"use strict";
// The packed timeline as typed columns, the questions that the drawing asks of it, and what all drawings share.
const Capture = (() => {
  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };
  const timeText = (ns) => {
    const size = Math.abs(ns);
    if (size >= 1e9) return `${Number((ns / 1e9).toPrecision(4))} s`;
    if (size >= 1e6) return `${Number((ns / 1e6).toPrecision(4))} ms`;
    return size >= 1e3 ? `${Number((ns / 1e3).toPrecision(4))} us` : `${Math.round(ns)} ns`;
  };
  const made = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text) node.textContent = text;
    return node;
  };
  const full = (values, n) => (values.length === n ? Int32Array.from(values) : new Int32Array(n).fill(values.length ? values[0] : -1));
  const columns = (row) => {
    const { n } = row, start = new Float64Array(n), end = new Float64Array(n), busy = new Float64Array(n), from = new Float64Array(n);
    const of = (values, at) => (values.length === 1 ? values[0] : values[at]);
    let time = 0;
    for (let at = 0; at < n; at += 1) {
      start[at] = time + of(row.gap, at);
      time = end[at] = start[at] + of(row.length, at);
      busy[at] = end[at] - start[at] - of(row.idle, at);
      from[at] = start[at] - of(row.back, at);
    }
    const count = full(row.count, n).map((more) => more + 1);
    return { n, start, end, busy, from, count, kind: full(row.kind, n), name: full(row.name, n), detail: full(row.detail, n), lane: full(row.lane, n) };
  };
  // The first run of a row that ends after an instant; runs of a row do not overlap.
  const after = (row, time) => {
    let low = 0, high = row.n;
    while (low < high) { const middle = (low + high) >> 1; if (row.end[middle] > time) high = middle; else low = middle + 1; }
    return low;
  };
  const holding = (row, time) => {
    const at = after(row, time);
    return at < row.n && row.start[at] <= time ? at : -1;
  };
  class Model {
    constructor(plain) {
      Object.assign(this, plain);
      this.lanes = plain.lanes.map((lane) => ({ ...lane, rows: lane.rows.map(columns) }));
    }
    name(row, at) {
      const id = row.name[at];
      return id < 0 ? "several short ones" : this.short[id] || this.texts[id];
    }
    // The lane of another kind of the same thread: labels end in what a lane shows.
    beside(number, kind) {
      const thread = (lane) => lane.label.slice(0, lane.label.lastIndexOf(": "));
      const own = this.lanes[number];
      return this.lanes.findIndex((lane) => lane.kind === kind && lane.rank === own.rank && thread(lane) === thread(own));
    }
    // Everything of a lane that holds an instant, the outermost first, as [lane, row, run].
    stack(number, time) {
      if (number < 0) return [];
      return this.lanes[number].rows.flatMap((row, depth) => { const at = holding(row, time); return at < 0 ? [] : [[number, depth, at]]; });
    }
    // What caused a run: the call that launched it, or the operator whose backward it is.
    cause([lane, depth, at]) {
      const row = this.lanes[lane].rows[depth];
      const stack = this.stack(row.lane[at], row.from[at]);
      return stack.find((run) => this.run(run).start === row.from[at]) || stack.pop() || null;
    }
    // What a call launched, and what the backward of an operator is.
    effects([lane, depth, at], most = 64) {
      const begin = this.lanes[lane].rows[depth].start[at], found = [];
      this.lanes.forEach((other, number) => other.rows.forEach((row, d) => {
        for (let a = 0; a < row.n && found.length < most; a += 1) if (row.lane[a] === lane && row.from[a] === begin) found.push([number, d, a]);
      }));
      return found;
    }
    // Runs whose name holds a text, in order of time.
    search(text) {
      const wanted = text.trim().toLowerCase();
      if (!wanted) return [];
      const ids = new Set();
      this.texts.forEach((name, id) => { if (name.toLowerCase().includes(wanted) || (this.short[id] || "").toLowerCase().includes(wanted)) ids.add(id); });
      const found = [];
      this.lanes.forEach((lane, number) => lane.rows.forEach((row, depth) => {
        for (let at = 0; at < row.n; at += 1) if (ids.has(row.name[at])) found.push([number, depth, at]);
      }));
      return found.sort((a, b) => this.run(a).start - this.run(b).start || a[0] - b[0] || a[1] - b[1]);
    }
    run([lane, depth, at]) {
      const row = this.lanes[lane].rows[depth];
      return { start: row.start[at], end: row.end[at], count: row.count[at], busy: row.busy[at], name: row.name[at], kind: row.kind[at], detail: row.detail[at] };
    }
    // Where the time of one device goes between two instants: compute hides communication, and both hide copies.
    budget(rank, device, from, to) {
      const times = { compute: 0, communication: 0, copy: 0, idle: 0 }, causes = new Map(), kernels = new Map(), edges = [];
      let joined = 0;
      for (const lane of this.lanes) {
        if (lane.rank !== rank || lane.device !== device || (lane.kind !== "stream" && lane.kind !== "idle")) continue;
        for (const row of lane.rows) for (let at = after(row, from); at < row.n && row.start[at] < to; at += 1) {
          const inside = Math.min(row.end[at], to) - Math.max(row.start[at], from);
          const share = (row.busy[at] / Math.max(row.end[at] - row.start[at], 1)) * inside;
          const kind = this.kinds[row.kind[at]], name = this.name(row, at);
          if (row.count[at] > 1) joined += row.count[at];
          if (lane.kind === "idle") { causes.set(name, (causes.get(name) || 0) + share); continue; }
          const what = kind === "communication" || kind === "copy" ? kind : "compute";
          edges.push([Math.max(row.start[at], from), what, 1], [Math.max(row.start[at], from) + share, what, -1]);
          const sum = kernels.get(name) || [0, 0];
          kernels.set(name, [sum[0] + share, sum[1] + row.count[at]]);
        }
      }
      edges.sort((a, b) => a[0] - b[0]);
      const open = { compute: 0, communication: 0, copy: 0 };
      let last = from;
      for (const [time, what, by] of [...edges, [to, null, 0]]) {
        const state = open.compute ? "compute" : open.communication ? "communication" : open.copy ? "copy" : "idle";
        times[state] += time - last;
        last = time;
        if (what) open[what] += by;
      }
      const order = (map) => [...map].sort((a, b) => (b[1][0] || b[1]) - (a[1][0] || a[1]));
      return { times, causes: order(causes), kernels: order(kernels).slice(0, 6), joined };
    }
  }
  return { open: async (text) => new Model(await unpacked(text)), unpacked, after, timeText, made };
})();
