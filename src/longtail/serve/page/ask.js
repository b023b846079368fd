// One text: labels as you type.

import { ask, modelPath } from "./api.js";
import * as code from "./code.js";
import * as correct from "./correct.js";
import { announce, byId, copy, count, counted, el, icon, scored, show, shortened, split } from "./dom.js";
import { open } from "./label.js";
import { fine, say, trouble } from "./notice.js";
import { change, MOST_LABELS, onChange, server, state, toggled } from "./state.js";

const PAUSE = 70; // milliseconds without a key before the server is asked
const PAUSE_WHY = 250; // and before it is asked why
const SLOW = 400; // after which an answer is shown to be on its way
const VERY_SLOW = 3000;
const WORDS = 5; // that are named as reasons,
const FAINT = 0.15; // as long as they count so much beside the word that counts most

// For the reverse dictionary of the demo.
const QUESTIONS = [
  "a fruit with a hard stone inside",
  "a bed for a baby",
  "a large bird of prey that hunts at night",
  "to run away in fear",
  "a warm coat made of fur",
  "heavy rain with thunder and lightning",
  "a sweet cake baked with flour, sugar and eggs",
  "a vehicle with two wheels that you pedal",
  "an instrument with strings that is played with a bow",
  "a horse used for riding",
  "a weapon that shoots arrows",
  "a chair with a back and arms",
  "a boat with sails",
  "a cheese made from goat milk",
  "a strong wind with snow",
  "a hat worn by a soldier",
  "the sound of a bell",
  "a shoe that covers the ankle",
  "to walk slowly without a goal",
  "to move through water using arms and legs",
  "a boat that travels under water",
  "a cloth to dry yourself",
  "a piece of furniture to sleep on",
  "a tree with edible nuts",
];

const area = byId("text");
const marks = byId("marks");
const results = byId("results");
const rows = new Map(); // label -> its row on the page
let answer = null; // {text, results, took}: what is on the page
let running = null;
let timer, whyTimer, slowTimer;
let examples = [];

export function start() {
  area.addEventListener("input", () => change({ text: area.value }));
  area.addEventListener("scroll", () => (marks.scrollTop = area.scrollTop));
  area.addEventListener("keydown", (event) => {
    // Enter asks at once; a new line is Shift and Enter.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      later(0);
    }
  });
  addEventListener("resize", fit);
  byId("clear").addEventListener("click", () => {
    change({ text: "" });
    area.focus();
  });
  byId("surprise").addEventListener("click", () => {
    const others = examples.filter((text) => text !== state.text);
    change({ text: others[Math.floor(Math.random() * others.length)] });
  });
  byId("k").addEventListener("input", (event) => {
    const k = Math.trunc(Number(event.target.value));
    if (k >= 1 && k <= MOST_LABELS) change({ k });
  });
  byId("k").addEventListener("change", (event) => (event.target.value = state.k));
  byId("threshold").addEventListener("input", (event) => change({ threshold: Number(event.target.value) }));
  byId("why").addEventListener("change", (event) => change({ why: event.target.checked }));
  for (const button of document.querySelectorAll("[data-code]")) {
    button.addEventListener("click", () => {
      form = button.dataset.code;
      showCode();
    });
  }
  byId("copy").addEventListener("click", copyCode);
  byId("code").addEventListener("toggle", showCode);
  correct.start();
  onChange(changed);
  changed(new Set(["text", "k", "threshold", "why", "known", "exclude"]));
}

function changed(what) {
  if (what.has("text")) {
    if (area.value !== state.text) area.value = state.text;
    fit();
    mark(null);
    show(byId("clear"), state.text !== "");
  }
  if (what.has("k") && Number(byId("k").value) !== state.k) byId("k").value = state.k;
  if (what.has("threshold")) {
    byId("threshold").value = state.threshold;
    byId("threshold-says").textContent = state.threshold.toFixed(2);
  }
  if (what.has("why")) byId("why").checked = state.why;
  if (what.has("about")) {
    show(byId("why-option"), Boolean(server.about?.abilities.explain));
    welcome();
  }
  if (what.has("label")) showOpen();
  if (what.has("model")) {
    answer = null;
    show(byId("answer"), false);
  }
  if (what.has("known") || what.has("exclude") || what.has("about")) showChosen();
  if (["text", "k", "threshold", "known", "exclude", "why", "about"].some((name) => what.has(name))) {
    showExamples();
    later(what.has("text") && state.text.trim() ? PAUSE : 0);
  }
}

