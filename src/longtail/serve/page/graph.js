// The labels around a label, drawn. Each can be walked to: by mouse, by touch, or with the arrow keys and Enter.

import { el, shortened, split, svg } from "./dom.js";

const WIDTH = 400;
const CENTRE = { x: WIDTH / 2, y: 0 };
const [ACROSS, DOWN] = [145, 122]; // how far the farthest neighbour is
const LINE = 15; // characters of a name in a line
export const MOST = 8; // neighbours that have room
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

let last = new Map(); // label -> where it was drawn, so that what stays is seen to move

/**
 * found: {label, name, neighbours}.  walk(label): is called when one is chosen.
 * before: {label, name} of the label one came from; it is drawn too, as the way back.
 */
export function draw(found, before, walk) {
  const near = found.neighbours.slice(0, MOST);
  if (before && before.label !== found.label && !near.some((one) => one.label === before.label)) {
    near.splice(MOST - 1, near.length, { ...before, score: null });
  }
  const scores = near.map((one) => one.score).filter((score) => score !== null);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  // From 0 (the nearest) to 1.
  const far = (one) => (one.score === null ? 1 : high > low ? (high - one.score) / (high - low) : 0);
  const places = near.map((one, n) => {
    const angle = (2 * Math.PI * n) / near.length - Math.PI / 2;
    const part = 0.76 + 0.24 * far(one);
    return { x: CENTRE.x + ACROSS * part * Math.cos(angle), y: CENTRE.y + DOWN * part * Math.sin(angle) };
  });

  const lines = near.map((one, n) =>
    svg("line", {
      x1: CENTRE.x,
      y1: CENTRE.y,
      x2: places[n].x,
      y2: places[n].y,
      class: one.score === null ? "edge back" : "edge",
      "stroke-width": (1 + 2.5 * (1 - far(one))).toFixed(1),
    }),
  );
  const nodes = near.map((one, n) => {
    const way = one.label === before?.label;
    const score = one.score === null ? "" : `, ${one.score.toFixed(3)}`;
    return node(one.name, places[n], way ? "node back" : "node", {
      role: "button",
      tabindex: n === 0 ? "0" : "-1",
      "aria-label": `${split(one.name).word}${score}${way ? ", the way back" : ""}`,
      "data-label": one.label,
      onclick: () => walk(one.label, one.name),
      onkeydown: (event) => key(event, nodes, n, () => walk(one.label, one.name)),
    });
  });
  const middle = node(found.name, CENTRE, "node here", { "aria-hidden": "true" });
  // As high as what is drawn, and two lines of a name above and below.
  const top = Math.min(CENTRE.y - 12, ...places.map(({ y }) => y - 34));
  const bottom = Math.max(CENTRE.y + 48, ...places.map(({ y }) => y + 46));
  const drawing = svg(
    "svg",
    {
      class: "graph",
      viewBox: `0 ${top} ${WIDTH} ${bottom - top}`,
      role: "group",
      "aria-label": `Labels near ${split(found.name).word}. Arrow keys move, Enter walks there.`,
    },
    svg("g", { class: "edges", "aria-hidden": "true" }, ...lines),
    middle,
    ...nodes,
  );
  const moves = new Map([[found.label, CENTRE], ...near.map((one, n) => [one.label, places[n]])]);
  if (!still()) {
    animate(middle, last.get(found.label), CENTRE);
    near.forEach((one, n) => animate(nodes[n], last.get(one.label) ?? CENTRE, places[n]));
    lines.forEach((line) => line.animate([{ opacity: 0 }, { opacity: 0, offset: 0.5 }, { opacity: 1 }], 420));
  }
  last = moves;
  return el("div", { class: "graph-box" }, drawing);
}

function animate(group, from, to) {
  if (!from || (from.x === to.x && from.y === to.y)) return;
  const place = ({ x, y }) => `translate(${x}px, ${y}px)`;
  group.animate([{ transform: place(from) }, { transform: place(to) }], { duration: 420, easing: "cubic-bezier(.2,.8,.2,1)" });
}

function node(name, { x, y }, kind, set) {
  const { word, definition } = split(name);
  const here = kind.includes("here");
  const said = lines(word);
  // Names stand outside: above what is high, below the others.
  const above = y < CENTRE.y - 1;
  const start = above ? -14 - 14 * (said.length - 1) : 24;
  return svg(
    "g",
    { class: kind, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, ...set },
    svg("title", {}, definition ? `${word} - ${definition}` : word),
    svg("circle", { r: here ? 11 : 20, class: "touch" }),
    svg("circle", { r: here ? 11 : 7 }),
    ...said.map((line, n) => svg("text", { y: start + 14 * n, "text-anchor": "middle" }, line)),
  );
}

/** A name in at most two lines. */
function lines(word) {
  if ([...word].length <= LINE) return [word];
  const words = word.split(" ");
  let first = words.shift();
  while (words.length && [...`${first} ${words[0]}`].length <= LINE) first += ` ${words.shift()}`;
  const rest = words.join(" ");
  return rest ? [shortened(first, LINE), shortened(rest, LINE)] : [shortened(first, LINE)];
}

function key(event, nodes, at, walk) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) focus(nodes, (at + step + nodes.length) % nodes.length);
  else if (event.key === "Home") focus(nodes, 0);
  else if (event.key === "End") focus(nodes, nodes.length - 1);
  else if (event.key === "Enter" || event.key === " ") walk();
  else return;
  event.preventDefault();
}

function focus(nodes, at) {
  nodes.forEach((one, n) => one.setAttribute("tabindex", n === at ? "0" : "-1"));
  nodes[at].focus();
}
