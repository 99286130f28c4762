// Keeps the page as it is now: asks again when the server says that something happened, and now and
// then for figures; where it says nothing, every two seconds.
"use strict";
const KINDS = ["notice", "plan", "outcome", "revision", "source", "pass", "reset"];
const FIGURES_MS = 10_000;
const LISTEN_AGAIN_MS = 30_000; // the server has room for some listeners only
let tag = null;
let asked = 0;
let asking = false;
let events = null;
let listened = 0;
let soon = null;

async function refresh() {
  if (document.hidden || asking) return;
  asking = true;
  asked = Date.now();
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch(location.pathname, { headers, cache: "no-store" });
    if (answer.status === 401) return location.reload(); // the form
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag");
    show(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* it is away: what is shown stays */ } finally {
    asking = false;
  }
}

function show(fresh) {
  const ask = document.getElementById("ask");
  const asked = fresh.getElementById("ask"); // what is being typed stays
  if (ask && asked && ask.dataset.refusal !== asked.dataset.refusal) ask.replaceWith(asked);
  const main = document.querySelector("main");
  const next = fresh.querySelector("main");
  if (main.innerHTML === next.innerHTML) return;
  const focused = document.activeElement?.getAttribute("href");
  const open = [...main.querySelectorAll("details")].map((each) => each.open);
  main.replaceWith(next);
  next.querySelectorAll("details").forEach((each, i) => { each.open = open[i] ?? false; });
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

function listen() {
  events?.close();
  events = null;
  if (document.hidden) return;
  listened = Date.now();
  events = new EventSource("/v1/events");
  for (const kind of KINDS) {
    events.addEventListener(kind, () => { soon ??= setTimeout(() => { soon = null; refresh(); }, 200); });
  }
}

setInterval(() => {
  if (events?.readyState === EventSource.CLOSED && Date.now() - listened > LISTEN_AGAIN_MS) listen();
  const isTold = events?.readyState === EventSource.OPEN;
  if (!isTold || Date.now() - asked > FIGURES_MS) refresh();
}, 2000);
document.addEventListener("visibilitychange", () => { listen(); refresh(); });
listen();
