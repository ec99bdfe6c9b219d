"use strict";
// The timeline: lanes of boxes on a canvas, over the whole capture. Boxes narrower than a pixel are drawn as density, so
// that what is too short to see is never a gap. One capture is shared by the overview and the picture of each finding.
(() => {
  const figures = [...document.querySelectorAll("figure.timeline")];
  const captureOf = (figure) => document.getElementById(figure.dataset.capture || "capture");
  if (!figures.length || !captureOf(figures[0])) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const ROW = 15, LABEL = 17, AXIS = 20, GAP = 5, PAPER = 760, MINI = 36, PIN = 40, SOLID = 1.5, FAINT = 0.3, SHORTEST = 20;
  const WORDS = {
    product: "matmuls, convolutions", attention: "attention", reduction: "reductions, norms, softmax", pointwise: "element-wise, layout", kernel: "other kernels",
    communication: "communication", copy: "copies",
  };
  const { timeText, made, sized } = Capture;
  const style = () => {
    const all = getComputedStyle(document.documentElement), known = new Map();
    return (name) => { if (!known.has(name)) known.set(name, all.getPropertyValue(name).trim()); return known.get(name); };
  };
  const colours = (model, colour) => model.kinds.map((kind) => colour(`--k-${kind}`) || colour("--k-gpu"));
  const same = (a, b) => a && b && a.lane === b.lane && a.depth === b.depth && a.start === b.start && a.end === b.end;
  const tall = (lane) => (lane.kind === "ranks" ? Math.min(ROW, Math.max(3, Math.floor(512 / lane.rows.length))) : ROW);
  const plain = (folded, lane) => (folded ? 1 : Math.max(lane.rows.length, 1));

  // One row of boxes between two instants. What is narrower than a pixel or two is summed per pixel, and drawn as dense
  // as it is busy there; `each` is told of every box that is wide enough to be seen by itself.
  const drawRow = (pen, row, { from, to, width, top, height, kinds, paper }, each) => {
    const scale = width / (to - from), dense = new Float32Array(width + 1), kind = new Int16Array(width + 1), most = new Float32Array(width + 1);
    for (let at = Capture.after(row, from); at < row.n && row.start[at] < to; at += 1) {
      const left = (row.start[at] - from) * scale, right = (row.end[at] - from) * scale;
      if (right - left >= SOLID) {
        const share = row.busy[at] / (row.end[at] - row.start[at]);
        const x = Math.max(left, 0), wide = Math.min(right, width) - x;
        const alpha = row.count[at] > 1 || share < 1 ? Math.max(FAINT, Math.min(0.85, share)) : 1;
        pen.globalAlpha = alpha;
        pen.fillStyle = kinds[row.kind[at]];
        pen.fillRect(x, top, wide, height);
        if (wide > 3 && height > 6 && row.n > 1) { // an edge, so that neighbours of one colour are two boxes
          pen.globalAlpha = 0.4;
          pen.fillStyle = paper;
          pen.fillRect(x + wide - 0.7, top, 0.7, height);
        }
        each(at, x, wide, alpha);
      } else {
        const share = right > left ? (row.busy[at] * scale) / (right - left) : 1;
        for (let column = Math.max(Math.floor(left), 0); column <= width && (column < right || column === Math.floor(left)); column += 1) {
          const weight = Math.max((Math.min(right, column + 1) - Math.max(left, column)) * share, 1e-6);
          dense[column] += weight;
          if (weight > most[column]) { most[column] = weight; kind[column] = row.kind[at]; }
        }
      }
    }
    for (let column = 0; column <= width; column += 1) {
      if (!dense[column]) continue;
      pen.globalAlpha = Math.max(FAINT, Math.min(1, dense[column]));
      pen.fillStyle = kinds[kind[column]];
      pen.fillRect(column, top, 1, height);
    }
    pen.globalAlpha = 1;
  };

  // Timelines to paint in the next frame. To read a width once one is painted lays the page out anew, so all are read first.
  const due = new Set();
  const paintDue = () => {
    const lines = [...due], colour = style(), widths = lines.map(({ canvas, mini }) => [canvas.clientWidth, mini ? mini.clientWidth : 0]);
    due.clear();
    lines.forEach((line, at) => line.paint(colour, ...widths[at]));
  };

  class Timeline {
    constructor(figure, model, place) {
      Object.assign(this, { figure, model, place, home: [place.from, place.to], from: place.from, to: place.to, lane: 0, pick: null, linkedTo: null, interval: null, hits: [], hit: -1, fine: null });
      this.lanes = model.lanes.map((lane, number) => ({ number, lane, folded: place.folded(lane, number) })).filter(({ number }) => place.shows(number));
      this.build();
      this.listen();
      this.show(this.from, this.to);
      if (place.searches) {
        this.recall();
        View.onChange(() => this.recall());
      }
    }

    // What the address says is shown: `at` from:to, `find` a text, `lanes` in their order, those with a star pinned.
    recall() {
      const [from, to] = View.get("at").split(":").map(Number), order = View.get("lanes").split(",").filter(Boolean);
      const placed = order.map((text) => this.lanes.find(({ number }) => number === parseInt(text, 10))).filter(Boolean);
      placed.forEach((lane, at) => { lane.pinned = order[at].endsWith("*"); });
      this.lanes = [...placed, ...this.lanes.filter((lane) => !placed.includes(lane))];
      if (to > from) this.show(from, to);
      if (View.get("find") !== this.query.value) { this.query.value = View.get("find"); this.find(); }
      this.draw();
    }

    remember(key, value) { if (this.place.searches) View.set(key, value); }

    // Move a lane to another place among the pinned ones or among the others.
    put(place, target) {
      const lane = this.lanes[place], first = this.lanes.filter(({ pinned }) => pinned).length;
      const to = lane.pinned ? Math.min(Math.max(target, 0), first - 1) : Math.min(Math.max(target, first), this.lanes.length - 1);
      this.lanes.splice(to, 0, ...this.lanes.splice(place, 1));
      this.lane = to;
      this.remember("lanes", this.lanes.map(({ number, pinned }) => `${number}${pinned ? "*" : ""}`).join(","));
      this.draw();
      return to;
    }

    // A pinned lane stands above the others; one that no longer is goes back to where it was among them.
    pin(place) {
      const lane = this.lanes[place];
      lane.pinned = !lane.pinned;
      this.put(place, lane.pinned ? Infinity : this.lanes.filter((other) => other !== lane && (other.pinned || other.number < lane.number)).length);
    }

    build() {
      const tools = made("div", "tools");
      const button = (...given) => tools.append(Capture.button(...given));
      button("+", "zoom in", () => this.zoom(0.5));
      button("−", "zoom out", () => this.zoom(2));
      button("←", "move left", () => this.move(-0.25));
      button("→", "move right", () => this.move(0.25));
      button("reset", "back to where the picture began", () => this.show(...this.home));
      button("all", "show the whole capture", () => this.show(this.model.zero, this.model.length));
      button("budget", "where the time of this view goes", () => this.account(this.from, this.to));
      if (this.place.ranks) button("all threads", "show or hide the threads of the other ranks", () => { this.threads = !this.threads; this.draw(); });
      if (this.place.elsewhere) button("in the whole timeline", "show this place in the whole timeline", () => this.place.elsewhere(this.from, this.to));
      if (this.place.searches) {
        this.query = Capture.searchField("search names of events", () => this.find());
        this.query.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.next(event.shiftKey ? -1 : 1); } });
        this.found = made("output", "found");
        tools.append(this.query);
        button("‹", "previous match", () => this.next(-1));
        button("›", "next match", () => this.next(1));
        tools.append(this.found);
      }
      Capture.keys(tools, "drag moves, Shift+drag measures (over lanes: tells what is in each), Ctrl+wheel zooms, a click selects, a lane's name folds it or is dragged to another place; keys: + − ← → or W A S D, 0, ↑ ↓ choose a lane, Shift+↑ ↓ move it, t pins it to the top, n p step through it, Enter folds it, b budget, Escape closes what is open");
      this.figure.append(tools);
      if (this.place.searches) {
        this.mini = Capture.picture("The whole capture, with the part that is shown below");
        this.mini.className = "mini";
        this.figure.append(this.mini);
      }
      this.canvas = Capture.picture("Timeline; a table below lists its longest events. Arrow keys move, plus and minus zoom, n and p step through events.");
      this.canvas.tabIndex = 0;
      this.tip = made("div", "tip");
      this.tip.hidden = true;
      this.tip.setAttribute("aria-hidden", "true");
      this.picked = made("output", "picked");
      this.table = made("div", "budget");
      this.figure.append(this.canvas, this.tip, this.picked, this.table);
    }

    listen() {
      const { canvas } = this;
      const touches = new Map();
      let drag = null;
      const time = (x) => this.from + (x / canvas.clientWidth) * (this.to - this.from);
      const apart = () => { const [a, b] = [...touches.values()]; return Math.max(Math.abs(a - b), 8); };
      canvas.addEventListener("pointerdown", (event) => {
        touches.set(event.pointerId, event.offsetX);
        drag = touches.size === 1 ? { x: event.offsetX, y: event.offsetY, from: this.from, measures: event.shiftKey, begin: time(event.offsetX), lane: this.labelAt(event.offsetY), moved: false } : null;
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointerup", (event) => {
        touches.delete(event.pointerId);
        if (drag && drag.measures && drag.moved) this.account(...this.interval);
        else if (drag && !drag.moved) this.click(event.offsetX, event.offsetY);
        drag = null;
      });
      canvas.addEventListener("pointercancel", (event) => { touches.delete(event.pointerId); drag = null; });
      canvas.addEventListener("pointermove", (event) => {
        if (touches.size === 2 && touches.has(event.pointerId)) {
          const before = apart();
          touches.set(event.pointerId, event.offsetX);
          const [a, b] = [...touches.values()];
          this.zoom(before / apart(), (a + b) / 2 / canvas.clientWidth);
        } else if (drag) {
          drag.moved = drag.moved || Math.abs(event.offsetX - drag.x) > 3 || (drag.lane >= 0 && Math.abs(event.offsetY - drag.y) > 8);
          if (!drag.moved) return;
          if (drag.measures) {
            this.area = drag.y > AXIS ? [drag.y, event.offsetY].sort((a, b) => a - b) : null;
            this.interval = [drag.begin, time(event.offsetX)].sort((a, b) => a - b);
            this.draw();
          } else if (drag.lane >= 0 && Math.abs(event.offsetY - drag.y) > Math.abs(event.offsetX - drag.x)) {
            const target = this.laid().tops.findLastIndex((top) => top >= 0 && event.offsetY >= top);
            if (target >= 0 && target !== drag.lane) drag.lane = this.put(drag.lane, target);
          } else {
            const span = this.to - this.from;
            const from = drag.from - ((event.offsetX - drag.x) / canvas.clientWidth) * span;
            this.show(from, from + span);
          }
        } else { this.hover(event.offsetX, event.offsetY); }
      });
      canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
      canvas.addEventListener("dblclick", (event) => this.zoom(0.5, event.offsetX / canvas.clientWidth));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
      }, { passive: false });
      Capture.onKeys(canvas, {
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), w: () => this.zoom(0.5), "-": () => this.zoom(2), s: () => this.zoom(2), "0": () => this.show(...this.home),
        ArrowLeft: () => this.move(-0.2), a: () => this.move(-0.2), ArrowRight: () => this.move(0.2), d: () => this.move(0.2),
        ArrowUp: ({ shiftKey }) => (shiftKey ? this.put(this.lane, this.lane - 1) : this.choose(-1)), ArrowDown: ({ shiftKey }) => (shiftKey ? this.put(this.lane, this.lane + 1) : this.choose(1)), t: () => this.pin(this.lane), n: () => this.step(1), p: () => this.step(-1),
        b: () => this.account(this.from, this.to), Enter: () => this.fold(this.lane), Escape: () => this.close(),
      });
      if (this.mini) {
        // A click shows that place; a drag shows what it went over.
        let begin = 0;
        const when = (event) => (event.offsetX / this.mini.clientWidth) * this.model.length;
        this.mini.addEventListener("pointerdown", (event) => {
          const half = (this.to - this.from) / 2;
          begin = when(event);
          this.mini.setPointerCapture(event.pointerId);
          this.show(begin - half, begin + half);
        });
        this.mini.addEventListener("pointermove", (event) => { if (event.buttons && Math.abs(when(event) - begin) > this.model.length / 200) this.show(...[begin, when(event)].sort((a, b) => a - b)); });
      }
      new ResizeObserver(() => { if (canvas.clientWidth !== this.width) this.draw(); }).observe(canvas);
      View.themed(() => { this.backdrop = null; this.draw(); });
      window.addEventListener("beforeprint", () => this.paint(style(), PAPER)); // paper is as wide whatever the window was
      window.addEventListener("afterprint", () => this.draw());
    }

    // About a share of the width; without one about the selected event, where it can be seen.
    zoom(factor, about) {
      let at = about === undefined ? 0.5 : about;
      if (about === undefined && this.pick) {
        const { start, end } = this.pick, share = ((start + end) / 2 - this.from) / (this.to - this.from);
        if (share > 0 && share < 1) at = share;
      }
      const span = Math.min(Math.max((this.to - this.from) * factor, SHORTEST), this.model.length);
      const centre = this.from + (this.to - this.from) * at;
      this.show(centre - span * at, centre + span * (1 - at));
    }

    // What a selection or a key has opened beside the picture.
    close() {
      this.pick = null;
      this.tip.hidden = true;
      this.table.replaceChildren();
      this.say("");
      this.draw();
    }

    move(share) {
      const by = (this.to - this.from) * share;
      this.show(this.from + by, this.to + by);
    }

    show(from, to) {
      const span = Math.min(Math.max(to - from, SHORTEST), this.model.length);
      this.from = Math.min(Math.max(from, 0), this.model.length - span);
      this.to = this.from + span;
      this.canvas.dataset.from = String(this.from);
      this.canvas.dataset.to = String(this.to);
      this.remember("at", this.from === this.home[0] && this.to === this.home[1] ? "" : `${Math.round(this.from)}:${Math.round(this.to)}`);
      this.draw();
      const { twin } = this; // a timeline that is looked at beside this one
      if (twin && (twin.from !== this.from || twin.to !== this.to)) twin.show(this.from, this.to);
    }

    // The boxes of a row: finer ones where they are here and hold the view, else those of the page.
    row(number, depth) {
      const { fine } = this;
      return (fine && fine.from <= this.from && fine.to >= this.to && fine.rows.get(`${number}.${depth}`)) || this.model.lanes[number].rows[depth];
    }

    // Ask for finer boxes where those that are here are coarser than a pixel; one question at a time, for the latest view.
    async refine(width) {
      if (!this.model.served || this.asking) return;
      const { fine } = this, pixel = (this.to - this.from) / width, half = (this.to - this.from) / 2;
      const wanted = this.lanes.filter(({ lane }) => !this.away(lane)).map(({ lane, number, folded }) => [number, plain(folded, lane)]);
      const holds = fine && fine.from <= this.from && fine.to >= this.to && wanted.every(([number, rows]) => fine.rows.has(`${number}.${rows - 1}`));
      if (holds && (fine.whole || fine.pixel <= pixel)) return;
      this.asking = true;
      const from = Math.max(Math.floor(this.from - half), 0), to = Math.min(Math.ceil(this.to + half), this.model.length);
      try {
        this.fine = await this.model.tile(wanted, from, to, pixel);
        this.asking = false;
        this.canvas.dataset.tile = String(this.fine.whole ? 0 : pixel);
        this.draw();
      } catch (error) {
        this.say(`This is coarse, as finer boxes did not come: ${error.message}.`);
        setTimeout(() => { this.asking = false; }, 2000);
      }
    }

    choose(by) {
      do this.lane = (this.lane + by + this.lanes.length) % this.lanes.length; while (this.away(this.lanes[this.lane].lane));
      const { lane } = this.lanes[this.lane];
      const events = lane.rows.reduce((sum, row) => sum + row.count.reduce((a, b) => a + b, 0), 0);
      this.say(`lane ${lane.label}, ${events} events`);
      this.draw();
    }

    away(lane) { return this.place.ranks && !this.threads && lane.device === null && lane.rank !== this.model.firstRank && lane.kind !== "ranks"; }

    fold(place) {
      this.lanes[place].folded = !this.lanes[place].folded;
      this.draw();
    }

    // The next event of the lane in order of time, whatever row it is in.
    step(by) {
      const { number, lane } = this.lanes[this.lane], { pick } = this, now = pick && pick.lane === number ? pick.start : null;
      let best = null;
      lane.rows.forEach((_, depth) => {
        const row = this.row(number, depth);
        let at = by > 0 ? 0 : row.n - 1;
        if (now !== null) {
          at = Capture.after(row, now) + (by > 0 ? 0 : -1);
          while (at >= 0 && at < row.n && (by > 0 ? row.start[at] < now || (row.start[at] === now && depth <= pick.depth) : row.start[at] > now || (row.start[at] === now && depth >= pick.depth))) at += by;
          if (by < 0 && at + 1 < row.n && row.start[at + 1] < now) at += 1;
        }
        if (at < 0 || at >= row.n) return;
        const better = best === null || (row.start[at] - best.start || depth - best.depth) * by < 0;
        if (better) best = Capture.eventOf(row, number, depth, at);
      });
      if (best) this.select(best);
    }

    async select(event) {
      this.pick = event;
      this.linkedTo = null;
      const { start, end } = event;
      if (start < this.from || end > this.to) {
        const span = Math.min(Math.max(this.to - this.from, (end - start) * 1.2), this.model.length);
        this.show((start + end - span) / 2, (start + end + span) / 2);
      }
      const place = this.lanes.findIndex(({ number }) => number === event.lane);
      if (place >= 0) {
        this.lane = place;
        if (event.depth > 0) this.lanes[place].folded = false;
        if (this.away(this.lanes[place].lane)) this.threads = true;
      }
      this.say(this.words(event));
      this.draw();
      const linked = await this.model.around(event);
      if (this.pick !== event) return;
      this.linkedTo = linked;
      this.say(this.words(event), this.linked(event));
      this.draw();
    }

    async find() {
      const asked = this.query.value, found = await this.model.search(asked);
      if (asked !== this.query.value) return;
      this.remember("find", asked);
      this.hits = found.hits;
      this.matches = found;
      this.hit = -1;
      this.found.textContent = asked.trim() ? this.counted() : "";
      if (this.hits.length) this.next(1);
    }

    // How many events have the name, and in how many boxes they are.
    counted() {
      const { events, hits, unseen } = this.matches, boxes = hits.length === events ? "" : `, ${events.toLocaleString("en")} events`;
      return `${this.hit < 0 ? `${hits.length} found` : `${this.hit + 1} of ${hits.length}`}${boxes}${unseen ? ` (${unseen.toLocaleString("en")} in deep rows are not searched)` : ""}`;
    }

    next(by) {
      if (!this.hits.length) return;
      this.hit = (this.hit + by + this.hits.length) % this.hits.length;
      this.found.textContent = this.counted();
      this.select(this.hits[this.hit]);
    }

    when(time) { return timeText(time + this.model.offset); }

    say(text, links = []) {
      this.picked.replaceChildren(text, ...links);
    }

    words(event) {
      const { start, end, count, busy, name, detail } = event, { model } = this, lasting = timeText(end - start);
      const from = `from ${this.when(start)}`;
      if (model.lanes[event.lane].kind === "ranks") return `${model.texts[name]}: GPUs busy for ${Number(((100 * busy) / (end - start)).toPrecision(3))} % of ${lasting}, ${from}`;
      const mixed = model.mix(event), most = mixed.slice(0, 4).map(([one, times]) => `${times} × ${one}`).join(", ") + (mixed.length > 4 ? `, ${mixed.length - 4} more names` : "");
      if (count > 1) return `${name < 0 ? "" : `${model.name(event)}: `}${count} short events, busy for ${timeText(busy)} of ${lasting}, ${from}${most ? `: ${most}` : ""}`;
      const full = name >= 0 && model.short[name] ? ` (${model.texts[name]})` : "";
      const more = detail < 0 ? "" : `, ${model.texts[detail]}`;
      return `${model.name(event)}${full}${more}: ${lasting}, ${from}`;
    }

    // What caused the selected event, what it caused and what it is in, as buttons that go there.
    linked(event) {
      const { model } = this, { kind } = model.lanes[event.lane], { cause, effects, inside } = this.linkedTo, found = [];
      const add = (text, other) => found.push(Capture.button(`${text} ${model.name(other)}`, "", () => this.select(other), "link"));
      if (kind === "finding") {
        const link = made("a", "", "to the finding"), place = `finding-${parseInt(model.texts[event.name].slice(8), 10)}`;
        link.href = `#${place}`;
        return document.getElementById(place) ? [link] : [];
      }
      if (cause) add(kind === "stream" ? "launched by" : "backward of", cause);
      inside.forEach((other) => add("in", other));
      effects.slice(0, 3).forEach((effect) => add(model.lanes[effect.lane].kind === "stream" ? "launched" : "backward", effect));
      return found;
    }

    async account(from, to) {
      this.area = this.interval && from === this.interval[0] ? this.area : null;
      this.interval = [from, to];
      const { model } = this, device = this.place.device || model.lanes.filter((lane) => lane.kind === "stream").map((lane) => [lane.rank, lane.device])[0];
      if (!device) return;
      const { times, causes, kernels, joined } = await model.budget(...device, from, to), span = to - from;
      const share = (ns) => `${Number(((100 * ns) / span).toPrecision(3))} %`;
      const rows = [["compute", times.compute], ["exposed communication", times.communication], ["exposed copies", times.copy], ["idle", times.idle], ...causes.map(([cause, ns]) => [`idle: ${cause}`, ns])];
      const table = made("table", "legend");
      table.append(made("caption", "", `GPU ${device[1]} of rank ${device[0]}, ${timeText(span)} from ${this.when(from)}${joined ? " (about: short events are joined)" : ""}`));
      const line = (name, ns, more) => {
        const row = table.insertRow();
        const head = made("th", "", name);
        head.scope = "row";
        row.append(head, made("td", "figure", timeText(ns)), made("td", "figure", more));
        row.dataset.ns = String(ns);
      };
      rows.filter(([, ns]) => ns > 0).forEach(([name, ns]) => line(name, ns, share(ns)));
      kernels.forEach(([name, ns, count]) => line(name, ns, `${count} times`));
      const cut = (time) => `${(Math.max(time + model.offset, 0) / 1e6).toFixed(6)}ms`;
      const more = made("p", "quiet", "the same, and more: ");
      more.append(made("code", "", `timesink show TRACE --window ${cut(from)}:${cut(to)}`), made("br"), "in Perfetto: ", made("code", "", `timesink report --open TRACE --at ${cut(from)}:${cut(to)}`));
      this.table.replaceChildren(table, ...this.inLanes(from, to), more);
      this.draw();
    }

    // What each lane of the area holds: how many events, how long its outermost ones run in it, and the costliest of these.
    inLanes(from, to) {
      if (!this.area) return [];
      const [high, low] = this.area, { tops } = this.laid(), table = made("table", "lanes");
      table.append(made("caption", "", "In each lane"));
      const head = table.createTHead().insertRow();
      for (const [text, className] of [["lane", ""], ["events", "figure"], ["busy", "figure"], ["most time", ""]]) { const cell = made("th", className, text); cell.scope = "col"; head.append(cell); }
      const body = table.createTBody();
      this.lanes.forEach(({ lane, number, folded }, place) => {
        if (lane.kind === "ranks" || tops[place] < 0 || tops[place] > low || tops[place] + LABEL + plain(folded, lane) * tall(lane) < high) return;
        let events = 0, busy = 0;
        const names = new Map();
        lane.rows.forEach((_, depth) => {
          const row = this.row(number, depth);
          for (let at = Capture.after(row, from); at < row.n && row.start[at] < to; at += 1) {
            events += row.count[at];
            if (depth) continue;
            const share = (row.busy[at] / Math.max(row.end[at] - row.start[at], 1)) * (Math.min(row.end[at], to) - Math.max(row.start[at], from)), name = this.model.name({ name: row.name[at] });
            busy += share;
            names.set(name, (names.get(name) || 0) + share);
          }
        });
        const most = [...names].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, ns]) => `${name} ${timeText(ns)}`).join(", "), row = body.insertRow();
        row.append(made("td", "", lane.label), made("td", "figure", events.toLocaleString("en")), made("td", "figure", timeText(busy)), made("td", "", most));
      });
      return [table];
    }

    // The tops of the lanes that are shown, and the height of all. A lane that is put away has no height.
    laid() {
      let y = AXIS;
      const tops = this.lanes.map(({ lane, folded }) => { if (this.away(lane)) return -1e6; const top = y; y += LABEL + plain(folded, lane) * tall(lane) + GAP; return top; });
      return { tops, height: y + 2 };
    }

    at(x, y) {
      const { tops } = this.laid();
      const time = this.from + (x / this.canvas.clientWidth) * (this.to - this.from);
      const reach = (1.5 / this.canvas.clientWidth) * (this.to - this.from);
      for (const [place, top] of tops.entries()) {
        const { lane, number, folded } = this.lanes[place], depth = Math.floor((y - top - LABEL) / tall(lane));
        if (depth < 0 || depth >= (folded ? 1 : lane.rows.length)) continue;
        const row = this.row(number, depth), at = Capture.after(row, time - reach);
        if (at < row.n && row.start[at] <= time + reach) return Capture.eventOf(row, number, depth, at);
      }
      return null;
    }

    labelAt(y) { return this.laid().tops.findIndex((top) => y >= top && y < top + LABEL); }

    click(x, y) {
      const label = this.labelAt(y), event = this.at(x, y);
      if (label >= 0 && x > this.canvas.clientWidth - PIN) this.pin(label);
      else if (label >= 0) { this.lane = label; this.fold(label); } else if (event) this.select(event); else { this.pick = null; this.say(""); this.draw(); }
    }

    hover(x, y) {
      const found = this.at(x, y);
      this.tip.hidden = !found;
      if (!found) return;
      this.tip.textContent = this.words(found);
      const left = Math.min(x + 12, Math.max(this.canvas.clientWidth - 260, 0));
      this.tip.style.left = `${this.canvas.offsetLeft + left}px`;
      this.tip.style.top = `${this.canvas.offsetTop + y + 16}px`;
    }

    draw() {
      if (!due.size) requestAnimationFrame(paintDue);
      due.add(this);
    }

    // As wide as said, with the map of the whole; on paper there is none.
    paint(colour, width, mini) {
      const { canvas } = this, paper = mini === undefined;
      this.width = width;
      if (!width) return;
      const { tops, height } = this.laid();
      canvas.dataset.tops = JSON.stringify(Object.fromEntries(this.lanes.map(({ number }, place) => [number, tops[place] + LABEL])));
      const kinds = colours(this.model, colour), pen = sized(canvas, width, height);
      const scale = width / (this.to - this.from), x = (time) => (time - this.from) * scale;
      this.axis(pen, x, colour, width, height);
      pen.fillStyle = colour("--band");
      const band = this.place.band ? this.model.lanes[this.place.band[0]].rows[this.place.band[1]] : { n: 0, end: [] };
      for (let at = Capture.after(band, this.from); at < band.n && band.start[at] < this.to; at += 1) pen.fillRect(x(band.start[at]), AXIS, Math.max((band.end[at] - band.start[at]) * scale, 0.5), height - AXIS);
      if (this.interval) pen.fillRect(x(this.interval[0]), 0, (this.interval[1] - this.interval[0]) * scale, AXIS);
      if (this.interval && this.area) pen.fillRect(x(this.interval[0]), this.area[0], (this.interval[1] - this.interval[0]) * scale, this.area[1] - this.area[0]);
      const boxes = new Map();
      this.lanes.forEach(({ lane, number, folded, pinned }, place) => {
        if (tops[place] < 0) return;
        const high = tall(lane);
        lane.rows.slice(0, folded ? 1 : lane.rows.length).forEach((_, depth) => {
          const row = this.row(number, depth), top = tops[place] + LABEL + depth * high;
          const texts = [];
          drawRow(pen, row, { from: this.from, to: this.to, width, top, height: high > 6 ? high - 2 : high, kinds, paper: colour("--bg") }, (at, left, wide, alpha) => { if (wide > 34 && lane.kind !== "ranks") texts.push([at, left, wide, alpha]); });
          for (const [at, left, wide, alpha] of texts) this.label(pen, this.model.name({ name: row.name[at] }), left + 3, top + ROW / 2 - 1, wide - 6, Capture.inkOn(colour("--bg"), [kinds[row.kind[at]], alpha]));
        });
        if (lane.kind === "ranks" && !folded) this.numbered(pen, lane, tops[place] + LABEL, colour);
        boxes.set(number, tops[place] + LABEL);
        pen.fillStyle = colour(place === this.lane && document.activeElement === canvas ? "--accent" : "--quiet");
        const deep = lane.rows.length > 1 ? (folded ? `▸ ${lane.rows.length} rows: ` : "▾ ") : "";
        pen.fillText(`${this.place.ranks && lane.rank >= 0 ? `rank ${lane.rank}, ` : ""}${deep}${lane.label}`, 4, tops[place] + LABEL / 2);
        if (this.place.searches && !paper) pen.fillText(pinned ? "unpin" : "pin", width - PIN + 8, tops[place] + LABEL / 2);
      });
      this.mark(pen, x, boxes, colour, width);
      if (!paper) this.refine(width);
      if (mini) this.overview(colour, kinds, mini);
    }

    // Which rank a strip is of, on every strip that is some lines below the last such number.
    numbered(pen, lane, top, colour) {
      const every = Math.ceil(60 / tall(lane));
      for (let depth = 0; depth < lane.rows.length; depth += every) {
        const row = lane.rows[depth], text = row.n ? this.model.texts[row.name[0]] : "";
        pen.fillStyle = colour("--bg");
        pen.fillRect(2, top + depth * tall(lane), pen.measureText(text).width + 6, 13);
        pen.fillStyle = colour("--ink");
        pen.fillText(text, 5, top + depth * tall(lane) + 7);
      }
    }

    // The selected event in a frame, and lines to what caused it and what it caused.
    mark(pen, x, boxes, colour, width) {
      if (!this.pick) return;
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 2;
      const box = (event) => {
        const top = boxes.get(event.lane), high = tall(this.model.lanes[event.lane]);
        return top === undefined ? null : { left: x(event.start), right: Math.max(x(event.end), x(event.start) + 3), top: top + event.depth * high, high };
      };
      const own = box(this.pick);
      if (!own) return;
      pen.strokeRect(Math.max(own.left, 0), own.top, Math.min(own.right, width) - Math.max(own.left, 0), own.high - 2);
      pen.lineWidth = 1;
      const { cause, effects } = this.linkedTo || { cause: null, effects: [] };
      for (const other of cause ? [cause, ...effects] : effects) {
        const end = box(other);
        if (!end) continue;
        pen.beginPath();
        pen.moveTo(own.left, own.top + own.high / 2);
        pen.lineTo(end.left, end.top + end.high / 2);
        pen.stroke();
        if (!same(other, this.pick)) pen.strokeRect(end.left, end.top, end.right - end.left, end.high - 2);
      }
    }

    // The streams of the whole capture, drawn once, with a frame around what is shown.
    overview(colour, kinds, width) {
      if (!this.backdrop || this.backdrop.width !== width) {
        this.backdrop = document.createElement("canvas");
        this.backdrop.width = width;
        this.backdrop.height = MINI;
        const pen = this.backdrop.getContext("2d"), first = this.model.lanes.find((lane) => lane.kind === "stream");
        const lanes = this.model.lanes.filter((lane) => first && (lane.kind === "stream" || lane.kind === "idle") && lane.rank === first.rank && lane.device === first.device);
        for (const lane of lanes) for (const row of lane.rows) drawRow(pen, row, { from: 0, to: this.model.length, width, top: lane.kind === "idle" ? MINI / 2 : 2, height: MINI / 2 - 4, kinds, paper: colour("--bg") }, () => {});
      }
      const pen = sized(this.mini, width, MINI), scale = width / this.model.length;
      pen.drawImage(this.backdrop, 0, 0);
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 1.5;
      pen.strokeRect(this.from * scale + 0.75, 0.75, Math.max((this.to - this.from) * scale - 1.5, 2), MINI - 1.5);
    }

    label(pen, text, left, middle, room, ink) {
      const fits = Math.floor(room / 6);
      if (fits < 3) return;
      pen.fillStyle = ink;
      pen.save();
      pen.beginPath();
      pen.rect(left, middle - ROW / 2, room, ROW);
      pen.clip();
      pen.fillText(text.length > fits ? `${text.slice(0, fits - 1)}…` : text, left, middle);
      pen.restore();
    }

    axis(pen, x, colour, width, height) {
      const rough = ((this.to - this.from) / Math.max(width, 1)) * 110;
      const power = 10 ** Math.floor(Math.log10(rough));
      const every = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
      pen.strokeStyle = colour("--line");
      pen.fillStyle = colour("--quiet");
      pen.lineWidth = 1;
      const { offset } = this.model;
      for (let time = Math.ceil((this.from + offset) / every) * every - offset; time <= this.to; time += every) {
        pen.beginPath();
        pen.moveTo(x(time) + 0.5, 0);
        pen.lineTo(x(time) + 0.5, height);
        pen.stroke();
        pen.fillText(this.when(time), x(time) + 3, AXIS / 2);
      }
    }
  }

  const legend = (figure, model) => {
    const list = made("ul", "kinds");
    for (const kind of Object.keys(WORDS).filter((name) => model.kinds.includes(name))) {
      const item = made("li", "", WORDS[kind]), swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg"), box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      swatch.setAttribute("class", "swatch");
      swatch.setAttribute("viewBox", "0 0 10 10");
      swatch.setAttribute("aria-hidden", "true");
      box.setAttribute("class", `k-${kind}`);
      box.setAttribute("width", "10");
      box.setAttribute("height", "10");
      swatch.append(box);
      item.prepend(swatch);
      list.append(item);
    }
    figure.append(list);
  };

  const begin = (capture, figures) => Capture.open(capture.content.textContent, capture.hasAttribute("data-live")).then((model) => {
    const ranks = new Set(model.lanes.filter((lane) => lane.rank >= 0).map((lane) => lane.rank)).size > 1;
    let whole = null;
    for (const figure of figures) {
      const window_ = data.windows[figure.dataset.window];
      if (window_) {
        const mine = (number) => { const lane = model.lanes[number]; return lane.rank === window_.rank && (lane.device === null || lane.device === window_.device) && lane.kind !== "finding" && lane.kind !== "ranks"; };
        new Timeline(figure, model, {
          ...window_, ranks: false, device: [window_.rank, window_.device], band: window_.lane < 0 ? null : [window_.lane, window_.row], shows: mine, searches: false,
          folded: (lane) => lane.rows.length > 4, elsewhere: (from, to) => { whole.show(from, to); whole.figure.scrollIntoView({ block: "nearest" }); whole.canvas.focus({ preventScroll: true }); },
        });
      } else {
        legend(figure, model);
        whole = new Timeline(figure, model, { from: model.zero, to: model.length, ranks, shows: () => true, searches: true, folded: (lane) => lane.rows.length > 1 && lane.kind !== "ranks" && (lane.kind === "op" || lane.rank !== model.firstRank) });
      }
    }
    document.addEventListener("timesink-step", ({ detail }) => {
      const lane = model.lanes.findIndex((one) => one.kind === "step" && one.rank === detail.rank), rows = lane < 0 ? [] : model.lanes[lane].rows;
      for (const row of rows) for (let at = 0; at < row.n; at += 1) if (model.texts[row.name[at]] === detail.step && whole) {
        whole.show(row.start[at], row.end[at]);
        whole.figure.scrollIntoView({ block: "nearest" });
      }
    });
    return whole;
  });
  // A page that came before its findings: where they are, once they are there.
  const awaits = document.querySelector("[data-awaits]");
  const ask = async () => {
    const { report, failed } = await (await fetch("ready", { cache: "no-store" })).json(), link = made("a", "", "Show the report with its findings");
    link.href = report;
    if (report || failed) awaits.replaceChildren(report ? link : failed); else setTimeout(ask, 1000);
  };
  if (awaits) ask().catch(() => awaits.remove());
  const captures = [...new Set(figures.map(captureOf))];
  const shown = Promise.all(captures.map((capture) => begin(capture, figures.filter((figure) => captureOf(figure) === capture)))).then((lines) => {
    if (lines.length === 2) [lines[0].twin, lines[1].twin] = [lines[1], lines[0]];
  });
  first.push(shown);
  shown.catch((error) => { for (const figure of figures) figure.append(made("p", "quiet", `This browser cannot unpack the timeline (${error.message}): the tables below hold the same figures.`)); });
})();
