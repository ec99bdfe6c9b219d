"use strict";
// `later` draws what stands below the timelines: once these, the `first`, are there and the browser has time, or a second passed.
const first = [], later = (draw) => Promise.allSettled(first).then(() => (window.requestIdleCallback || setTimeout)(() => draw(), { timeout: 1000 }));
// Pictures made on the server: what a pointer is over, and what the arrow keys choose, is told below the picture.
(() => {
  for (const figure of document.querySelectorAll("figure.picture")) {
    const marks = [...figure.querySelectorAll("title")].map((title) => title.parentElement);
    if (!marks.length) continue;
    const told = document.createElement("output");
    let at = -1;
    told.className = "picked";
    told.textContent = "Hover, or use the arrow keys, for details";
    figure.after(told);
    const show = (next) => {
      if (at >= 0) marks[at].classList.remove("on");
      at = next;
      marks[at].classList.add("on");
      told.textContent = marks[at].querySelector("title").textContent;
    };
    figure.addEventListener("pointerover", (event) => { const next = marks.indexOf(event.target); if (next >= 0) show(next); });
    figure.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      show((at + by + marks.length) % marks.length);
    });
  }
})();
