"use strict";
// The packed timeline as typed columns, the questions that the drawing asks of it, and what all drawings share.
const Capture = (() => {
  const unpacked = async (text) => {
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = letters.charCodeAt(at);
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
  const button = (text, label, act, className = "") => {
    const node = made("button", className, text);
    node.type = "button";
    if (label) node.setAttribute("aria-label", label);
    node.addEventListener("click", act);
    return node;
  };
  const searchField = (label, act) => {
    const node = made("input");
    node.type = "search";
    node.placeholder = "search names";
    node.setAttribute("aria-label", label);
    node.addEventListener("input", act);
    return node;
  };
  const picture = (label) => {
    const node = made("canvas");
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", label);
    return node;
  };
  // A pen for a picture of that size.
  const sized = (canvas, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return pen;
  };
  // The ink that is read on fills, each with its opacity, laid over paper; all are #rrggbb.
  const inkOn = (paper, ...layers) => {
    const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
    const mixed = layers.reduce((under, [fill, alpha]) => parts(fill).map((part, at) => alpha * part + (1 - alpha) * under[at]), parts(paper));
    const [red, green, blue] = mixed.map((part) => part ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.19 ? "#0d1420" : "#ffffff";
  };
  // A button that shows and hides what the pointer and keys do.
  const keys = (tools, text) => {
    const told = made("span", "", text);
    told.hidden = true;
    tools.append(button("?", "what the pointer and keys do", () => { told.hidden = !told.hidden; }), told);
    document.addEventListener("keydown", ({ key }) => { if (key === "Escape") told.hidden = true; });
  };
  // What each key does on a picture.
  const onKeys = (node, acts) => node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key](event);
  });
  const full = (values, n) => (values.length === n ? new Int32Array(values) : new Int32Array(n).fill(values.length ? values[0] : -1));
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
  // Rows of a lane, each unpacked when it is first looked at: most are folded away, or below the screen.
  const lazily = (texts) => {
    const rows = new Array(texts.length);
    texts.forEach((text, depth) => Object.defineProperty(rows, depth, {
      configurable: true, enumerable: true,
      get() {
        const value = columns(JSON.parse(text));
        Object.defineProperty(rows, depth, { value });
        return value;
      },
    }));
    return rows;
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
  // One event, or joined ones, of a row: `name` below -1 is that of several.
  const eventOf = (row, lane, depth, at) => ({
    lane, depth, start: row.start[at], end: row.end[at], count: row.count[at], busy: row.busy[at], name: row.name[at],
    kind: row.kind[at], detail: row.detail[at], fromLane: row.lane[at], from: row.from[at],
  });
  // What a drawing asks: of a page that holds every box, or of the server that it came from (`Served`).
  class Model {
    constructor(plain) {
      Object.assign(this, plain);
      this.zero = Math.max(-plain.offset, 0); // where the clock of the command line begins: ranges may begin before it
      this.lanes = plain.lanes.map((lane) => ({ ...lane, rows: lazily(lane.rows) }));
      this.firstRank = Math.min(...this.lanes.filter((lane) => lane.rank >= 0).map((lane) => lane.rank));
    }
    name(event) { return event.name < 0 ? "several short ones" : this.short[event.name] || this.texts[event.name]; }
    // What joined events of several names are, the most frequent first, as [name, count].
    mix(event) {
      const flat = event.name < -1 && this.mixes[-2 - event.name], found = [];
      for (let at = 0; flat && at < flat.length; at += 2) found.push([flat[at] < 0 ? "others" : this.short[flat[at]] || this.texts[flat[at]], flat[at + 1]]);
      return found.sort((a, b) => b[1] - a[1]);
    }
    // The lane of another kind of the same thread: labels end in what a lane shows.
    beside(number, kind) {
      const thread = (lane) => lane.label.slice(0, lane.label.lastIndexOf(": "));
      const own = this.lanes[number];
      return this.lanes.findIndex((lane) => lane.kind === kind && lane.rank === own.rank && thread(lane) === thread(own));
    }
    // Everything of a lane that holds an instant, the outermost first.
    stack(number, time) {
      if (number < 0) return [];
      return this.lanes[number].rows.flatMap((row, depth) => { const at = holding(row, time); return at < 0 ? [] : [eventOf(row, number, depth, at)]; });
    }
    // What caused an event (the call that launched it, the operator whose backward it is), what it caused, and what it is in.
    async around(event) {
      const { kind } = this.lanes[event.lane], stack = this.stack(event.fromLane, event.from);
      const cause = stack.find((other) => other.start === event.from) || stack.pop() || null;
      const host = kind === "stream" && cause ? { lane: event.fromLane, start: event.from } : kind === "call" ? event : null;
      const inside = host ? ["op", "range"].map((other) => this.stack(this.beside(host.lane, other), host.start).pop()).filter(Boolean) : [];
      return { cause, effects: kind === "call" || kind === "op" ? this.effects(event) : [], inside };
    }
    // What a call launched, and what the backward of an operator is.
    effects(event, most = 64) {
      const found = [];
      this.lanes.forEach((other, number) => other.rows.forEach((row, depth) => {
        for (let at = 0; at < row.n && found.length < most; at += 1) if (row.lane[at] === event.lane && row.from[at] === event.start) found.push(eventOf(row, number, depth, at));
      }));
      return found;
    }
    // Boxes whose names hold a text, in order of time, and how many events they and joined boxes hold of it.
    async search(text) {
      const wanted = text.trim().toLowerCase(), counts = new Map(), hits = [];
      let events = 0, unseen = 0;
      if (!wanted) return { hits, events, unseen };
      const has = this.texts.map((name, id) => name.toLowerCase().includes(wanted) || (this.short[id] || "").toLowerCase().includes(wanted));
      this.mixes.forEach((flat, mix) => {
        let sum = 0;
        for (let at = 0; at < flat.length; at += 2) if (has[flat[at]]) sum += flat[at + 1];
        if (sum) counts.set(-2 - mix, sum);
      });
      this.lanes.forEach((lane, number) => lane.kind !== "ranks" && lane.rows.forEach((row, depth) => {
        for (let at = 0; at < row.n; at += 1) {
          const held = has[row.name[at]] ? row.count[at] : counts.get(row.name[at]) || 0;
          if (row.name[at] === -1) unseen += row.count[at];
          if (!held) continue;
          events += held;
          hits.push(eventOf(row, number, depth, at));
        }
      }));
      hits.sort((a, b) => a.start - b.start || a.lane - b.lane || a.depth - b.depth);
      return { hits, events, unseen };
    }
    // Where the time of one device goes between two instants: compute hides communication, and both hide copies.
    async budget(rank, device, from, to) {
      const times = { compute: 0, communication: 0, copy: 0, idle: 0 }, causes = new Map(), kernels = new Map(), edges = [];
      let joined = 0;
      for (const [number, lane] of this.lanes.entries()) {
        if (lane.rank !== rank || lane.device !== device || (lane.kind !== "stream" && lane.kind !== "idle")) continue;
        for (const [depth, row] of lane.rows.entries()) for (let at = after(row, from); at < row.n && row.start[at] < to; at += 1) {
          const inside = Math.min(row.end[at], to) - Math.max(row.start[at], from);
          const share = (row.busy[at] / Math.max(row.end[at] - row.start[at], 1)) * inside;
          const kind = this.kinds[row.kind[at]], name = this.name(eventOf(row, number, depth, at));
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
      const order = (list) => list.sort((a, b) => b[1] - a[1]);
      return { times, causes: order([...causes]), kernels: order([...kernels].map(([name, [ns, count]]) => [name, ns, count])).slice(0, 6), joined };
    }
  }
  // The same questions put to the server. The page holds joined boxes of the whole capture, which are shown until finer ones come.
  class Served extends Model {
    get served() { return this.merged > 0 || this.lanes.some((lane) => lane.kind === "ranks"); }
    async ask(what, given) {
      const answer = await fetch(`${what}?${new URLSearchParams(given)}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      return answer;
    }
    know({ texts, short }) { for (const [id, text] of Object.entries(texts)) this.texts[id] = text; Object.assign(this.short, short); }
    async told(what, given) {
      const answer = await (await this.ask(what, given)).json();
      this.know(answer);
      return answer;
    }
    // The first rows of lanes, given as [lane, rows], between two instants, in which a pixel is so long.
    async tile(wanted, from, to, pixel) {
      const answer = await this.ask("tile", { rows: wanted.map((some) => some.join(".")).join(","), from, to, pixel });
      const bytes = await answer.arrayBuffer(), size = new DataView(bytes).getUint32(0, true), head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, size)));
      this.know(head);
      const all = head.rows.reduce((sum, [, , n]) => sum + n, 0), rows = new Map();
      let place = 4 + size;
      const [start, end, busy, back, count, kind, name, detail, lane] = [...Array(4).fill(Float64Array), ...Array(5).fill(Int32Array)].map((type) => {
        const column = new type(bytes, place, all);
        place += all * type.BYTES_PER_ELEMENT;
        return column;
      });
      let first = 0;
      for (const [number, depth, n] of head.rows) {
        const cut = (column) => column.subarray(first, first + n);
        rows.set(`${number}.${depth}`, { n, start: cut(start), end: cut(end), busy: cut(busy), from: cut(back), count: cut(count), kind: cut(kind), name: cut(name), detail: cut(detail), lane: cut(lane) });
        first += n;
      }
      return { from, to, pixel, rows, whole: head.whole };
    }
    around({ lane, depth, start, count }) { return count > 1 ? { cause: null, effects: [], inside: [] } : this.told("around", { lane, depth, start }); }
    search(text) { return text.trim() ? this.told("search", { text }) : super.search(text); }
    async budget(rank, device, from, to) {
      const { times, causes, kernels } = await this.told("budget", { rank, device, from: Math.round(from), to: Math.round(to) });
      const named = (list) => list.map(([name, ...more]) => [this.name({ name }), ...more]);
      return { times, causes: named(causes), kernels: named(kernels), joined: 0 };
    }
  }
  const open = async (text, isServed) => new (isServed ? Served : Model)(await unpacked(text));
  return { open, eventOf, unpacked, after, timeText, made, button, searchField, picture, sized, inkOn, keys, onKeys };
})();