/** The text area is as high as its text, up to a limit in the style sheet. */
function fit() {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

// ---- asking

function later(wait) {
  clearTimeout(timer);
  clearTimeout(whyTimer);
  timer = setTimeout(send, wait);
}

async function send() {
  running?.abort();
  clearTimeout(slowTimer);
  if (!state.text.trim() || !server.about) {
    running = null;
    answer = null;
    waiting(false);
    show(byId("answer"), false);
    if (server.about) fine(); // nothing is asked, so nothing is wrong
    return;
  }
  const mine = (running = new AbortController());
  const text = state.text;
  const body = code.request([text], state, server.about.abilities);
  const began = performance.now();
  slowTimer = setTimeout(() => {
    waiting(true);
    slowTimer = setTimeout(() => say("The answer takes a while. It will appear here."), VERY_SLOW - SLOW);
  }, SLOW);
  let found;
  try {
    found = await ask(modelPath(state.model, "/predict"), { body, signal: mine.signal });
  } catch (problem) {
    if (mine !== running) return; // a later question is on its way
    clearTimeout(slowTimer);
    waiting(false);
    stale(true);
    if (problem.kind === "missing") dispatchEvent(new Event("longtail-models"));
    trouble(problem, send);
    return;
  }
  if (mine !== running) return;
  clearTimeout(slowTimer);
  waiting(false);
  fine();
  const before = new Map((answer?.text === text ? answer.results : []).map((one) => [one.label, one.why]));
  answer = { text, body, found, results: found.results[0], took: performance.now() - began };
  // Reasons of the same text stay until they are told anew.
  for (const one of answer.results) one.why ??= before.get(one.label);
  render();
  if (found.version !== server.about.version) dispatchEvent(new Event("longtail-models")); // the model was replaced
  if (state.why && server.about.abilities.explain) whyTimer = setTimeout(() => explain(mine), PAUSE_WHY);
}

/** Reasons take longer than labels, so they come second, and their failing is no trouble. */
async function explain(mine) {
  try {
    const body = { ...answer.body, explain: true };
    const found = await ask(modelPath(state.model, "/predict"), { body, signal: mine.signal });
    if (mine !== running || state.text !== answer.text) return;
    answer.found = found;
    answer.results = found.results[0];
    render();
  } catch {
    // The labels stay as they are.
  }
}

function waiting(on) {
  byId("slow").classList.toggle("on", on);
  byId("answer").setAttribute("aria-busy", String(on));
  if (on) stale(true);
}

/** What is on the page is not the answer to what is in the box. */
function stale(on) {
  results.classList.toggle("stale", on);
}

// ---- the labels

function render() {
  const { calibrated } = server.about.abilities;
  const found = answer.results;
  stale(false);
  show(byId("answer"), true);
  show(byId("code"), true);
  // Scores of most models lie between 0 and 1; others are shown beside their best.
  const inside = found.every((one) => one.score >= 0 && one.score <= 1);
  const best = Math.max(...found.map((one) => one.score), 1e-9);
  const wanted = new Set(found.map((one) => one.label));
  for (const [id, row] of rows) {
    if (!wanted.has(id)) {
      row.item.remove();
      rows.delete(id);
    }
  }
  found.forEach((one, n) => {
    server.names.set(one.label, one.name);
    if (!rows.has(one.label)) rows.set(one.label, makeRow(one.label));
    const row = rows.get(one.label);
    fillRow(row, one, inside ? one.score : Math.max(0, one.score / best), calibrated);
    if (results.children[n] !== row.item) results.insertBefore(row.item, results.children[n] ?? null);
  });
  const nothing = byId("nothing");
  show(nothing, found.length === 0);
  nothing.textContent = found.length
    ? ""
    : state.threshold > 0
      ? "No label reaches this score. Move “Score from” to the left."
      : "The model has no label for this text. Try other words.";
  byId("timing").textContent = `${counted(found.length, "label")} in ${Math.max(1, Math.round(answer.took))} ms`;
  correct.answered(answer, rows);
  showOpen();
  if (byId("code").open) showCode();
  const first = found[0];
  announce(
    first
      ? `${counted(found.length, "label")}. First: ${split(first.name).word}, ${scored(first.score, calibrated)}.`
      : nothing.textContent,
  );
}

function makeRow(id) {
  const name = el("button", { type: "button", class: "name", onclick: () => open(id) });
  const rare = el("span", { class: "rare", hidden: true });
  const score = el("span", { class: "score" });
  const known = el(
    "button",
    { type: "button", class: "round quiet", onclick: () => leave(id, "known") },
    icon("check"),
  );
  const exclude = el(
    "button",
    { type: "button", class: "round quiet", onclick: () => leave(id, "exclude") },
    icon("ban"),
  );
  const thumbs = correct.thumbsOf(id);
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, el("i"));
  const definition = el("p", { class: "definition", dir: "auto" });
  const because = el("p", { class: "because", hidden: true });
  const item = el(
    "li",
    { class: "result" },
    el("div", { class: "head" }, name, rare, score, el("div", { class: "actions" }, thumbs.right, thumbs.wrong, known, exclude)),
    bar,
    definition,
    because,
  );
  const row = { item, name, rare, score, known, exclude, bar: bar.firstChild, definition, because, one: null };
  item.addEventListener("pointerenter", () => mark(row.one));
  item.addEventListener("focusin", () => mark(row.one));
  item.addEventListener("pointerleave", showOpen);
  return row;
}

