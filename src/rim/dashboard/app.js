// Refreshes the parts of a page that show the ledger when the server says that something has changed. Without script, the pages
// work as they are. A part in which somebody is writing is not replaced.
(() => {
  "use strict";
  // What is shown, and the commands to it.
  const parts = () => ["live", "commands"].map((name) => document.getElementById(name)).filter(Boolean);
  const address = document.getElementById("live")?.dataset.events;
  if (!address || !window.EventSource) return;

  const isWritten = (field) => field.value !== field.defaultValue;
  const isInUse = (part) =>
    part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select, button")
    || [...part.querySelectorAll("input:not([type=hidden]), textarea")].some(isWritten);

  // The new part, with what is unfolded now unfolded, and the focus where it is now.
  const focusable = (part) => [...part.querySelectorAll("a, summary, [tabindex]")];
  const replace = (shown, fresh) => {
    const focus = focusable(shown).indexOf(document.activeElement);
    const open = [...shown.querySelectorAll("details")].map((details) => details.open);
    const part = document.importNode(fresh, true);
    part.querySelectorAll("details").forEach((details, place) => { details.open = open[place] ?? details.open; });
    shown.replaceWith(part);
    if (focus >= 0) focusable(part)[focus]?.focus({ preventScroll: true });
    part.dataset.refreshed = "true";
  };

  let underWay = false, again = false;
  const refresh = async () => {
    again = underWay;
    if (underWay || parts().every(isInUse)) return;
    underWay = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.redirected) return location.reload(); // the session is over
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of answer.ok ? parts() : []) {
        const fresh = page.getElementById(part.id);
        if (fresh && !isInUse(part)) replace(part, fresh);
      }
    } catch {
      // The server is away. The stream is opened again by the browser, and tells what has changed since.
    } finally {
      underWay = false;
      if (again) refresh();
    }
  };

  let soon, source;
  const changed = () => { clearTimeout(soon); soon = setTimeout(refresh, 100); };
  const listen = () => {
    source = new EventSource(address);
    for (const kind of ["run", "question", "answer", "call", "approval", "gap"]) source.addEventListener(kind, changed);
  };
  // A browser has few connections to a server: a page that nobody sees needs none. The new stream begins with what there is
  // then: what has ended while nobody looked is not told, so the page is loaded anew.
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (document.hidden) return;
    listen();
    changed();
  });
  listen();
})();
