// Which labels of a text are right, wrong or missing. Said by thumbs, and saved by the server as a line of a file, when
// people say so: it is there for the next training, and nothing is learnt by itself.

import { ask, modelPath } from "./api.js";
import { byId, el, icon, shortened, show, split } from "./dom.js";
import { open } from "./label.js";
import { lookUp } from "./lookup.js";
import { trouble } from "./notice.js";
import { server, state } from "./state.js";

const MOST_TEXTS = 100; // whose thumbs are remembered

const remembered = new Map(); // model and text -> what was said of it
let answer = null; // the one on the page
let buttons = new Map(); // label -> its two buttons

export function start() {
  lookUp(byId("missing-find"), byId("missing-found"), (id) => {
    say(id, answer?.results.some((one) => one.label === id) ? "right" : "missing");
    byId("missing-find").focus();
  });
  byId("correct-save").addEventListener("click", save);
}

const isOn = () => Boolean(server.about?.abilities.corrections);

/** What was said of the text of the answer. labels: label -> "right", "wrong" or "missing". */
function thumbs() {
  return remembered.get(keyOf()) ?? { labels: new Map(), saved: "", problem: "" };
}

const keyOf = () => `${state.model}\n${answer.text}`;

const as = (labels, what) => [...labels].filter(([, said]) => said === what).map(([id]) => id);
const written = (labels) => JSON.stringify(["right", "wrong", "missing"].map((what) => as(labels, what).sort()));
const NOTHING = written(new Map());

/** The two buttons of a label in the answer. */
export function thumbsOf(id) {
  const button = (what, image) =>
    el("button", { type: "button", class: `round quiet thumb ${what}`, onclick: () => say(id, what) }, icon(image));
  const pair = { right: button("right", "up"), wrong: button("wrong", "down") };
  buttons.set(id, pair);
  return pair;
}

/** Another answer is on the page: {text, results, found}. */
export function answered(found, rows) {
  answer = found;
  buttons = new Map([...buttons].filter(([id]) => rows.has(id)));
  render();
}

function say(id, what) {
  if (!answer) return;
  const mine = thumbs();
  const { labels } = mine;
  const before = labels.get(id);
  // A label that was added as missing may be in the answer by now, where it is right.
  if (before === what || (before === "missing" && what === "right")) labels.delete(id);
  else labels.set(id, what);
  mine.problem = "";
  remembered.delete(keyOf()); // the latest is the last to be forgotten
  remembered.set(keyOf(), mine);
  if (remembered.size > MOST_TEXTS) remembered.delete(remembered.keys().next().value);
  render();
}

function render() {
  show(byId("correct"), isOn());
  for (const { right, wrong } of buttons.values()) for (const one of [right, wrong]) show(one, isOn());
  if (!isOn()) return;
  const { labels, saved, problem } = thumbs();
  for (const [id, pair] of buttons) {
    const { word } = split(server.names.get(id) ?? id);
    const said = labels.get(id);
    fill(pair.right, `${word} is right`, said === "right" || said === "missing");
    fill(pair.wrong, `${word} is wrong`, said === "wrong");
  }
  const missing = as(labels, "missing");
  byId("missing").replaceChildren(...missing.map(chip));
  show(byId("missing"), missing.length > 0);
  const now = written(labels);
  const changed = now !== NOTHING && now !== saved;
  byId("correct-save").disabled = !changed;
  const says = byId("correct-says");
  const parts = ["right", "wrong", "missing"].map((what) => [as(labels, what).length, what]).filter(([n]) => n);
  says.textContent = problem
    ? `${problem} Nothing was saved.`
    : changed
      ? `${parts.map(([n, what]) => `${n} ${what}`).join(", ")}: not saved yet`
      : saved && now === saved
        ? "Saved. It counts when the model is trained again."
        : "Which labels are right or wrong?";
  says.classList.toggle("problem", Boolean(problem));
}

function fill(button, text, pressed) {
  button.setAttribute("aria-label", text);
  button.setAttribute("aria-pressed", String(pressed));
  button.title = button.classList.contains("right") ? "Right" : "Wrong";
}

function chip(id) {
  const { word } = split(server.names.get(id) ?? id);
  return el(
    "li",
    { class: "chip" },
    el("button", { type: "button", dir: "auto", onclick: () => open(id) }, shortened(word, 40)),
    el(
      "button",
      {
        type: "button",
        class: "remove",
        "aria-label": `${word} is not missing`,
        onclick: () => {
          say(id, "missing");
          byId("missing-find").focus();
        },
      },
      icon("close"),
    ),
  );
}

async function save() {
  const mine = thumbs();
  const sent = written(mine.labels);
  const body = { text: answer.text, version: answer.found.version };
  for (const what of ["right", "wrong", "missing"]) body[what] = as(mine.labels, what);
  byId("correct-save").disabled = true;
  try {
    await ask(modelPath(state.model, "/corrections"), { body });
    mine.saved = sent;
    mine.problem = "";
  } catch (problem) {
    mine.problem = problem.message;
    // A server that was started again without a file of corrections says 403, which no token changes.
    if (problem.status === 401) trouble(problem, save);
  }
  render();
  // A button that was switched off has lost the keyboard.
  if (document.activeElement === document.body) (mine.problem ? byId("correct-save") : byId("missing-find")).focus();
}