function fillRow(row, one, width, calibrated) {
  const { word, others, definition } = split(one.name);
  row.one = one;
  if (row.name.dataset.name !== one.name) {
    row.name.dataset.name = one.name;
    row.name.replaceChildren(el("span", { class: "word", dir: "auto" }, word));
    if (others) row.name.append(" ", el("span", { class: "others", dir: "auto" }, others));
    row.definition.textContent = definition;
    show(row.definition, definition !== "");
    row.known.setAttribute("aria-label", `The text already has ${word}`);
    row.known.title = "Already known: what else fits?";
    row.exclude.setAttribute("aria-label", `Leave out ${word}`);
    row.exclude.title = "Leave out";
  }
  show(row.known, Boolean(server.about.abilities.known));
  show(row.rare, Boolean(one.rare));
  if (one.rare) row.rare.textContent = `rare · ${counted(one.documents, "document")}`;
  row.score.textContent = scored(one.score, calibrated);
  row.bar.style.inlineSize = `${(100 * width).toFixed(2)}%`;
  const reasons = reasonsOf(one);
  show(row.because, reasons.length > 0);
  row.because.title = one.why?.note ?? "";
  row.because.replaceChildren(
    el("span", {}, "because of "),
    ...reasons.flatMap((reason, n) => [n ? ", " : "", el("b", { dir: "auto" }, reason)]),
  );
}

/** The words, and what else counted, that speak most for a label. */
function reasonsOf(one) {
  if (!one.why || !state.why) return [];
  const words = (one.why.words ?? []).map((word) => ({ said: word.text, share: word.share }));
  const others = (one.why.others ?? []).map((other) => ({ said: split(other.name).word, share: other.share }));
  const sums = new Map(); // a word that occurs twice is named once
  for (const { said, share } of [...words, ...others]) sums.set(said, (sums.get(said) ?? 0) + share);
  const best = [...sums].filter(([, share]) => share > 0).sort((a, b) => b[1] - a[1]);
  const most = best[0]?.[1] ?? 0;
  return best
    .filter(([, share]) => share >= FAINT * most)
    .slice(0, WORDS)
    .map(([said]) => said);
}

/** Mark the words of the text that speak for a label (or, fainter, against it). */
function mark(one) {
  const text = state.text;
  const words = one?.why && state.why && answer?.text === text ? one.why.words : [];
  const most = Math.max(...words.map((word) => Math.abs(word.share)), 0);
  const strong = words.filter((word) => most > 0 && Math.abs(word.share) >= FAINT * most);
  const at = positions(text);
  const parts = [];
  let end = 0;
  for (const word of strong.toSorted((a, b) => a.start - b.start)) {
    const [from, to] = [at(word.start), at(word.end)];
    if (from < end) continue;
    const marked = el("mark", { class: word.share < 0 ? "against" : "for" }, text.slice(from, to));
    marked.style.setProperty("--share", `${Math.round((100 * Math.abs(word.share)) / most)}%`);
    parts.push(text.slice(end, from), marked);
    end = to;
  }
  marks.replaceChildren(...parts, `${text.slice(end)}\n`);
}

/** The label whose panel is open stands out, and its words are marked; else those of the first. */
function showOpen() {
  for (const [id, row] of rows) row.name.setAttribute("aria-current", String(id === state.label));
  mark(answer?.results.find((one) => one.label === state.label) ?? answer?.results[0] ?? null);
}

/** The server counts characters, JavaScript counts units of UTF-16, of which an emoji has two. */
function positions(text) {
  if (!/[\ud800-\udbff][\udc00-\udfff]/.test(text)) return (n) => n;
  const starts = [];
  let unit = 0;
  for (const character of text) {
    starts.push(unit);
    unit += character.length;
  }
  starts.push(unit);
  return (n) => starts[Math.min(n, starts.length - 1)];
}

/** Mark a label as known, or leave it out; the keyboard goes on at the next label. */
function leave(id, list) {
  const focused = rows.get(id)?.item.contains(document.activeElement);
  const next = rows.get(id)?.item.nextElementSibling ?? rows.get(id)?.item.previousElementSibling;
  const name = list === "known" ? "known" : "exclude";
  const nextRow = [...rows.values()].find((row) => row.item === next);
  change({ [list]: toggled(state[list], id) });
  if (focused) (nextRow?.[name] ?? area).focus();
  announce(`${split(server.names.get(id) ?? id).word} ${list === "known" ? "is known" : "is left out"}`, 50);
}

