"use strict";
// The picker of the page "Which tool first?": the rules of `timesink which`, which the page holds as data.
document.addEventListener("DOMContentLoaded", () => {
  const island = document.getElementById("which-rules");
  const input = document.getElementById("which-symptom");
  const place = document.getElementById("which-answer");
  if (!island || !input || !place) return;
  const rules = JSON.parse(island.textContent);
  const answers = rules.answers.map((answer) => ({ ...answer, patterns: answer.words.map((word) => new RegExp(word)) }));
  const named = (name) => answers.find((answer) => answer.name === name);

  const stated = (text) => {
    const found = new RegExp(rules.percent).exec(text);
    return found && rules.speaks_of_use.some((word) => text.includes(word)) ? Number(found[1]) : null;
  };

  const choose = (symptom) => {
    const text = symptom.toLowerCase();
    const matched = new Map(answers.map((answer) => [answer, answer.patterns.map((word) => word.exec(text)).filter(Boolean).map((found) => found[0])]));
    const percent = stated(text);
    if (percent !== null) {
      const [yes, no] = percent >= rules.busy_percent ? [named("step"), named("gaps")] : [named("gaps"), named("step")];
      matched.get(yes).push(`utilisation ${percent} %`);
      matched.set(no, []);
    }
    const words = (answer) => matched.get(answer).reduce((sum, phrase) => sum + phrase.trim().split(/\s+/).length, 0);
    let best = answers[0];
    for (const answer of answers.slice(0, -1)) if (words(answer) > words(best)) best = answer;
    const answer = matched.get(best).length ? best : named("step");
    return [answer, matched.get(answer)];
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
    const [answer, words] = choose(input.value);
    place.dataset.answer = answer.name;
    place.replaceChildren(
      line("type", answer.command.map(quoted).join(" "), "code"),
      line("because of", words.join(", ") || rules.unsure),
      line("why", answer.why), line("why not the others", answer.not_others), line("cost", answer.cost), line("read first", answer.read_first),
    );
  };
  input.addEventListener("input", show);
  show();
});
