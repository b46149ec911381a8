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

// The bar that says that the cluster does not answer, hidden while it does.
const lost = document.getElementById("lost");
const RETRY_MS = 5000;
let lostAt = null;
let retry = 0;

function say(text) {
  document.body.classList.toggle("stale", text !== "");
  lost.hidden = text === "";
  // The same text again would be read out again.
  if (lost.textContent !== text) lost.textContent = text;
}

// Says that the page's session has ended. A user of the API logs in with a token, the administrator opens the console's URL.
function sayLoggedOut(cluster) {
  const user = document.body.dataset.user;
  const where = cluster ? `the cluster ${cluster}` : document.body.dataset.program;
  if (!user) {
    say(`This page's session has ended, or it is of an earlier start of the cluster ${cluster}. Open its console anew: evenkeel console ${cluster}`);
    return;
  }
  const text = `${user} is no longer logged in to ${where}. `;
  const link = Object.assign(document.createElement("a"), { href: "/login", textContent: "Log in again" });
  say(text + link.textContent);
  if (!lost.querySelector("a")) lost.replaceChildren(text, link);
}

// Finds out what an error of the stream means: the server may be gone, may have started anew, or have too many pages open.
async function check() {
  const cluster = document.body.dataset.cluster;
  let answer = null;
  try {
    answer = await fetch(location.href, { cache: "no-store" });
  } catch {
    // Nothing answers.
  }
  if (!lostAt || paused || document.hidden) return;
  const time = lostAt.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  if (!answer && !cluster) say(`No connection to ${document.body.dataset.program} since ${time}. A forwarded port may have ended.`);
  else if (!answer) say(`No connection to the cluster ${cluster} since ${time}. It may have stopped: evenkeel list`);
  else if (answer.status === 401) sayLoggedOut(cluster);
  else say("");
  clearTimeout(retry);
  retry = setTimeout(() => { disconnect(); connect(); }, RETRY_MS);
}

function connect() {
  if (source || paused || document.hidden) return;
  const opened = new EventSource("/live?page=" + encodeURIComponent(page));
  source = opened;
  opened.addEventListener("content", (event) => update(JSON.parse(event.data)));
  opened.addEventListener("open", () => {
    clearTimeout(retry);
    lostAt = null;
    say("");
  });
  opened.addEventListener("error", () => {
    // An error of a stream that was closed here means nothing. The browser's own retries would go unseen.
    if (source !== opened) return;
    disconnect();
    lostAt ??= new Date();
    check();
  });
}

function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

if (page && button && lost) {
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
