// Trouble that passes is told in one calm line, and tried again without being asked.

import { patience } from "./api.js";
import { byId, el, show } from "./dom.js";

const SAID = {
  unreachable: (problem) => problem.message,
  busy: () => "The server is busy.",
  broken: () => "The server had a problem.",
};

let tries = 0;
let again = null; // what is to be done again, if something is
let timer;

/** Say what is wrong; do `retry` again when that can help. */
export function trouble(problem, retry) {
  clearTimeout(timer);
  again = null;
  if (problem.kind === "token") {
    say("");
    show(byId("token"), true);
    byId("token-value").focus();
    again = retry;
    return;
  }
  if (!problem.passes) {
    say(problem.message);
    return;
  }
  again = retry;
  countDown(SAID[problem.kind](problem), Math.max(1, Math.ceil(patience(problem, tries++))));
}

export function fine() {
  clearTimeout(timer);
  tries = 0;
  again = null;
  say("");
  show(byId("token"), false);
}

export function now() {
  clearTimeout(timer);
  const retry = again;
  again = null;
  retry?.();
}

function countDown(what, seconds) {
  say(what, seconds);
  timer = setTimeout(() => (seconds > 1 ? countDown(what, seconds - 1) : now()), 1000);
}

const text = el("span");
// Numbers that count down every second would be read out every second.
const wait = el("span", { "aria-hidden": "true" });
const button = el("button", { type: "button", class: "plain small", onclick: now }, "Try now");

export function say(what, seconds = 0) {
  const notice = byId("notice");
  if (!notice.firstChild) notice.append(text, wait, button);
  if (text.textContent !== what) text.textContent = what;
  wait.textContent = seconds ? ` Trying again in ${seconds} s.` : "";
  show(button, seconds > 0);
  show(notice, what !== "");
}

addEventListener("online", now);
