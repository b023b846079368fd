// A file of texts: labels for each, with progress, and a table to take away.

import { ask, modelPath, patience } from "./api.js";
import { request } from "./code.js";
import { announce, byId, count, counted, download, el, scored, shortened, show, split } from "./dom.js";
import { asCsv, asJsonLines, read } from "./files.js";
import { open } from "./label.js";
import { change, onChange, server, state } from "./state.js";

const TEXTS = 64; // that are asked for together,
const CHARACTERS = 100_000; // as long as they are not longer
const ROWS = 100; // on the page
const LARGEST = 50_000_000; // bytes

let table = null; // as `read` gives it
let results = []; // of the rows that are done: lists of labels, null where the server refused
let problems = new Map(); // row -> why
let running = null;
let began, doneBefore;

export function start() {
  byId("file").addEventListener("change", (event) => {
    const file = event.target.files[0];
    event.target.value = ""; // so that the same file can be chosen again
    if (file) take(file);
  });
  byId("paste").addEventListener("input", (event) => load("", event.target.value));
  byId("column").addEventListener("change", (event) => {
    table.column = Number(event.target.value);
    reset();
  });
  byId("go").addEventListener("click", run);
  byId("cancel").addEventListener("click", () => running?.abort());
  byId("save-csv").addEventListener("click", () => save("csv", "text/csv", asCsv));
  byId("save-jsonl").addEventListener("click", () => save("jsonl", "application/x-ndjson", asJsonLines));
  onChange((what) => {
    // Answers to other questions are not those of this table.
    if (table && ["model", "k", "threshold", "exclude"].some((name) => what.has(name))) reset();
  });
  acceptDrops();
}

/** A file may be dropped anywhere. */
function acceptDrops() {
  let depth = 0; // of elements that the file is over
  const over = (on) => document.body.classList.toggle("dropping", on);
  const hasFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => hasFile(event) && over(++depth > 0));
  addEventListener("dragleave", (event) => hasFile(event) && over(--depth > 0));
  addEventListener("dragover", (event) => hasFile(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    depth = 0;
    over(false);
    const file = event.dataTransfer?.files[0];
    if (!file) return;
    event.preventDefault();
    change({ tab: "many" });
    take(file);
  });
}

async function take(file) {
  byId("paste").value = "";
  if (file.size > LARGEST) {
    refuse(`${file.name} has ${count(Math.round(file.size / 1e6))} MB; the page takes up to ${LARGEST / 1e6}. Use longtail predict --input.`);
    return;
  }
  load(file.name, await file.text());
}

function load(name, content) {
  running?.abort();
  if (!content.trim()) {
    table = null;
    show(byId("job"), false);
    refuse(name ? `${name} is empty.` : "");
    return;
  }
  try {
    table = read(name, content);
  } catch (problem) {
    table = null;
    show(byId("job"), false);
    refuse(problem.message);
    return;
  }
  refuse("");
  const column = byId("column");
  column.replaceChildren(...table.columns.map((name, n) => el("option", { value: n }, shortened(name, 40))));
  column.value = table.column;
  show(byId("column-option"), table.columns.length > 1);
  show(byId("job"), true);
  reset();
}

function refuse(why) {
  byId("file-problem").textContent = why;
  show(byId("file-problem"), why !== "");
}

function reset() {
  running?.abort();
  running = null;
  results = [];
  problems = new Map();
  byId("job-title").textContent = table.name
    ? `${counted(table.rows.length, "text")} from ${table.name}`
    : counted(table.rows.length, "pasted text");
  const body = byId("rows").tBodies[0];
  body.replaceChildren(
    ...table.rows.slice(0, ROWS).map((row, n) =>
      el(
        "tr",
        {},
        el("td", {}, count(n + 1)),
        el("td", { dir: "auto" }, shortened(row[table.column], 200)),
        el("td", {}),
      ),
    ),
  );
  byId("rows-more").textContent =
    table.rows.length > ROWS ? `The first ${ROWS} are shown; the download has all ${count(table.rows.length)}.` : "";
  tell("");
}

