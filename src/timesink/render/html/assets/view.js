"use strict";
// What is open, in which place and colours, and what the drawings show: kept in the part of the address after #, so that
// a copied address shows the same view. `#plan&open=finding-1,areas&at=0:2000000&find=gemm`, times in ns.
const View = (() => {
  const root = document.documentElement, wanted = new Map(), listeners = [];
  let place = "";
  const read = () => {
    const [first, ...rest] = location.hash.slice(1).split("&");
    place = first;
    for (const part of rest) {
      const [key, value] = part.split("=");
      try { wanted.set(key, decodeURIComponent(value || "")); } catch { /* not ours */ }
    }
  };
  const write = () => {
    const parts = [...wanted].filter(([, value]) => value).map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    try { history.replaceState(null, "", place || parts.length ? `#${[place, ...parts].join("&")}` : location.pathname); } catch { /* a page without an address */ }
  };
  let due = 0;
  const set = (key, value) => { wanted.set(key, value); clearTimeout(due); due = setTimeout(write, 200); };
  const folds = [...document.querySelectorAll("details[id]")];
  const show = () => {
    const open = (wanted.get("open") || "").split(",");
    for (const fold of folds) if (open.includes(fold.id)) fold.open = true;
    const target = document.getElementById(place);
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView();
  };
  read();
  show();
  for (const fold of folds) fold.addEventListener("toggle", () => set("open", folds.filter((one) => one.open).map((one) => one.id).join(",")));
  window.addEventListener("hashchange", () => { read(); show(); listeners.forEach((act) => act()); write(); });
  // Light or dark, as the reader's system has it until a button says otherwise; `themed` draws anew when it changes.
  const dark = matchMedia("(prefers-color-scheme: dark)"), draws = [];
  const themed = (draw) => draws.push(draw);
  const turn = () => draws.forEach((draw) => draw());
  dark.addEventListener("change", turn);
  const list = document.querySelector("nav ul");
  if (list) {
    const button = document.createElement("button"), item = document.createElement("li");
    button.type = "button";
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const name = () => { button.textContent = isDark() ? "Light colors" : "Dark colors"; };
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; set("theme", root.dataset.theme); turn(); });
    if (["light", "dark"].includes(wanted.get("theme"))) root.dataset.theme = wanted.get("theme");
    themed(name);
    name();
    item.append(button);
    list.append(item);
    const links = new Map([...list.querySelectorAll("a")].map((link) => [document.getElementById(link.hash.slice(1)), link]));
    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) target.dataset.seen = isIntersecting ? "1" : "";
      const first = [...links.keys()].find((section) => section && section.dataset.seen);
      for (const [section, link] of links) if (section === first) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }, { rootMargin: "0px 0px -60% 0px" });
    for (const section of links.keys()) if (section) seen.observe(section);
  }
  return { get: (key) => wanted.get(key) || "", set, themed, onChange: (act) => listeners.push(act) };
})();
