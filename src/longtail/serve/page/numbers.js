// What there is to know about a model: sizes, what was measured, how frequent its labels are, its settings.

import { byId, count, counted, el, svg } from "./dom.js";
import { onChange, server, state } from "./state.js";

const ABILITIES = {
  explain: "says why",
  known: "uses known labels",
  neighbours: "knows labels near a label",
  examples: "shows training documents",
  calibrated: "scores are probabilities",
  corrections: "keeps corrections",
};

// Metrics that people ask for first, in this order; the others are one click away.
const FIRST = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5", "R@10", "R@100"];

export function start() {
  onChange((what) => {
    if (what.has("about") || what.has("tab")) render();
  });
}

function render() {
  const { about } = server;
  const box = byId("numbers");
  if (!about || state.tab !== "model" || box.dataset.of === `${about.name} ${about.version}`) return;
  box.dataset.of = `${about.name} ${about.version}`;
  byId("model-title").textContent = about.name;
  const abilities = Object.entries(ABILITIES).filter(([name]) => about.abilities[name]);
  const documents = about.metrics?.documents;
  box.replaceChildren(
    ...[
      el(
        "dl",
        { class: "facts" },
        fact("Labels", count(about.labels)),
        fact("Method", about.recipe),
        about.data && fact("Trained on", about.data),
        fact("Version", el("code", {}, about.version)),
      ),
      abilities.length ? el("ul", { class: "abilities" }, ...abilities.map(([, text]) => el("li", {}, text))) : null,
      el("h2", {}, "How good"),
      ...(about.metrics?.scores
        ? [
            el(
              "p",
              { class: "muted" },
              `In percent${documents ? `, on ${counted(documents, "document")} that were held out of training` : ""}.`,
            ),
            ...scores(about.metrics),
            ...byFrequency(about.metrics.by_frequency),
          ]
        : [
            el(
              "p",
              { class: "muted" },
              "Nothing was measured when it was trained. ",
              el("code", {}, "longtail train --holdout 0.1"),
              " keeps documents aside and measures on them.",
            ),
          ]),
      ...(about.frequencies?.length
        ? [
            el("h2", {}, "How frequent its labels are"),
            el("p", { class: "muted" }, tailSaid(about.frequencies)),
            el(
              "div",
              { class: "scroll", tabindex: "0", role: "region", "aria-label": "Frequencies of labels" },
              histogram(about.frequencies, {}),
            ),
            asTable("As a table", ["Training documents", "Labels"], about.frequencies.map((bin) => [between(bin), count(bin.labels)])),
          ]
        : []),
      el("h2", {}, "Settings"),
      ...settings(about.settings ?? {}),
    ].filter(Boolean),
  );
}

function fact(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

const between = ({ from, to }) => (from === to ? count(from) : `${count(from)}–${count(to)}`);

function tailSaid(bins) {
  const all = bins.reduce((sum, bin) => sum + bin.labels, 0);
  const few = bins.filter((bin) => bin.to <= 4).reduce((sum, bin) => sum + bin.labels, 0);
  return `${Math.round((100 * few) / Math.max(all, 1))}% of the labels have at most 4 training documents.`;
}

/** Metrics as a table with a bar for each, baselines beside them. */
function scores({ scores: found, baselines = {} }) {
  const names = Object.keys(found).filter((name) => typeof found[name] === "number");
  const first = FIRST.filter((name) => names.includes(name));
  const rest = names.filter((name) => !first.includes(name));
  const others = Object.keys(baselines);
  const row = (name) => [
    el("th", { scope: "row" }, name),
    el("td", { class: "number" }, found[name].toFixed(2)),
    bar(found[name] / 100),
    ...others.map((other) => el("td", { class: "number muted" }, baselines[other][name]?.toFixed(2) ?? "")),
  ];
  const heads = ["Metric", "This model", null, ...others];
  const more = rest.map((name) => [name, found[name].toFixed(2), ...others.map((other) => baselines[other][name]?.toFixed(2) ?? "")]);
  return [
    chart("Metrics", heads, (first.length ? first : names).map(row)),
    first.length && rest.length
      ? asTable(`${counted(rest.length, "more metric")}`, ["Metric", "This model", ...others], more)
      : null,
  ];
}

/** What labels of each frequency add to a metric. */
function byFrequency(found) {
  if (!found?.bins) return [];
  const metrics = ["P@5", "PSP@5"].filter((name) => found[name]);
  const rows = found.bins.map((bin, n) => [
    el("th", { scope: "row" }, bin.replace("-", "–")),
    el("td", { class: "number" }, count(found.n_labels[n])),
    ...metrics.flatMap((name) => [
      el("td", { class: "number" }, found[name][n].toFixed(2)),
      bar(found[name][n] / Math.max(...found[name], 1e-9)),
    ]),
  ]);
  return [
    el("h2", {}, "Where it comes from"),
    el("p", { class: "muted" }, "What labels add to the metrics, by their number of training documents."),
    chart("Metrics by frequency", ["Documents", "Labels", ...metrics.flatMap((name) => [name, null])], rows),
  ];
}

/** A cell with a bar; what it says is in the cell before. */
function bar(part) {
  const filled = el("i");
  filled.style.inlineSize = `${(100 * Math.max(0, Math.min(1, part))).toFixed(2)}%`;
  return el("td", { class: "chart", "aria-hidden": "true" }, el("div", { class: "bar" }, filled));
}

/** heads: null above a bar. */
function chart(title, heads, rows) {
  const head = (name, n) =>
    name === null
      ? el("td", { "aria-hidden": "true" })
      : el("th", { scope: "col", class: n ? "number" : null }, name);
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    el(
      "table",
      { class: "metrics" },
      el("thead", {}, el("tr", {}, ...heads.map(head))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row))),
    ),
  );
}

