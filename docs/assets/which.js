"use strict";
// The picker of the page "Which tool first?": the rules of `timesink doctor`, which the page holds as data.
document.addEventListener("DOMContentLoaded", () => {
  const island = document.getElementById("which-rules");
  const input = document.getElementById("which-symptom");
  const place = document.getElementById("which-answer");
  if (!island || !input || !place) return;
  const rules = JSON.parse(island.textContent);
  const gauges = rules.gauges.map((gauge) => ({ ...gauge, patterns: gauge.said.map((pattern) => new RegExp(pattern)) }));
  const answers = rules.answers.map((answer) => ({ ...answer, patterns: answer.words.map((word) => new RegExp(word)) }));
  const named = (name) => answers.find((answer) => answer.name === name);

  const stated = (symptom) => {
    let text = symptom.toLowerCase();
    const figures = new Map();
    for (const gauge of gauges) for (const pattern of gauge.patterns) {
      const found = pattern.exec(text);
      if (!found) continue;
      figures.set(gauge.name, Number(found[1]) * rules.units[found[2]]);
      text = `${text.slice(0, found.index)} ${text.slice(found.index + found[0].length)}`;
    }
    const share = new RegExp(rules.percent).exec(text);
    if (share && rules.speaks_of_use.some((word) => text.includes(word))) figures.set(gauges[0].name, Number(share[1]));
    return [figures, text];
  };

  const known = new Map();  // what the sliders say, by the name of the gauge

  const choose = (symptom) => {
    const [said, text] = stated(symptom);
    const matched = new Map(answers.map((answer) => [answer, answer.patterns.map((word) => word.exec(text)).filter(Boolean).map((found) => found[0])]));
    const figures = new Map([...said, ...known]);
    for (const gauge of gauges) {
      if (!figures.has(gauge.name)) continue;
      const value = figures.get(gauge.name);
      const [yes, no] = value >= gauge.at ? [gauge.above, gauge.below] : [gauge.below, gauge.above];
      if (yes) matched.get(named(yes)).push(gauge.phrase.replace("#", String(value)));
      if (yes && no) matched.set(named(no), []);
    }
    const words = (answer) => matched.get(answer).reduce((sum, phrase) => sum + phrase.trim().split(/\s+/).length, 0);
    let best = answers[0];
    for (const answer of answers.slice(0, -1)) if (words(answer) > words(best)) best = answer;
    const answer = matched.get(best).length ? best : named("step");
    const slow = answer.counts_steps && (figures.get("step_ms") || 0) >= rules.slow_step_ms;
    const end = answer.command.indexOf("--");
    const command = slow ? [...answer.command.slice(0, end), ...rules.fewer_steps, ...answer.command.slice(end)] : answer.command;
    return [answer, matched.get(answer), command];
  };

  const line = (head, text, tag) => {
    const row = document.createElement("p");
    const strong = document.createElement("strong");
    strong.textContent = `${head}: `;
    const shown = document.createElement(tag || "span");
    shown.textContent = text;
    row.append(strong, shown);
    return row;
  };

  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`);
  const show = () => {
    const [answer, words, command] = choose(input.value);
    place.dataset.answer = answer.name;
    place.replaceChildren(
      line("type", command.map(quoted).join(" "), "code"),
      line("because of", words.join(", ") || rules.unsure),
      line("why", answer.why), line("why not the others", answer.not_others), line("cost", answer.cost), line("read first", answer.read_first),
    );
  };
  const slider = (gauge) => {
    const row = document.createElement("p");
    const label = document.createElement("label");
    const range = document.createElement("input");
    const said = document.createElement("output");
    const forget = document.createElement("button");
    Object.assign(range, { type: "range", id: `which-${gauge.name}`, min: gauge.low, max: gauge.high, step: gauge.step, value: gauge.low });
    Object.assign(forget, { type: "button", textContent: "not known" });
    forget.setAttribute("aria-label", `${gauge.label}: not known`);
    label.htmlFor = range.id;
    said.setAttribute("for", range.id);
    label.textContent = gauge.label;
    const say = () => {
      said.textContent = known.has(gauge.name) ? `${known.get(gauge.name)} ${gauge.unit}`.trim() : "not known";
      range.setAttribute("aria-valuetext", said.textContent);
      forget.hidden = !known.has(gauge.name);
      show();
    };
    range.addEventListener("input", () => { known.set(gauge.name, Number(range.value)); say(); });
    forget.addEventListener("click", () => { known.delete(gauge.name); range.value = gauge.low; say(); });
    row.append(label, range, said, forget);
    document.getElementById("which-gauges").append(row);
    say();
  };

  input.addEventListener("input", show);
  gauges.forEach(slider);
  show();
});