function tell(text) {
  const done = results.length;
  const active = running !== null;
  byId("job-says").textContent = text;
  byId("progress").max = table.rows.length;
  byId("progress").value = done;
  show(byId("progress"), active || (done > 0 && done < table.rows.length));
  show(byId("cancel"), active);
  show(byId("go"), !active && done < table.rows.length);
  byId("go").textContent = done ? "Go on" : "Find labels";
  show(byId("downloads"), !active && done > 0);
}

async function run() {
  if (!server.about) return;
  const mine = (running = new AbortController());
  began = performance.now();
  doneBefore = results.length;
  let tries = 0;
  let size = TEXTS;
  tell("Starting …");
  byId("cancel").focus();
  while (results.length < table.rows.length) {
    const rows = chunk(results.length, size);
    const texts = rows.map((row) => row[table.column]).filter((text) => text.trim());
    let found = { results: [] };
    try {
      // What is known is known of the one text, not of these.
      const body = request(texts, { ...state, known: [] });
      if (texts.length) found = await ask(modelPath(state.model, "/predict"), { body, signal: mine.signal });
      tries = 0;
    } catch (problem) {
      if (mine.signal.aborted) return stopped(mine);
      if (problem.passes) {
        const wait = Math.max(1, patience(problem, tries++));
        tell(`${problem.kind === "busy" ? "The server is busy" : "The server does not answer"}; going on in ${Math.ceil(wait)} s. ${progress()}`);
        await pause(wait, mine.signal);
        if (mine.signal.aborted) return stopped(mine);
        continue;
      }
      if (problem.kind === "token" || problem.kind === "missing") {
        running = null;
        return tell(problem.message);
      }
      if (rows.length > 1) {
        size = 1; // to find the text that it refuses
        continue;
      }
      problems.set(results.length, problem.message);
      results.push(null);
      showRow(results.length - 1);
      tell(progress());
      continue;
    }
    if (mine.signal.aborted) return stopped(mine);
    const answers = found.results[Symbol.iterator]();
    for (const row of rows) {
      results.push(row[table.column].trim() ? answers.next().value : []);
      showRow(results.length - 1);
    }
    size = Math.min(TEXTS, size * 2);
    tell(progress());
  }
  running = null;
  const failed = problems.size ? ` ${counted(problems.size, "text")} refused.` : "";
  const took = performance.now() - began;
  const time = took < 1000 ? `${Math.ceil(took)} ms` : `${(took / 1000).toFixed(1)} s`;
  tell(`Done: ${counted(table.rows.length, "text")} in ${time}.${failed}`);
  announce(byId("job-says").textContent, 50);
  byId("save-csv").focus();
}

function stopped(mine) {
  if (running !== mine) return; // another file took its place
  running = null;
  tell(`Cancelled after ${count(results.length)} of ${counted(table.rows.length, "text")}.`);
  byId("go").focus();
}

function chunk(from, size) {
  const rows = [];
  let characters = 0;
  for (const row of table.rows.slice(from, from + size)) {
    characters += row[table.column].length;
    if (rows.length && characters > CHARACTERS) break;
    rows.push(row);
  }
  return rows;
}

function progress() {
  const done = results.length - doneBefore;
  const left = table.rows.length - results.length;
  const seconds = (((performance.now() - began) / 1000) * left) / Math.max(done, 1);
  const soon = done && seconds >= 2 ? `, about ${count(Math.ceil(seconds))} s left` : "";
  return `${count(results.length)} of ${count(table.rows.length)}${soon}`;
}

function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

function showRow(n) {
  const row = byId("rows").tBodies[0].rows[n];
  if (!row) return;
  const { calibrated } = server.about.abilities;
  const found = results[n];
  row.cells[2].replaceChildren(
    ...(found === null
      ? [el("span", { class: "problem" }, problems.get(n))]
      : found.length
        ? found.map((one) => {
            server.names.set(one.label, one.name);
            return el(
              "button",
              { type: "button", class: "chip", title: one.name, onclick: () => open(one.label) },
              el("bdi", {}, shortened(split(one.name).word, 32)),
              el("small", {}, scored(one.score, calibrated)),
            );
          })
        : [el("span", { class: "muted" }, "none")]),
  );
}

function save(ending, type, form) {
  const name = table.name.replace(/\.[^.]*$/, "") || "texts";
  download(`${name}-labels.${ending}`, type, form(table, results));
}
