// Elements without HTML strings: what a server sends becomes text nodes and nothing else.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/**
 * An element. `set` has attributes; names that begin with "on" are listeners, true and false are boolean attributes.
 * Children that are null, false or "" are left out.
 */
export function el(name, set = {}, ...children) {
  return fill(document.createElement(name), set, children);
}

export function svg(name, set = {}, ...children) {
  return fill(document.createElementNS(SVG, name), set, children);
}

function fill(element, set, children) {
  for (const [name, value] of Object.entries(set)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child || child === 0));
  return element;
}

/** An icon of the sprite in index.html. What it means is said by the text beside it or the label of its button. */
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

export function show(element, visible) {
  element.hidden = !visible;
}

const integers = new Intl.NumberFormat("en");
export const count = (number) => integers.format(number);
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** "bicycle, bike - a wheeled vehicle" as its word, its other words and its definition; other names are all word. */
export function split(name) {
  const at = name.indexOf(" - ");
  if (at <= 0) return { word: name, others: "", definition: "" };
  const words = name.slice(0, at).split(", ");
  return { word: words[0], others: words.slice(1).join(", "), definition: name.slice(at + 3) };
}

export function shortened(text, length) {
  const characters = [...text];
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("").trimEnd()}…`;
}

/** A score for people: in percent where it is a probability. */
export const scored = (score, calibrated) => (calibrated ? `${(100 * score).toFixed(1)}%` : score.toFixed(3));

let saying;
/** Told to people who use a screen reader, once things have settled. */
export function announce(text, wait = 600) {
  clearTimeout(saying);
  saying = setTimeout(() => (byId("announcer").textContent = text), wait);
}

/** Whether it could be copied: browsers refuse on pages that are not from localhost or https. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    before?.focus();
    return copied;
  }
}

export function download(name, type, parts) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
