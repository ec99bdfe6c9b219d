"use strict";
// The timeline around a finding: lanes of boxes on a canvas; drag, pinch, buttons and keys move it.
(() => {
  const island = document.getElementById("data");
  if (!island) return;
  const data = JSON.parse(island.textContent);
  const ROW = 15, LABEL = 17, AXIS = 20, GAP = 5, FIELDS = 6, PAPER = 760;
  const FAMILY = {
    sync: "wait", copy_staging: "wait2", allocator: "wait2", loader: "wait2", dispatch: "host2", optimizer: "host2", profiler: "host2",
    untraced: "host", python: "host", os_call: "host3", cuda_call: "host3", compile: "host3", checkpoint: "host3", garbage_collection: "host3", logging: "host3",
    launch_latency: "gpu", kernel_gap: "gpu2", graph_gap: "gpu2", unexplained: "gpu3", dependency_compute: "gpu3",
    dependency_communication: "communication", dependency_copy: "copy",
  };
  const styles = () => getComputedStyle(document.documentElement);
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

  class Timeline {
    constructor(figure, shown) {
      this.shown = shown;
      this.from = 0;
      this.to = shown.length;
      this.lane = shown.lanes.findIndex((lane) => lane.items.length);
      this.pick = -1;
      this.top = [];
      let y = AXIS;
      for (const lane of shown.lanes) { this.top.push(y); y += LABEL + lane.rows * ROW + GAP; }
      this.height = y + 2;
      this.build(figure);
      this.listen();
      this.draw();
    }

    build(figure) {
      const tools = made("div", "tools");
      const button = (text, label, act) => {
        const node = made("button", "", text);
        node.type = "button";
        node.setAttribute("aria-label", label);
        node.addEventListener("click", act);
        tools.append(node);
      };
      button("+", "zoom in", () => this.zoom(0.5));
      button("−", "zoom out", () => this.zoom(2));
      button("←", "move left", () => this.move(-0.25));
      button("→", "move right", () => this.move(0.25));
      button("all", "show the whole window", () => this.show(0, this.shown.length));
      tools.append(made("span", "", "drag to move, Ctrl+wheel to zoom; keys: + − ← → 0, ↑ ↓ choose a lane, n p step through its events"));
      this.canvas = made("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", "Timeline; the table below lists its longest events. Arrow keys move, plus and minus zoom, n and p step through events.");
      this.tip = made("div", "tip");
      this.tip.hidden = true;
      this.tip.setAttribute("aria-hidden", "true");
      this.picked = made("output", "picked");
      figure.append(tools, this.canvas, this.tip, this.picked);
      this.figure = figure;
    }

    listen() {
      const canvas = this.canvas;
      let drag = null;
      const touches = new Map();
      const apart = () => { const [a, b] = [...touches.values()]; return Math.max(Math.abs(a - b), 8); };
      const lift = (event) => { touches.delete(event.pointerId); drag = null; };
      canvas.addEventListener("pointerdown", (event) => {
        touches.set(event.pointerId, event.offsetX);
        drag = touches.size === 1 ? { x: event.offsetX, from: this.from } : null;
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointerup", lift);
      canvas.addEventListener("pointercancel", lift);
      canvas.addEventListener("pointermove", (event) => {
        if (touches.size === 2 && touches.has(event.pointerId)) {
          const before = apart();
          touches.set(event.pointerId, event.offsetX);
          const [a, b] = [...touches.values()];
          this.zoom(before / apart(), (a + b) / 2 / canvas.clientWidth);
        } else if (drag) {
          const span = this.to - this.from;
          const from = drag.from - ((event.offsetX - drag.x) / canvas.clientWidth) * span;
          this.show(from, from + span);
        } else { this.hover(event.offsetX, event.offsetY); }
      });
      canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      canvas.addEventListener("dblclick", (event) => this.zoom(0.5, event.offsetX / canvas.clientWidth));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => {
        const acts = {
          "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.show(0, this.shown.length),
          ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), ArrowUp: () => this.choose(-1), ArrowDown: () => this.choose(1),
          n: () => this.step(1), p: () => this.step(-1),
        };
        if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
        event.preventDefault();
        acts[event.key]();
      });
      let width = 0;
      new ResizeObserver(() => { if (canvas.clientWidth !== width) { width = canvas.clientWidth; this.draw(); } }).observe(canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      window.addEventListener("beforeprint", () => this.draw(PAPER)); // paper is as wide whatever the window was
      window.addEventListener("afterprint", () => this.draw());
    }

    zoom(factor, at = 0.5) {
      const span = Math.min(Math.max((this.to - this.from) * factor, 100), this.shown.length);
      const centre = this.from + (this.to - this.from) * at;
      this.show(centre - span * at, centre + span * (1 - at));
    }

    move(share) {
      const by = (this.to - this.from) * share;
      this.show(this.from + by, this.to + by);
    }

    show(from, to) {
      const span = to - from;
      this.from = Math.min(Math.max(from, 0), this.shown.length - span);
      this.to = this.from + span;
      this.draw();
    }

    choose(by) {
      const lanes = this.shown.lanes;
      this.lane = (this.lane + by + lanes.length) % lanes.length;
      this.pick = -1;
      this.say(`lane ${data.names[lanes[this.lane].label]}, ${lanes[this.lane].items.length / FIELDS} events`);
      this.draw();
    }

    step(by) {
      const items = this.shown.lanes[this.lane].items;
      const count = items.length / FIELDS;
      if (!count) return;
      this.pick = this.pick < 0 ? (by > 0 ? 0 : count - 1) : Math.min(Math.max(this.pick + by, 0), count - 1);
      const start = items[this.pick * FIELDS], length = items[this.pick * FIELDS + 1];
      if (start < this.from || start + length > this.to) {
        const span = Math.min(Math.max(this.to - this.from, length * 1.2), this.shown.length);
        const middle = start + length / 2;
        this.show(middle - span / 2, middle + span / 2);
      }
      this.say(this.words(this.lane, this.pick));
      this.draw();
    }

    say(text) { this.picked.textContent = text; }

    words(lane, at) {
      const [start, length, , , name, detail] = this.shown.lanes[lane].items.slice(at * FIELDS, at * FIELDS + FIELDS);
      const more = detail < 0 ? "" : `, ${data.names[detail]}`;
      return `${data.names[name]}${more}: ${timeText(length)}, from ${timeText(start)}`;
    }

    at(x, y) {
      const time = this.from + (x / this.canvas.clientWidth) * (this.to - this.from);
      const reach = (1.5 / this.canvas.clientWidth) * (this.to - this.from);
      for (const [lane, top] of this.top.entries()) {
        const row = Math.floor((y - top - LABEL) / ROW);
        const { items, rows } = this.shown.lanes[lane];
        if (row < 0 || row >= rows) continue;
        for (let at = 0; at < items.length / FIELDS; at += 1) {
          const start = items[at * FIELDS];
          if (items[at * FIELDS + 2] === row && start - reach <= time && start + items[at * FIELDS + 1] + reach > time) return [lane, at];
        }
      }
      return null;
    }

    hover(x, y) {
      const found = this.at(x, y);
      this.tip.hidden = !found;
      if (!found) return;
      this.tip.textContent = this.words(...found);
      const left = Math.min(x + 12, Math.max(this.canvas.clientWidth - 260, 0));
      this.tip.style.left = `${this.canvas.offsetLeft + left}px`;
      this.tip.style.top = `${this.canvas.offsetTop + y + 16}px`;
    }

    draw(paper) {
      const { canvas, shown } = this;
      const width = paper || canvas.clientWidth, ratio = window.devicePixelRatio || 1;
      if (!width) return;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.style.height = `${this.height}px`;
      canvas.dataset.from = String(this.from);
      canvas.dataset.to = String(this.to);
      const pen = canvas.getContext("2d"), style = styles();
      const colour = (name) => style.getPropertyValue(name).trim();
      const kinds = shown.kinds.map((kind) => colour(`--k-${FAMILY[kind] || kind}`) || colour("--k-gpu"));
      const scale = width / (this.to - this.from), x = (time) => (time - this.from) * scale;
      pen.scale(ratio, ratio);
      pen.clearRect(0, 0, width, this.height);
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      this.axis(pen, x, colour, width);
      pen.fillStyle = colour("--band");
      for (const [start, length] of shown.claimed) pen.fillRect(x(start), AXIS, Math.max(length * scale, 0.5), this.height - AXIS);
      for (const [lane, top] of this.top.entries()) this.drawLane(pen, lane, top, { x, scale, width, kinds, colour });
    }

    drawLane(pen, number, top, { x, scale, width, kinds, colour }) {
      const lane = this.shown.lanes[number], items = lane.items;
      for (let at = 0; at < items.length; at += FIELDS) {
        const left = Math.max(x(items[at]), 0), right = Math.min(x(items[at] + items[at + 1]), width);
        if (right < 0 || left > width) continue;
        const boxTop = top + LABEL + items[at + 2] * ROW, wide = Math.max(right - left - (right - left > 3 ? 0.6 : 0), 0.7);
        pen.fillStyle = kinds[items[at + 3]];
        pen.fillRect(left, boxTop, wide, ROW - 2);
        if (wide > 34) this.label(pen, data.names[items[at + 4]], left + 3, boxTop + ROW / 2 - 1, wide - 6, colour);
        if (number === this.lane && at / FIELDS === this.pick) {
          pen.strokeStyle = colour("--ink");
          pen.lineWidth = 2;
          pen.strokeRect(left, boxTop, Math.max(wide, 3), ROW - 2);
        }
      }
      pen.fillStyle = colour(number === this.lane && document.activeElement === this.canvas ? "--accent" : "--quiet");
      const left = lane.hidden ? ` (${lane.hidden} shorter not drawn)` : "";
      pen.fillText(data.names[lane.label] + left, 4, top + LABEL / 2);
    }

    label(pen, text, left, middle, room, colour) {
      const fits = Math.floor(room / 6);
      if (fits < 3) return;
      pen.fillStyle = colour("--box-ink");
      pen.save();
      pen.beginPath();
      pen.rect(left, middle - ROW / 2, room, ROW);
      pen.clip();
      pen.fillText(text.length > fits ? `${text.slice(0, fits - 1)}…` : text, left, middle);
      pen.restore();
    }

    axis(pen, x, colour, width) {
      const rough = ((this.to - this.from) / Math.max(width, 1)) * 110;
      const power = 10 ** Math.floor(Math.log10(rough));
      const every = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
      pen.strokeStyle = colour("--line");
      pen.fillStyle = colour("--quiet");
      pen.lineWidth = 1;
      for (let time = Math.ceil(this.from / every) * every; time <= this.to; time += every) {
        pen.beginPath();
        pen.moveTo(x(time) + 0.5, 0);
        pen.lineTo(x(time) + 0.5, this.height);
        pen.stroke();
        pen.fillText(timeText(time), x(time) + 3, AXIS / 2);
      }
    }
  }

  for (const figure of document.querySelectorAll("figure.timeline")) {
    const shown = data.windows[figure.dataset.window];
    if (shown) new Timeline(figure, shown);
  }
})();
