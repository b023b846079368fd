// One label: what it says, how often it occurs, what lies near it.

import { ask, modelPath } from "./api.js";
import { announce, byId, counted, el, icon, shortened, show, split } from "./dom.js";
import { draw, MOST } from "./graph.js";
import { lookUp } from "./lookup.js";
import { histogram } from "./numbers.js";
import { change, onChange, server, state, toggled } from "./state.js";

const panel = byId("label");
const body = byId("label-body");
const narrow = matchMedia("(max-width: 900px)");
let shown = null; // the label on the panel, as the server told it
let before = null; // {label, name}: the one that was walked from
const trail = []; // those that led here
let opener = null; // what had the keyboard before
let running = null;

export function open(id) {
  if (id === state.label) return panel.querySelector("h2")?.focus();
  if (!state.label) opener = document.activeElement;
  change({ label: id }, { step: true });
}

export function close() {
  change({ label: "" }, { step: true });
}

export function start() {
  byId("label-close").addEventListener("click", close);
  byId("label-back").addEventListener("click", back);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.label && !event.defaultPrevented) close();
  });
  narrow.addEventListener("change", arrange);
  onChange((what) => {
    if (what.has("model")) {
      trail.length = 0;
      shown = null;
    }
    if (what.has("label") || (what.has("about") && state.label && !shown)) follow();
    else if (shown && (what.has("known") || what.has("exclude"))) marked();
  });
  lookUp(byId("find"), byId("found"), open);
}

function back() {
  open(trail.at(-1).label);
}

/** The label in the address is another one. */
async function follow() {
  running?.abort();
  const id = state.label;
  arrange();
  if (!id) {
    trail.length = 0;
    shown = null;
    if (panel.contains(document.activeElement) || document.activeElement === document.body) {
      (opener?.isConnected ? opener : byId("text")).focus();
    }
    return;
  }
  if (!server.about) return;
  const mine = (running = new AbortController());
  let found;
  try {
    found = await ask(modelPath(state.model, `/label?id=${encodeURIComponent(id)}`), { signal: mine.signal });
  } catch (problem) {
    if (mine !== running) return;
    shown = null;
    body.replaceChildren(el("h2", { id: "label-name", tabindex: "-1" }, id), el("p", { class: "problem" }, problem.message));
    if (problem.passes) setTimeout(() => mine === running && follow(), 3000);
    return;
  }
  if (mine !== running) return;
  server.names.set(found.label, found.name);
  // A step back takes the last of the trail away again; any other way adds to it.
  if (trail.at(-1)?.label === found.label) trail.pop();
  else if (shown) trail.push({ label: shown.label, name: shown.name });
  before = trail.at(-1) ?? null;
  const inGraph = document.activeElement?.closest?.(".graph");
  shown = found;
  render();
  if (inGraph) body.querySelector(".graph [tabindex='0']")?.focus();
  else panel.querySelector("h2").focus();
  panel.scrollTop = 0;
  announce(`${split(found.name).word}. ${counted(found.neighbours?.length ?? 0, "label")} near it.`, 150);
}

/** On a phone the panel covers the page, which then must not take the keyboard. */
function arrange() {
  const visible = Boolean(state.label);
  show(panel, visible);
  byId("frame").classList.toggle("with-label", visible);
  const covering = visible && narrow.matches;
  byId("main").inert = covering;
  document.querySelector("header").inert = covering;
  if (!visible) body.replaceChildren();
}

function render() {
  const { word, others, definition } = split(shown.name);
  const { abilities } = server.about;
  show(byId("label-back"), before !== null);
  byId("label-back").querySelector("span").textContent = before ? shortened(split(before.name).word, 24) : "";
  byId("label-back").setAttribute("aria-label", before ? `Back to ${split(before.name).word}` : "Back");
  const text = shown.text && shown.text !== shown.name && shown.text !== shown.label ? shown.text : "";
  const near = shown.neighbours ?? [];
  body.replaceChildren(
    ...[
      el("h2", { id: "label-name", tabindex: "-1", dir: "auto" }, word),
      others && el("p", { class: "others", dir: "auto" }, others),
      definition && el("p", { class: "definition", dir: "auto" }, definition),
      text && el("p", { class: "definition", dir: "auto" }, text),
      el(
        "div",
        { class: "marks-of-label" },
        abilities.known && toggle("known", "check", "Known"),
        toggle("exclude", "ban", "Leave out"),
        el("code", { class: "id", dir: "auto", title: "Its id" }, shown.label),
      ),
      ...frequency(),
      ...around(near),
      ...documents(),
    ].filter(Boolean),
  );
  marked();
}

function toggle(list, image, text) {
  return el(
    "button",
    {
      type: "button",
      class: "plain small",
      "data-list": list,
      onclick: () => change({ [list]: toggled(state[list], shown.label) }),
    },
    icon(image),
    text,
  );
}

function marked() {
  for (const button of body.querySelectorAll("[data-list]")) {
    button.setAttribute("aria-pressed", String(state[button.dataset.list].includes(shown.label)));
  }
}

function frequency() {
  const bins = server.about.frequencies ?? [];
  const said = shown.documents
    ? counted(shown.documents, "training document")
    : "No training document: the model knows its text alone";
  const all = bins.reduce((sum, bin) => sum + bin.labels, 0);
  const fewer = bins.filter((bin) => bin.to < shown.documents).reduce((sum, bin) => sum + bin.labels, 0);
  const share = all && fewer ? `, more than ${Math.floor((100 * fewer) / all)}% of all labels have` : "";
  return [
    el("h3", {}, "How often"),
    el("p", {}, `${said}${share}.`),
    bins.length > 1 ? histogram(bins, { small: true, at: shown.documents }) : null,
  ];
}

function around(near) {
  if (!server.about.abilities.neighbours && !near.length) return [];
  if (!near.length) return [el("h3", {}, "Near it"), el("p", { class: "muted" }, "No label is linked to it.")];
  const rest = near.slice(MOST);
  return [
    el("h3", {}, "Near it"),
    draw(shown, before, open),
    rest.length
      ? el(
          "p",
          { class: "rest" },
          "Also ",
          ...rest.flatMap((one, n) => [
            n ? ", " : "",
            el("button", { type: "button", class: "link", dir: "auto", onclick: () => open(one.label) }, split(one.name).word),
          ]),
        )
      : null,
  ];
}

function documents() {
  const found = shown.examples ?? [];
  if (!found.length) return [];
  const item = (one) =>
    el(
      "li",
      {},
      el(
        "button",
        {
          type: "button",
          class: "document",
          dir: "auto",
          title: "Ask for the labels of this text",
          onclick: () => change({ text: one.text, tab: "ask", ...(narrow.matches && { label: "" }) }),
        },
        shortened(one.text, 300),
      ),
    );
  return [
    el("h3", {}, "Nearest of its training documents"),
    el("ul", { class: "documents" }, ...found.map(item)),
  ];
}
