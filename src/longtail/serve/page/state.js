// What the page shows, kept in the address, so that a link or a reload brings it back. What follows # stays in the
// browser: it is not sent to the server.

const LONGEST_TEXT = 2000; // characters that go into the address
const TABS = ["ask", "many", "model"];
export const MOST_LABELS = 100;

export const state = {
  tab: "ask",
  model: "",
  text: "",
  k: 5,
  threshold: 0,
  why: true,
  known: [], // ids
  exclude: [],
  label: "", // the one whose panel is open
};
const DEFAULTS = { ...state };

/**
 * What the server told. models: all of them.  about: the chosen one, with its details.  names: of labels, by their ids.
 */
export const server = { models: [], about: null, names: new Map() };

const listeners = [];

/** `listener(changed)` is called with the names of what changed. */
export function onChange(listener) {
  listeners.push(listener);
}

/** step: a new entry of the browser's history, so that its way back leads here. */
export function change(patch, { step = false } = {}) {
  const changed = new Set();
  for (const [name, value] of Object.entries(patch)) {
    if (!same(state[name], value)) {
      state[name] = value;
      changed.add(name);
    }
  }
  if (!changed.size) return;
  for (const listener of listeners) listener(changed);
  keep(step);
}

/** Tell everyone that the server said something new of its models. */
export function refreshed() {
  for (const listener of listeners) listener(new Set(["about"]));
}

const same = (a, b) => (Array.isArray(a) ? a.length === b.length && a.every((one, n) => one === b[n]) : a === b);

export function toggled(list, id) {
  return list.includes(id) ? list.filter((one) => one !== id) : [...list, id];
}

const OURS = { ours: true }; // the state of entries of the history that the page made itself
const APART = 250; // milliseconds between changes of the address: browsers refuse hundreds in a row
let keeping;
let kept = -APART;
function keep(step) {
  clearTimeout(keeping);
  const write = () => {
    kept = performance.now();
    history[step ? "pushState" : "replaceState"](OURS, "", hash());
  };
  const wait = step ? 0 : kept + APART - performance.now();
  if (wait <= 0) write();
  else keeping = setTimeout(write, wait);
}

export function hash(of = state) {
  const said = new URLSearchParams();
  for (const name of ["tab", "model", "k", "threshold", "label"]) {
    if (of[name] !== DEFAULTS[name]) said.set(name, of[name]);
  }
  if (!of.why) said.set("why", "0");
  for (const name of ["known", "exclude"]) for (const id of of[name]) said.append(name, id);
  if (of.text && of.text.length <= LONGEST_TEXT) said.set("text", of.text);
  const text = said.toString();
  return text ? `#${text}` : location.pathname + location.search;
}

function parsed() {
  const said = new URLSearchParams(location.hash.slice(1));
  const k = Number.parseInt(said.get("k"), 10);
  const threshold = Number.parseFloat(said.get("threshold"));
  return {
    tab: TABS.includes(said.get("tab")) ? said.get("tab") : "ask",
    model: said.get("model") ?? "",
    text: said.get("text") ?? "",
    k: k >= 1 && k <= MOST_LABELS ? k : DEFAULTS.k,
    threshold: threshold >= 0 && threshold <= 1 ? threshold : 0,
    why: said.get("why") !== "0",
    known: said.getAll("known"),
    exclude: said.getAll("exclude"),
    label: said.get("label") ?? "",
  };
}

/** Read the address now, and whenever it is edited or the browser goes back. */
export function start() {
  Object.assign(state, parsed());
  addEventListener("popstate", (event) => {
    // A step back undoes what opened a label or a tab, not what was typed since.
    const found = parsed();
    change(event.state ? { tab: found.tab, label: found.label } : { ...found, model: found.model || state.model });
  });
}
