// Shows the end of a service's log, and what comes, while it is looked at.
"use strict";
{ // page.js has names of its own
  const LINES = 500;
  const shown = document.getElementById("log");
  const query = new URLSearchParams({ service: shown.parentElement.dataset.service, lines: "100" });
  let lines = [];
  let asking = false;
  async function more() {
    if (document.hidden || asking) return;
    asking = true;
    try {
      const answer = await fetch(`/v1/logs?${query}`, { cache: "no-store" });
      if (answer.ok) {
        query.delete("lines");
        query.set("after", answer.headers.get("Fleet-Log-Cursor"));
        add(await answer.text());
      } else if (lines.length === 0) {
        show((await answer.json()).error.message);
      }
    } catch { /* it is away: what is shown stays */ }
    asking = false;
  }
  function add(text) {
    if (text) lines = lines.concat(text.replace(/\n$/, "").split("\n")).slice(-LINES);
    show(lines.join("\n"));
  }
  function show(text) {
    if (!shown.hidden && shown.textContent === text) return;
    const atEnd = shown.hidden || shown.scrollHeight - shown.scrollTop - shown.clientHeight < 40;
    shown.hidden = false;
    shown.textContent = text;
    if (atEnd) shown.scrollTop = shown.scrollHeight;
  }
  setInterval(more, 2000);
  document.addEventListener("visibilitychange", more);
  more();
}
