// Keeps a page current: the server sends its content whenever that changes, and sections that differ are replaced. Focus,
// opened details and scroll positions stay.
"use strict";

const page = document.body.dataset.live;
const main = document.getElementById("main");
const button = document.getElementById("pause");
// What the server sent last of each section. The document itself differs: details are opened in it.
const sent = new Map();
let source = null;
let paused = false;

for (const section of main.children) sent.set(section.id, section.outerHTML);

// Returns what finds the focused element again in a new section.
function focused(section) {
  const element = document.activeElement;
  if (!element || element === document.body || !section.contains(element)) return null;
  const label = (e) => (e.id ? "#" + e.id : e.getAttribute("href") || e.closest("details")?.id || "");
  const all = [...section.querySelectorAll(element.tagName)];
  const alike = all.filter((e) => label(e) === label(element)).indexOf(element);
  const tag = element.tagName, name = label(element);
  return (next) => [...next.querySelectorAll(tag)].filter((e) => label(e) === name)[alike];
}

// Whether replacing a section would take something from the user: text being entered, or a selection.
function inUse(section) {
  const element = document.activeElement;
  if (element && section.contains(element) && element.matches("input, select, textarea")) return true;
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && section.contains(selection.anchorNode);
}

function replace(section, html, next) {
  if (inUse(section)) return;
  sent.set(section.id, html);
  for (const details of section.querySelectorAll("details[id]")) {
    next.querySelector("#" + CSS.escape(details.id))?.toggleAttribute("open", details.open);
  }
  const scrolled = [...section.querySelectorAll("[id]")]
    .map(({ id, scrollLeft, scrollTop }) => ({ id, scrollLeft, scrollTop }))
    .filter((e) => e.scrollLeft || e.scrollTop);
  const find = focused(section);
  section.replaceWith(next);
  for (const { id, scrollLeft, scrollTop } of scrolled) {
    document.getElementById(id)?.scrollTo(scrollLeft, scrollTop);
  }
  if (find) find(next)?.focus({ preventScroll: true });
}

function update(content) {
  const next = new DOMParser().parseFromString(content, "text/html").body;
  const sections = [...next.children];
  const ids = (list) => [...list].map((e) => e.id).join(" ");
  if (ids(sections) !== ids(main.children)) {
    // Sections have come or gone: those that stay are moved, so that they keep their state.
    const known = new Map([...main.children].map((e) => [e.id, e]));
    const list = sections.map((e) => ({ id: e.id, html: e.outerHTML, next: e }));
    for (const [id, section] of known) if (!list.some((e) => e.id === id)) section.remove();
    let before = null;
    for (const { id, html, next } of list) {
      const section = known.get(id);
      if (section) { before = section; continue; }
      sent.set(id, html);
      if (before) before.after(next); else main.prepend(next);
      before = next;
    }
  }
  for (const section of sections) {
    const html = section.outerHTML;
    const now = document.getElementById(section.id);
    if (now && now !== section && sent.get(section.id) !== html) replace(now, html, section);
  }
}

function connect() {
  if (source || paused || document.hidden) return;
  source = new EventSource("/live?page=" + encodeURIComponent(page));
  source.addEventListener("content", (event) => update(JSON.parse(event.data)));
}

function disconnect() {
  source?.close();
  source = null;
}

if (page && button) {
  button.hidden = false;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (paused) disconnect(); else connect();
  });
  // A browser opens few connections to a host: pages out of sight hold none.
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", connect);
  connect();
}
