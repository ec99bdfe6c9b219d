"use strict";
// Flame graphs, the caller above what it calls. A click or Enter makes a box the whole width; the outermost goes back.
(() => {
  const store = document.getElementById("flames");
  if (!store) return;
  const { made, timeText } = Capture, ROW = 18, LEAST = 0.4, FIRST = 10;
  const HUES = ["--k-product", "--k-pointwise", "--k-reduction", "--k-attention", "--k-host2", "--k-host3", "--k-copy", "--k-kernel"];
  const hueOf = (name) => { let sum = 7; for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) % 9973; return sum % HUES.length; };

  class Flame {
    constructor(figure, tree) {
      Object.assign(this, { figure, tree, root: -1, found: null, at: -1, all: false, boxes: [] });
      this.children = tree.names.map(() => []);
      this.roots = [];
      tree.parent.forEach((above, node) => (above < 0 ? this.roots : this.children[above]).push(node));
      for (const some of [this.roots, ...this.children]) some.sort((a, b) => tree.total[b] - tree.total[a] || a - b);
      this.whole = this.roots.reduce((sum, node) => sum + tree.total[node], 0);
      this.build();
      this.draw();
    }

    build() {
      const tools = made("div", "tools"), button = (text, label, act) => {
        const node = made("button", "", text);
        node.type = "button";
        node.setAttribute("aria-label", label);
        node.addEventListener("click", act);
        tools.append(node);
      };
      button("reset", "show the whole graph", () => this.zoom(-1));
      button("all rows", "show all rows, or the first", () => { this.all = !this.all; this.draw(); });
      this.query = made("input");
      this.query.type = "search";
      this.query.placeholder = "search names";
      this.query.setAttribute("aria-label", "search names of this graph");
      this.query.addEventListener("input", () => this.search());
      this.share = made("output", "found");
      tools.append(this.query, this.share, made("span", "", "a click zooms; keys: ↑ ↓ ← → choose a box, Enter zooms, 0 goes back"));
      this.canvas = made("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", "Flame graph; a table below lists its costliest paths. Arrow keys choose a box, Enter makes it the whole width.");
      this.told = made("output", "picked");
      this.figure.append(tools, this.canvas, this.told);
      const at = (event) => this.boxes.find(({ left, wide, top }) => event.offsetX >= left && event.offsetX < left + wide && event.offsetY >= top && event.offsetY < top + ROW);
      this.canvas.addEventListener("mousemove", (event) => { const box = at(event); if (box) this.say(box.node); });
      this.canvas.addEventListener("click", (event) => { const box = at(event); if (box) this.zoom(box.node); });
      this.canvas.addEventListener("keydown", (event) => {
        const acts = { ArrowDown: () => this.go(1, 0), ArrowUp: () => this.go(-1, 0), ArrowLeft: () => this.go(0, -1), ArrowRight: () => this.go(0, 1), Enter: () => this.zoom(this.at), "0": () => this.zoom(-1) };
        if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
        event.preventDefault();
        acts[event.key]();
      });
      let width = 0;
      new ResizeObserver(() => { if (this.canvas.clientWidth !== width) { width = this.canvas.clientWidth; this.draw(); } }).observe(this.canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
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
      const own = this.tree.total[node] - this.children[node].reduce((sum, child) => sum + this.tree.total[child], 0);
      const share = Number(((100 * this.tree.total[node]) / this.whole).toPrecision(3));
      this.told.textContent = `${names.join(" › ")}: ${timeText(this.tree.total[node])}, ${share} %${own ? `, ${timeText(own)} by itself` : ""}`;
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
      this.share.textContent = this.found ? `${Number(((100 * sum) / this.whole).toPrecision(3))} %, ${timeText(sum)}` : "";
      this.draw();
    }

    // Boxes of what is wide enough to be seen, the ancestors of the zoomed one over the whole width.
    place(width) {
      const boxes = [], above = [];
      for (let at = this.root < 0 ? -1 : this.tree.parent[this.root]; at >= 0; at = this.tree.parent[at]) above.unshift(at);
      above.forEach((node, row) => boxes.push({ node, left: 0, wide: width, row }));
      const whole = this.root < 0 ? this.whole : this.tree.total[this.root];
      const put = (nodes, left, row) => {
        let x = left;
        for (const node of nodes) {
          const wide = (this.tree.total[node] / whole) * width;
          if (wide >= LEAST) { boxes.push({ node, left: x, wide, row }); put(this.children[node], x, row + 1); }
          x += wide;
        }
      };
      put(this.root < 0 ? this.roots : [this.root], 0, above.length);
      return boxes;
    }

    draw() {
      const { canvas } = this, width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
      if (!width) return;
      const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
      const boxes = this.place(width), deep = boxes.reduce((most, { row }) => Math.max(most, row + 1), 1), rows = this.all ? deep : Math.min(deep, FIRST);
      this.boxes = boxes.filter(({ row }) => row < rows).map((box) => ({ ...box, top: box.row * ROW }));
      const height = rows * ROW + 2;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      canvas.dataset.rows = `${rows} of ${deep}`;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      for (const { node, left, wide, top } of this.boxes) {
        pen.globalAlpha = this.found && !this.found[node] ? 0.3 : 1;
        pen.fillStyle = colour(HUES[hueOf(this.tree.names[node])]);
        pen.fillRect(left, top, Math.max(wide - (wide > 3 ? 0.8 : 0), 0.5), ROW - 1);
        pen.globalAlpha = 1;
        if (node === this.at) { pen.strokeStyle = colour("--ink"); pen.lineWidth = 2; pen.strokeRect(left + 1, top + 1, Math.max(wide - 2, 1), ROW - 3); }
        const fits = Math.floor((wide - 6) / 6), name = this.tree.names[node];
        if (fits < 3) continue;
        pen.fillStyle = colour("--box-ink");
        pen.fillText(name.length > fits ? `${name.slice(0, fits - 1)}…` : name, left + 3, top + ROW / 2);
      }
    }
  }

  Capture.unpacked(store.content.textContent).then((trees) => {
    for (const figure of document.querySelectorAll("figure.flame")) new Flame(figure, trees[figure.dataset.flame]);
  }).catch((error) => { for (const figure of document.querySelectorAll("figure.flame")) figure.append(made("p", "quiet", `This browser cannot unpack the graph (${error.message}): the table below holds its costliest paths.`)); });
})();