// ---- known and excluded labels

function showChosen() {
  const chosen = byId("chosen");
  const group = (list, title) =>
    state[list].length
      ? el(
          "div",
          { class: `group of-${list}`, role: "group", "aria-label": title },
          el("span", {}, title),
          ...state[list].map((id) => {
            const { word } = split(server.names.get(id) ?? id);
            return el(
              "span",
              { class: `chip ${list}` },
              el("button", { type: "button", dir: "auto", onclick: () => open(id) }, shortened(word, 40)),
              el(
                "button",
                {
                  type: "button",
                  class: "remove",
                  "aria-label": `Remove ${word}`,
                  onclick: () => {
                    change({ [list]: state[list].filter((one) => one !== id) });
                    (chosen.querySelector(".remove") ?? area).focus();
                  },
                },
                icon("close"),
              ),
            );
          }),
        )
      : null;
  const groups = [server.about?.abilities.known ? group("known", "Known") : null, group("exclude", "Left out")];
  chosen.replaceChildren(...groups.filter(Boolean));
  show(chosen, chosen.childElementCount > 0);
  nameChosen();
}

/** Names of labels that came with the address. */
async function nameChosen() {
  const missing = [...state.known, ...state.exclude].filter((id) => !server.names.has(id));
  if (!missing.length || !server.about) return;
  for (const id of missing) server.names.set(id, id);
  await Promise.all(
    missing.map(async (id) => {
      try {
        const found = await ask(modelPath(state.model, `/label?id=${encodeURIComponent(id)}`));
        server.names.set(id, found.name);
      } catch {
        // The id says it as well.
      }
    }),
  );
  showChosen();
}

// ---- where to begin

function welcome() {
  const about = server.about;
  if (!about) return;
  const dictionary = about.data === "sample";
  byId("ask-title").textContent = dictionary ? "What is the word for …?" : "Which labels fit?";
  byId("ask-lead").textContent = dictionary
    ? `A reverse dictionary: the nearest of ${count(about.labels)} concepts appear as you type.`
    : `Type a text, and the best of ${count(about.labels)} labels appear as you type.`;
  show(byId("surprise"), dictionary);
  area.placeholder = dictionary ? "Describe a thing in your own words" : "Type or paste a text";
  document.body.classList.toggle("dictionary", dictionary);
  if (dictionary) examples = QUESTIONS;
  else if (about.abilities.examples) fetchExamples(about);
  else examples = [];
  showExamples();
}

/** Texts of training, of labels here and there. */
async function fetchExamples(about) {
  examples = [];
  try {
    const { labels } = await ask(modelPath(about.name, "/labels?limit=40"));
    const some = [0, 1, 2, 3, 4].map((n) => labels[Math.floor((n * labels.length) / 5)]).filter(Boolean);
    const found = await Promise.all(
      some.map((one) => ask(modelPath(about.name, `/label?id=${encodeURIComponent(one.label)}`))),
    );
    if (about !== server.about) return;
    const texts = found.map((one) => one.examples?.[0]?.text).filter(Boolean);
    examples = [...new Set(texts.map((text) => shortened(text, 120)))];
    showExamples();
  } catch {
    // A box without examples is enough.
  }
}

function showExamples() {
  const box = byId("examples");
  const visible = examples.length > 0 && !state.text.trim();
  show(box, visible);
  if (!visible || box.dataset.of === examples.join("\n")) return;
  box.dataset.of = examples.join("\n");
  const chip = (text) =>
    el("button", { type: "button", class: "chip", dir: "auto", onclick: () => change({ text }) }, shortened(text, 60));
  box.replaceChildren(el("span", {}, "Try"), ...examples.slice(0, 6).map(chip));
}

// ---- code

let form = "curl";

function codeText() {
  if (!answer) return "";
  if (form === "json") return code.json(answer.found);
  return form === "curl" ? code.curl(state.model, answer.body) : code.python(state.model, answer.body);
}

function showCode() {
  for (const button of document.querySelectorAll("[data-code]")) {
    button.setAttribute("aria-pressed", String(button.dataset.code === form));
  }
  byId("code-text").textContent = codeText();
}

async function copyCode() {
  const says = byId("copy").querySelector("span");
  says.textContent = (await copy(codeText())) ? "Copied" : "Select and copy it by hand";
  announce(says.textContent, 50);
  setTimeout(() => (says.textContent = "Copy"), 2000);
}
