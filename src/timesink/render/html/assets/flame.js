"use strict";
// Trees of times: flame graphs (the caller above what it calls), a map of areas, and flame graphs of a change. A click or
// Enter makes a box the whole picture; the outermost goes back.
(() => {
  const store = document.getElementById("flames");
  if (!store) return;
  const { made, timeText } = Capture, ROW = 18, LEAST = 0.4, FIRST = 10, MOST_TALL = 420, SHAPE = 0.5, FAINTEST = 0.15, SLIGHT = 0.01;
  const HUES = ["--k-op", "--k-range", "--k-host2", "--k-gpu2", "--k-call", "--k-step"];
  const FRAMES = ["--k-op", "--k-step", "--k-gpu2"];
  const hueOf = (name) => { let sum = 7; for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) % 9973; return sum % HUES.length; };
  const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;

  class Flame {
    constructor(figure, tree) {
      Object.assign(this, { figure, found: null, all: false, boxes: [] });
      this.plant(tree);
      this.build();
      this.draw();
    }

    plant(tree) {
      Object.assign(this, { tree, root: -1, at: -1 });
      this.children = tree.names.map(() => []);
      this.roots = [];
      tree.parent.forEach((above, node) => (above < 0 ? this.roots : this.children[above]).push(node));
      this.weigh();
      for (const some of [this.roots, ...this.children]) some.sort((a, b) => tree.total[b] - tree.total[a] || a - b);
      this.whole = this.roots.reduce((sum, node) => sum + tree.total[node], 0);
    }

    // The same time from below: what spent it by itself stands first, and who called it below that.
    turn() {
      const { tree } = this, names = [], parent = [], total = [], known = new Map();
      const grow = (above, name, by) => {
        const key = `${above} ${name}`;
        if (!known.has(key)) { known.set(key, names.length); names.push(name); parent.push(above); total.push(0); }
        total[known.get(key)] += by;
        return known.get(key);
      };
      tree.names.forEach((_, node) => {
        const own = this.own(node);
        for (let at = node, above = -1; own > 0 && at >= 0; at = tree.parent[at]) above = grow(above, tree.names[at], own);
      });
      return { names, parent, total, kinds: tree.kinds, turned: tree };
    }

    weigh() {}
    folds() { return true; }
    hint() { return "Flame graph; a table below lists its costliest paths. Arrow keys choose a box, Enter makes it the whole width."; }
    own(node) { return this.tree.total[node] - this.children[node].reduce((sum, child) => sum + this.tree.total[child], 0); }

    build() {
      const tools = made("div", "tools"), button = (...given) => tools.append(Capture.button(...given));
      button("reset", "show the whole graph", () => this.zoom(-1));
      if (this.folds()) button("all rows", "show all rows, or the first", () => { this.all = !this.all; this.draw(); });
      if (this.constructor === Flame) button("callers", "what spent the time by itself, with its callers below; or callers first", () => { this.plant(this.tree.turned || this.turn()); this.search(); });
      this.query = Capture.searchField("search names of this graph", () => this.search());
      this.share = made("output", "found");
      tools.append(this.query, this.share);
      Capture.keys(tools, "a click zooms; keys: ↑ ↓ ← → choose a box, Enter zooms, 0 or Escape goes back");
      this.canvas = Capture.picture(this.hint());
      this.canvas.tabIndex = 0;
      this.told = made("output", "picked");
      this.figure.append(tools, this.canvas, this.told);
      const at = (event) => this.boxes.findLast(({ left, wide, top, tall }) => event.offsetX >= left && event.offsetX < left + wide && event.offsetY >= top && event.offsetY < top + tall);
      this.canvas.addEventListener("mousemove", (event) => { const box = at(event); if (box) this.say(box.node); });
      this.canvas.addEventListener("click", (event) => { const box = at(event); if (box) this.zoom(box.node); });
      Capture.onKeys(this.canvas, { ArrowDown: () => this.go(1, 0), ArrowUp: () => this.go(-1, 0), ArrowLeft: () => this.go(0, -1), ArrowRight: () => this.go(0, 1), Enter: () => this.zoom(this.at), "0": () => this.zoom(-1), Escape: () => this.zoom(-1) });
      new ResizeObserver(() => { if (this.canvas.clientWidth !== this.width) this.draw(); }).observe(this.canvas);
      View.themed(() => this.draw());
    }

    beside(node) { const above = this.tree.parent[node]; return above < 0 ? this.roots : this.children[above]; }

    go(down, right) {
      let next = this.at < 0 ? this.roots[0] : this.at;
      if (this.at >= 0 && down > 0) next = this.children[this.at].length ? this.children[this.at][0] : this.at;
      if (this.at >= 0 && down < 0) next = Math.max(this.tree.parent[this.at], -1) < 0 ? this.at : this.tree.parent[this.at];
      if (this.at >= 0 && right) { const row = this.beside(this.at); next = row[Math.min(Math.max(row.indexOf(this.at) + right, 0), row.length - 1)]; }
      this.at = next;
      this.say(next);
      this.draw();
    }

    zoom(node) {
      this.root = node === this.root ? -1 : node;
      this.canvas.dataset.root = node < 0 ? "" : this.tree.names[node];
      if (node >= 0) this.say(node);
      this.draw();
    }

    say(node) {
      const names = [];
      for (let at = node; at >= 0; at = this.tree.parent[at]) names.unshift(this.tree.names[at]);
      this.told.textContent = `${names.join(" › ")}: ${this.words(node)}`;
    }

    words(node) {
      const own = this.own(node);
      return `${timeText(this.tree.total[node])}, ${percent(this.tree.total[node] / this.whole)}${own ? `, ${timeText(own)} by itself` : ""}`;
    }

    // Time of what matches counts once, however deep it is nested in itself.
    search() {
      const wanted = this.query.value.trim().toLowerCase();
      this.found = wanted ? this.tree.names.map((name) => name.toLowerCase().includes(wanted)) : null;
      let sum = 0;
      if (this.found) this.tree.names.forEach((_, node) => {
        let inside = false;
        for (let at = this.tree.parent[node]; at >= 0; at = this.tree.parent[at]) inside = inside || this.found[at];
        if (this.found[node] && !inside) sum += this.tree.total[node];
      });
      this.share.textContent = this.found ? `${percent(sum / this.whole)}, ${timeText(sum)}` : "";
      this.draw();
    }

    path(node) {
      const above = [];
      for (let at = node; at >= 0; at = this.tree.parent[at]) above.unshift(at);
      return above;
    }

    // Boxes of what is wide enough to be seen, the ancestors of the zoomed one over the whole width; and their height.
    place(width) {
      const boxes = [], above = this.root < 0 ? [] : this.path(this.tree.parent[this.root]), whole = this.root < 0 ? this.whole : this.tree.total[this.root];
      const add = (node, left, wide, row) => boxes.push({ node, left, wide, top: row * ROW, tall: ROW });
      above.forEach((node, row) => add(node, 0, width, row));
      const put = (nodes, left, row) => {
        let x = left;
        for (const node of nodes) {
          const wide = (this.tree.total[node] / whole) * width;
          if (wide >= LEAST) { add(node, x, wide, row); put(this.children[node], x, row + 1); }
          x += wide;
        }
      };
      put(this.root < 0 ? this.roots : [this.root], 0, above.length);
      const deep = boxes.reduce((most, { top }) => Math.max(most, top / ROW + 1), 1), rows = this.all ? deep : Math.min(deep, FIRST);
      this.canvas.dataset.rows = `${rows} of ${deep}`;
      return { boxes: boxes.filter(({ top }) => top < rows * ROW), height: rows * ROW + 2 };
    }

    // The colour of a box, and how strong it is.
    paint(node) { const kind = this.tree.kinds[this.tree.names[node]]; return [kind && !this.children[node].length ? `--k-${kind}` : HUES[hueOf(this.tree.names[node])], 1]; }

    draw() {
      const { canvas } = this, width = canvas.clientWidth;
      this.width = width;
      if (!width) return;
      const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
      const { boxes, height } = this.place(width);
      this.boxes = canvas.boxes = boxes;
      const pen = Capture.sized(canvas, width, height);
      for (const { node, left, wide, top, tall } of boxes) {
        const [name, strength] = this.paint(node), edge = wide > 3 ? 0.8 : 0, box = [left, top, Math.max(wide - edge, 0.5), Math.max(tall - (tall > 3 ? 1 : 0), 0.5)];
        const faint = this.found && !this.found[node] ? 0.3 : 1;
        const layers = [...(strength < 1 ? [[colour("--k-step"), faint]] : []), [colour(name), faint * strength]];
        for (const [fill, alpha] of layers) { pen.globalAlpha = alpha; pen.fillStyle = fill; pen.fillRect(...box); }
        pen.globalAlpha = 1;
        if (node === this.at) { pen.strokeStyle = colour("--ink"); pen.lineWidth = 2; pen.strokeRect(left + 1, top + 1, Math.max(wide - 2, 1), Math.max(tall - 3, 1)); }
        const fits = Math.floor((wide - 6) / 6), text = this.tree.names[node];
        if (fits < 3 || tall < 12) continue;
        pen.fillStyle = Capture.inkOn(colour("--bg"), ...layers);
        pen.fillText(text.length > fits ? `${text.slice(0, fits - 1)}…` : text, left + 3, top + Math.min(tall, ROW) / 2);
      }
    }
  }

  // Areas within areas: each box as large as its time, with a row for its name where anything is in it.
  class Areas extends Flame {
    folds() { return false; }
    paint(node) { return this.children[node].length ? [FRAMES[this.path(node).length % FRAMES.length], 1] : super.paint(node); }
    hint() { return "Areas by module, operator and kernel; a table below lists the largest. Arrow keys choose a box, Enter makes it the whole picture."; }

    place(width) {
      const boxes = [], height = Math.round(Math.min(MOST_TALL, Math.max(width * SHAPE, 260)));
      const put = (nodes, left, top, wide, tall, whole) => {
        for (const box of this.squares(nodes, left, top, wide, tall, whole)) {
          boxes.push(box);
          const inside = this.children[box.node];
          if (inside.length && box.wide > 8 && box.tall > ROW + 6) put(inside, box.left + 2, box.top + ROW, box.wide - 4, box.tall - ROW - 2, this.tree.total[box.node]);
        }
      };
      const above = this.root < 0 ? [] : this.path(this.root);
      above.forEach((node, row) => boxes.push({ node, left: 0, wide: width, top: row * ROW, tall: row + 1 < above.length ? ROW : height - row * ROW }));
      if (this.root < 0) put(this.roots, 0, 0, width, height, this.whole);
      else if (this.children[this.root].length) put(this.children[this.root], 2, above.length * ROW, width - 4, height - above.length * ROW - 2, this.tree.total[this.root]);
      return { boxes, height };
    }

    // Rows of boxes along the shorter side, each row as long as its boxes get squarer. What `whole` has beyond them stays blank.
    squares(nodes, left, top, wide, tall, whole) {
      const boxes = [], scale = (wide * tall) / whole;
      let at = 0, x = left, y = top, w = wide, h = tall;
      while (at < nodes.length && w > 0.5 && h > 0.5) {
        const side = Math.min(w, h);
        let sum = 0, worst = Infinity, next = at;
        for (; next < nodes.length; next += 1) {
          const most = this.tree.total[nodes[at]] * scale, least = this.tree.total[nodes[next]] * scale, more = sum + least;
          const ratio = Math.max((side * side * most) / (more * more), (more * more) / (side * side * least));
          if (ratio > worst) break;
          [sum, worst] = [more, ratio];
        }
        const thick = sum / side;
        let along = 0;
        for (; at < next; at += 1) {
          const length = (this.tree.total[nodes[at]] * scale) / thick;
          boxes.push(w >= h ? { node: nodes[at], left: x, top: y + along, wide: thick, tall: length } : { node: nodes[at], left: x + along, top: y, wide: length, tall: thick });
          along += length;
        }
        if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
      }
      return boxes.filter((box) => box.wide >= LEAST && box.tall >= LEAST);
    }
  }

  // What changed: a box is as wide as the longer of both sides, of which nothing is left out; red took longer, blue less.
  class Change extends Flame {
    hint() { return "What changed by call path; a table below lists the largest changes. Arrow keys choose a box, Enter makes it the whole width."; }

    weigh() {
      const { tree } = this, own = (side, node) => Math.max(side[node] - this.children[node].reduce((sum, child) => sum + side[child], 0), 0);
      tree.total = tree.names.map((_, node) => Math.max(own(tree.before, node), own(tree.after, node)));
      for (let node = tree.names.length - 1; node >= 0; node -= 1) if (tree.parent[node] >= 0) tree.total[tree.parent[node]] += tree.total[node];
    }

    words(node) {
      const before = this.tree.before[node], after = this.tree.after[node], by = after - before;
      return `${timeText(before)} before, ${timeText(after)} after: ${by > 0 ? "+" : ""}${timeText(by)} per step${before ? ` (${by > 0 ? "+" : ""}${percent(by / before)})` : ", new"}`;
    }

    paint(node) {
      const by = (this.tree.after[node] - this.tree.before[node]) / this.tree.most;
      return [by > 0 ? "--slower" : "--faster", Math.abs(by) < SLIGHT ? 0 : Math.min(FAINTEST + (1 - FAINTEST) * Math.abs(by), 0.999)];
    }
  }

  const KINDS = { areas: Areas, change: Change };
  later(() => Capture.unpacked(store.content.textContent).then((trees) => {
    // The same strength is the same change in every graph of the page.
    const changed = Object.values(trees).filter((tree) => tree.before), change = (tree) => tree.names.reduce((most, _, node) => Math.max(most, Math.abs(tree.after[node] - tree.before[node])), 1);
    const most = Math.max(...changed.map(change), 1);
    for (const tree of changed) tree.most = most;
    for (const figure of document.querySelectorAll("figure.flame")) new (KINDS[figure.dataset.kind] || Flame)(figure, trees[figure.dataset.flame]);
  }).catch((error) => { for (const figure of document.querySelectorAll("figure.flame")) figure.append(made("p", "quiet", `This browser cannot unpack the graph (${error.message}): the table below holds its costliest paths.`)); }));
})();
