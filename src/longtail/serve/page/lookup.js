// A box that looks labels up by a piece of their name.

import { ask, modelPath } from "./api.js";
import { announce, count, el, shortened, show, split } from "./dom.js";
import { server, state } from "./state.js";

/** input and list: a combobox and its listbox. `take(id)` is called with the label that was chosen. */
export function lookUp(input, list, take) {
  let options = [];
  let at = -1;
  let timer;
  let asking = null;

  const select = (n) => {
    at = n;
    options.forEach((one, m) => one.setAttribute("aria-selected", String(m === n)));
    if (n >= 0) {
      input.setAttribute("aria-activedescendant", options[n].id);
      options[n].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  const fold = () => {
    // What was typed last may not have been asked yet, or not be answered: it must not open the list again.
    clearTimeout(timer);
    asking?.abort();
    asking = null;
    show(list, false);
    input.setAttribute("aria-expanded", "false");
    select(-1);
  };
  const choose = (one) => {
    fold();
    input.value = "";
    server.names.set(one.label, one.name);
    take(one.label);
  };
  const search = async () => {
    asking?.abort();
    const wanted = input.value.trim();
    if (!wanted || !state.model) return fold();
    const mine = (asking = new AbortController());
    try {
      const path = modelPath(state.model, `/labels?q=${encodeURIComponent(wanted)}&limit=12`);
      const { labels } = await ask(path, { signal: mine.signal });
      if (mine !== asking) return;
      options = labels.map((one, n) => {
        const { word, definition } = split(one.name);
        return el(
          "li",
          {
            id: `${list.id}-${n}`,
            role: "option",
            "aria-selected": "false",
            // Before the input loses the keyboard.
            onpointerdown: (event) => event.preventDefault(),
            onclick: () => choose(one),
          },
          el("span", { dir: "auto" }, shortened(word, 60)),
          el("small", { dir: "auto" }, shortened(definition || one.label, 90)),
        );
      });
      list.replaceChildren(...options);
      if (!options.length) list.append(el("li", { role: "option", "aria-disabled": "true" }, "No label is called so"));
      show(list, true);
      input.setAttribute("aria-expanded", "true");
      select(-1);
      announce(options.length ? `${count(options.length)} labels found` : "No label is called so");
    } catch {
      if (mine === asking) fold();
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, 120);
  });
  input.addEventListener("blur", fold);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && list.hidden) search();
    else if (event.key === "ArrowDown" && options.length) select((at + 1) % options.length);
    else if (event.key === "ArrowUp" && options.length) select((at - 1 + options.length) % options.length);
    else if (event.key === "Enter" && !list.hidden && options.length) options[Math.max(at, 0)].click();
    else if (event.key === "Escape" && !list.hidden) fold();
    else return;
    event.preventDefault();
  });
}
