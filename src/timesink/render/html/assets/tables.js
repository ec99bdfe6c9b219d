"use strict";
// Tables marked sortable: their heads become buttons; figures sort by their raw value, words by their text. Long ones
// show their first rows until asked for all.
(() => {
  const SHOWN = 12; // as in the style
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
  const fold = (table) => {
    const count = table.tBodies[0].rows.length;
    if (count <= SHOWN + 8 || !table.closest("main section")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "fold";
    const show = (all) => {
      table.classList.toggle("folded", !all);
      button.textContent = all ? `show the first ${SHOWN}` : `show all ${count}`;
      button.setAttribute("aria-expanded", String(all));
    };
    button.addEventListener("click", () => show(table.classList.contains("folded")));
    show(false);
    table.closest(".scroll").after(button);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    if (table.tBodies[0].rows.length < 2) continue;
    fold(table);
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
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
