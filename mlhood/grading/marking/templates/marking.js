"use strict";
// Without this script the page works as a form; with it, every key press is stored at once.
const links = document.body.dataset;
const form = document.querySelector("form");
const state = document.querySelector("#status");
let queue = Promise.resolve(); // saves are sent one after the other, so that the last key press counts
let waiting = 0;
let leaving = false;
let failed = state !== null && state.className === "unsaved";

function show(kind, text) {
  state.className = kind;
  state.textContent = text;
}

async function send(body) {
  try {
    const answer = await fetch(form.dataset.save, { method: "POST", body, keepalive: true });
    const result = answer.headers.get("Content-Type")?.startsWith("application/json") ? await answer.json() : {};
    if (!answer.ok) throw new Error(result.error ?? `the server answers ${answer.status}`);
    failed = false;
    return result.points === null ? ["", "not marked"] : ["saved", `✓ saved: ${result.points} of ${result.most}`];
  } catch (error) {
    failed = true;
    const gone = error instanceof TypeError;
    return ["unsaved", `✗ NOT SAVED: ${gone ? "the server does not answer; is `mlhood marks` still running?" : error.message}`];
  }
}

function save() {
  const body = new URLSearchParams(new FormData(form));
  waiting += 1;
  show("saving", "… saving");
  queue = queue.then(() => send(body)).then((shown) => {
    waiting -= 1;
    if (waiting === 0) show(...shown);
  });
}

async function go(address) {
  if (!address) return;
  leaving = true; // a key that is pressed before the next page is there must not count for this student
  await queue;
  leaving = !failed;
  if (leaving) location.assign(address);
}

// A digit that would make too many points, or a second decimal, begins a new number.
function typeDigit(event) {
  const field = form.elements.points;
  if (document.activeElement !== field) {
    field.focus();
    field.select();
  }
  const before = field.value.slice(0, field.selectionStart);
  const after = field.value.slice(field.selectionEnd);
  const typed = (before + event.key + after).replace(",", ".");
  if (Number(typed) <= Number(form.dataset.most) && !/\.\d\d/.test(typed)) return;
  event.preventDefault();
  if (Number(event.key) > Number(form.dataset.most)) return show("unsaved", `✗ NOT SAVED: ${event.key} points are too many; they are as before`);
  field.value = event.key;
  save();
}

const KEYS = {
  ArrowRight: () => go(links.next),
  n: () => go(links.next),
  ArrowLeft: () => go(links.previous),
  p: () => go(links.previous),
  u: () => go(links.unmarked ?? links.next),
  o: () => go(links.overview),
  ArrowDown: () => scrollBy(0, 80),
  ArrowUp: () => scrollBy(0, -80),
};
const FORM_KEYS = {
  Enter: () => go(links.next),
  c: () => form.elements.comment.focus(),
  a: () => {
    if (form.dataset.byChecks === undefined) return;
    form.elements.points.value = form.dataset.byChecks;
    save();
  },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (leaving) return event.preventDefault();
  if (form && event.target === form.elements.comment) {
    if (event.key === "Escape") form.elements.points.focus();
    return;
  }
  const onControl = event.target.closest("a, button, summary") !== null;
  const action = KEYS[event.key] ?? (form && !(onControl && event.key === "Enter") ? FORM_KEYS[event.key] : undefined);
  if (action) {
    event.preventDefault();
    action();
  } else if (form && /^[0-9]$/.test(event.key)) {
    typeDigit(event);
  }
});

if (form) {
  form.addEventListener("input", save);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(links.next);
  });
  window.addEventListener("beforeunload", (event) => {
    if (waiting || failed) event.preventDefault();
  });
  form.elements.points.select();
}
