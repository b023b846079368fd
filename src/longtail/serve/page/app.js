// The page: which model, which tab, which theme. Each tab is a module of its own.

import { ask, modelPath, setToken } from "./api.js";
import * as askTab from "./ask.js";
import { byId, el, icon, show } from "./dom.js";
import * as label from "./label.js";
import * as many from "./many.js";
import { fine, now, trouble } from "./notice.js";
import * as numbers from "./numbers.js";
import { change, onChange, refreshed, server, start, state } from "./state.js";

// ---- models

/** Ask which models there are, and about the chosen one, until the server answers. */
async function loadModels() {
  try {
    const { models } = await ask("models");
    const select = byId("model");
    select.replaceChildren(...models.map(({ name }) => el("option", { value: name }, name)));
    select.disabled = models.length < 2;
    if (!models.length) throw new Error("This server has no model.");
    if (!models.some(({ name }) => name === state.model)) {
      // Ids in the address are those of the model that it names, if it names one.
      change({ model: models[0].name, ...(state.model && { known: [], exclude: [], label: "" }) });
    }
    server.models = models;
    select.value = state.model;
    await loadModel();
    fine();
  } catch (problem) {
    trouble(problem, loadModels);
  }
}

async function loadModel() {
  const about = await ask(modelPath(state.model));
  if (about.name !== state.model) return; // another was chosen meanwhile
  server.about = about;
  document.title = `${about.name} · longtail`;
  refreshed();
}

function chooseModel() {
  // Ids of labels belong to a model.
  server.about = null;
  server.names.clear();
  change({ model: byId("model").value, known: [], exclude: [], label: "" });
}

// ---- tabs

const tabs = [...document.querySelectorAll("[role=tab]")];

function showTab() {
  for (const tab of tabs) {
    const chosen = tab.dataset.tab === state.tab;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    show(byId(tab.getAttribute("aria-controls")), chosen);
  }
  byId(state.tab === "many" ? "settings-many" : "settings-ask").append(byId("settings"));
  byId("settings").classList.toggle("short", state.tab === "many");
}

function moveTab(event) {
  const at = tabs.indexOf(event.target);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const tab = tabs[(to + tabs.length) % tabs.length];
  tab.focus();
  change({ tab: tab.dataset.tab }, { step: true });
}

// ---- theme

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  byId("theme").replaceChildren(icon(theme));
  byId("theme").setAttribute("aria-label", `Theme: ${THEMES[theme]}`);
  byId("theme").title = `Theme: ${THEMES[theme]}`;
}

function nextTheme() {
  const root = document.documentElement;
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(root.dataset.theme ?? "auto") + 1) % names.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("longtail.theme", next);
  } catch {
    // A browser that keeps nothing: the choice holds for this visit.
  }
  showTheme();
}

// ---- start

start();
onChange((what) => {
  if (what.has("tab")) showTab();
  if (what.has("model")) {
    byId("model").value = state.model;
    if (server.models.length) {
      server.about = null;
      loadModel().catch((problem) => (problem.kind === "missing" ? loadModels() : trouble(problem, loadModels)));
    }
  }
});
byId("model").addEventListener("change", chooseModel);
byId("theme").addEventListener("click", nextTheme);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  change({ tab: "ask" });
  byId("text").focus();
});
byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token-value").value.trim());
  byId("token-value").value = "";
  show(byId("token"), false);
  now();
});
for (const tab of tabs) {
  tab.addEventListener("click", () => change({ tab: tab.dataset.tab }, { step: true }));
  tab.addEventListener("keydown", moveTab);
}
// While a model is exchanged, answers may come from both for a moment.
let asked = -Infinity;
addEventListener("longtail-models", () => {
  if (performance.now() - asked < 2000) return;
  asked = performance.now();
  loadModels();
});
showTheme();
showTab();
askTab.start();
label.start();
many.start();
numbers.start();
loadModels();
if (matchMedia("(hover: hover)").matches && state.tab === "ask" && !state.label) byId("text").focus();
