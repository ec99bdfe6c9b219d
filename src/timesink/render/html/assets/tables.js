"use strict";
// Tables marked sortable: their heads become buttons; figures sort by their raw value, words by their text. Long ones
// show their first rows until asked for all, can be filtered, and are saved as CSV with raw figures and whole names.
(() => {
  const SHOWN = 8, LONG = 12; // the first as in the style
  const made = (tag, text, className) => { const node = document.createElement(tag); node.textContent = text; if (className) node.className = className; return node; };
  const keyOf = (row, at) => {
    const cell = row.cells[at];
    if (cell.dataset.value === undefined) return cell.textContent.trim().toLowerCase();
    return cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value);
  };
  const sortBy = (table, at, descending) => {
    const rows = [...table.tBodies[0].rows].map((row, place) => ({ row, place, key: keyOf(row, at) }));
    rows.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * (descending ? -1 : 1) || a.place - b.place);
    table.tBodies[0].append(...rows.map((entry) => entry.row));
  };
  const whole = (cell) => cell.dataset.value ?? cell.querySelector("[title]")?.title ?? cell.textContent.trim();
  const csv = (table, heads) => {
    const quoted = (text, isFigure) => `"${(isFigure || !/^[=+@\t-]/.test(text) ? text : `'${text}`).replaceAll('"', '""')}"`; // a name is no formula
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const lines = rows.map((row) => [...row.cells].map((cell) => quoted(whole(cell), cell.dataset.value !== undefined)));
    return [heads.map((head) => quoted(head.dataset.unit && head.dataset.unit !== "1" ? `${head.textContent} (${head.dataset.unit})` : head.textContent)), ...lines].map((line) => `${line.join(",")}\r\n`).join("");
  };
  const save = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const equip = (table, heads) => {
    const rows = [...table.tBodies[0].rows], count = rows.length, title = table.caption ? table.caption.firstElementChild?.textContent || table.caption.textContent : "table";
    if (count <= LONG || !table.closest("main")) return;
    const tools = made("div", "", "tools"), filter = document.createElement("input"), all = made("button", ""), file = made("button", "CSV");
    all.type = file.type = filter.type = "button";
    filter.type = "search";
    filter.placeholder = "filter rows";
    filter.setAttribute("aria-label", `filter rows of ${title}`);
    file.setAttribute("aria-label", `save ${title} as CSV`);
    let isWhole = false;
    const show = () => {
      const wanted = filter.value.trim().toLowerCase();
      for (const row of rows) row.hidden = Boolean(wanted) && ![...row.cells].some((cell) => whole(cell).toLowerCase().includes(wanted) || cell.textContent.toLowerCase().includes(wanted));
      table.classList.toggle("folded", !isWhole && !wanted);
      all.textContent = isWhole ? `show the first ${SHOWN}` : `show all ${count}`;
      all.setAttribute("aria-expanded", String(isWhole));
      all.hidden = Boolean(wanted);
    };
    filter.addEventListener("input", show);
    all.addEventListener("click", () => { isWhole = !isWhole; show(); });
    file.addEventListener("click", () => save(title, csv(table, heads)));
    show();
    tools.append(all, filter, file);
    table.closest(".scroll").after(tools);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    if (table.tBodies[0].rows.length < 2) continue;
    const heads = [...table.tHead.rows[0].cells];
    equip(table, heads);
    heads.forEach((head, at) => {
      const button = made("button", head.textContent.trim());
      button.type = "button";
      head.textContent = "";
      head.append(button);
      button.addEventListener("click", () => {
        const first = head.classList.contains("figure") ? "descending" : "ascending";
        const other = first === "descending" ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        sortBy(table, at, order === "descending");
      });
    });
  }
})();
