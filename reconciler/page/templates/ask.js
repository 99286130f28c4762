// Shows an answer as it comes, below its question. Without this the browser shows it by itself.
"use strict";
{ // page.js has names of its own
  const shown = document.getElementById("answer");
  let asking = null;
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("#ask form");
    if (!form) return;
    event.preventDefault();
    if (asking) return asking.abort();
    asking = new AbortController();
    const button = form.querySelector("button");
    button.textContent = "Stop";
    shown.ariaBusy = "true"; // what reads it aloud waits for the whole of it
    shown.textContent = "";
    shown.hidden = false;
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.action, { method: "POST", body, signal: asking.signal });
      if (answer.status === 401) return location.reload(); // the form
      if (answer.ok) await show(answer.body.pipeThrough(new TextDecoderStream()).getReader());
      else shown.textContent = (await answer.json()).error.message;
    } catch (error) {
      if (error.name !== "AbortError") shown.append(`\n[no answer: ${error.message}]`);
    } finally {
      asking = null;
      button.textContent = "Ask";
      shown.ariaBusy = "false";
    }
  });
  async function show(pieces) {
    for (let next = await pieces.read(); !next.done; next = await pieces.read()) {
      const atEnd = shown.scrollHeight - shown.scrollTop - shown.clientHeight < 40;
      shown.append(next.value);
      if (atEnd) shown.scrollTop = shown.scrollHeight;
    }
  }
}