/**
 * Labels by their number of training documents.  bins: [{from, to, labels}].  at: the bin of this number of documents
 * stands out.
 */
export function histogram(bins, { small = false, at = null }) {
  const [width, height, below] = small ? [390, 88, 20] : [720, 240, 40];
  const step = width / bins.length;
  const most = Math.max(...bins.map((bin) => bin.labels), 1);
  const tall = height - below - (small ? 4 : 20);
  // Names of bins that would touch are left out; a small one names the first, the last and the one that stands out.
  const every = Math.ceil((64 * bins.length) / width);
  const found = at === null ? -1 : bins.findIndex((bin) => at >= bin.from && at <= bin.to);
  const named = (n) =>
    small ? n === found || ([0, bins.length - 1].includes(n) && Math.abs(n - found) * step > 72) : n % every === 0;
  // Names of the outermost bins are as far out as the picture reaches.
  const besides = (n) => {
    if (small && n === 0) return { x: step * 0.12, "text-anchor": "start" };
    if (small && n === bins.length - 1) return { x: width - step * 0.12, "text-anchor": "end" };
    return { x: n * step + step / 2, "text-anchor": "middle" };
  };
  const bars = bins.map((bin, n) => {
    const size = bin.labels ? Math.max(2, (tall * bin.labels) / most) : 0;
    const x = n * step + step * 0.12;
    const middle = n * step + step / 2;
    return svg(
      "g",
      { class: n === found ? "here" : bin.to <= 4 ? "few" : "many" },
      svg("title", {}, `${between(bin)}: ${counted(bin.labels, "label")}`),
      svg("rect", { x, y: height - below - size, width: step * 0.76, height: size, rx: 3 }),
      small ? null : svg("text", { x: middle, y: height - below - size - 6, "text-anchor": "middle", class: "value" }, bin.labels ? count(bin.labels) : ""),
      named(n) ? svg("text", { ...besides(n), y: height - below + 15 }, between(bin)) : null,
    );
  });
  return svg(
    "svg",
    {
      class: small ? "histogram small" : "histogram",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label":
        at === null
          ? "Bars: how many labels have how many training documents"
          : `Bars: how many labels have how many training documents; this one has ${count(at)}`,
    },
    ...bars,
    small ? null : svg("text", { x: width / 2, y: height - 6, "text-anchor": "middle" }, "training documents of a label"),
  );
}

function asTable(title, heads, rows) {
  return el(
    "details",
    { class: "as-table" },
    el("summary", {}, title),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))))),
    ),
  );
}

/** A table per section; what stands outside of sections comes first. */
function settings(all) {
  const isSection = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const plain = Object.entries(all).filter(([, value]) => !isSection(value));
  const sections = Object.entries(all).filter(([, value]) => isSection(value));
  const table = (entries) =>
    el(
      "table",
      { class: "settings" },
      el(
        "tbody",
        {},
        ...entries.map(([name, value]) =>
          el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, el("code", {}, JSON.stringify(value)))),
        ),
      ),
    );
  const flat = (section, before = "") =>
    Object.entries(section).flatMap(([name, value]) =>
      isSection(value) ? flat(value, `${before}${name}.`) : [[`${before}${name}`, value]],
    );
  if (!plain.length && !sections.length) return [el("p", { class: "muted" }, "It has none.")];
  return [
    plain.length ? table(plain) : null,
    ...sections.map(([name, section]) =>
      el("details", { class: "section" }, el("summary", {}, name, el("small", {}, counted(flat(section).length, "setting"))), table(flat(section))),
    ),
  ];
}
