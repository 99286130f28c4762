// Keeps the page as it is now: asks again while it is looked at, and replaces what is shown.
"use strict";
let tag = null;
async function refresh() {
  if (document.hidden) return;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch(location.pathname, { headers, cache: "no-store" });
    if (answer.status === 401) return location.reload(); // the form
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main");
    if (main.innerHTML === fresh.querySelector("main").innerHTML) return;
    const focused = document.activeElement?.getAttribute("href");
    main.replaceWith(fresh.querySelector("main"));
    if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  } catch { /* it is away: what is shown stays */ }
}
setInterval(refresh, 2000);
document.addEventListener("visibilitychange", refresh);
