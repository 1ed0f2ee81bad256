// Shared by all pages: the navigation, requests to the server, messages, and building of elements.

/** Return an element: element("a.class", { href: "x", onclick: f }, "text", child). The attributes are optional; those
 * that are null or false are left out. Text is never parsed as HTML. */
export function element(kind, ...content) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  if (tag === "button") made.type = "button";
  for (const [name, value] of Object.entries(content[0]?.constructor === Object ? content.shift() : {})) {
    if (isLeftOut(value)) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...content.flat().filter((child) => !isLeftOut(child)));
  return made;
}

function isLeftOut(value) {
  return value === null || value === undefined || value === false;
}

/** Return a paragraph in grey. */
export function hint(...text) {
  return element("p.hint", text);
}

/** Return "1 token" or "2,000 tokens". */
export function counted(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Fill a select box with [value, text] pairs. */
export function fillSelect(select, pairs, chosen = null) {
  select.replaceChildren(...pairs.map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
}

/** Fill a field set with buttons of which one is chosen. pairs: [value, text]. */
export function fillChoice(fieldset, pairs, chosen, onchange) {
  const buttons = pairs.map(([value, text]) => element("label",
    element("input", { type: "radio", name: fieldset.id, value, checked: value === chosen, onchange: () => onchange(value) }), text));
  fieldset.replaceChildren(fieldset.querySelector("legend"), ...buttons);
}

/** Return the response of the server. With `body`, send it as POST. Throws an Error with the server's message. */
export async function respond(path, body, { signal } = {}) {
  const options = body === undefined ? { signal } : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
  };
  const response = await fetch(path, options).catch(lost);
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error || `The server replied with status ${response.status}.`);
  return response;
}

/** Throw an Error about a connection that ended, unless the page ended it. */
export function lost(error) {
  throw error.name === "AbortError" ? error : new Error("The server does not answer. It may have been stopped: start `gristmill view` again.");
}

/** Return the JSON of the response. */
export async function request(path, body, options) {
  return (await respond(path, body, options)).json().catch(lost);
}

/** Return the JSON of a path without which the page is empty: an error is shown, and ends the script. */
export async function needed(path) {
  return request(path).catch((error) => {
    showError(error);
    throw error;
  });
}

/** Show an error at the top of the page, or remove it ("" or null). Screen readers read it at once. */
export function showError(error) {
  if (error && error.name === "AbortError") return;
  byId("message").textContent = error ? error.message || String(error) : "";
}

/** Set the text of a node if it differs, because each change costs a new layout of the page. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Let screen readers read a short text when they are idle. */
export function announce(text) {
  byId("status").textContent = text;
}

const GROUPED = new Intl.NumberFormat("en-US");
/** Return 1234567 as "1,234,567". */
export function grouped(number) {
  return GROUPED.format(number);
}

/** Return what `store` has kept; null if there is nothing, or if the browser blocks storage. */
export function stored(name, storage = "localStorage") {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text for the next visit, or forget it (null), unless the browser blocks storage. */
export function store(name, text, storage = "localStorage") {
  try {
    if (text === null) window[storage].removeItem(name);
    else window[storage].setItem(name, text);
  } catch {
    // Without storage, the next visit starts with the defaults.
  }
}

/** Listen to events of an element, given by its id, or of another target. */
export function on(target, type, action, options) {
  (typeof target === "string" ? byId(target) : target).addEventListener(type, action, options);
}

on(document, "submit", (event) => event.preventDefault()); // no form leaves its page

/** Call `action` once, `milliseconds` after the last of several calls. */
export function debounced(action, milliseconds) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** Colors of series. A canvas cannot use the variables of the style sheet, so each theme has its list. */
const SERIES = {
  light: ["#1d4ed8", "#b4400b", "#0f766e", "#7e22ce", "#8a5a00", "#be185d", "#3f6212", "#475569"],
  dark: ["#8ab4ff", "#f59e6c", "#5ed0c4", "#cfa3ff", "#e3b341", "#ff8fc1", "#a8d46f", "#a8b3c4"],
};

/** Return the choice for the current theme, of {light, dark}. */
export function ofTheme(choices) {
  return choices[document.documentElement.dataset.theme] || choices.light;
}

export function seriesColor(number) {
  const colors = ofTheme(SERIES);
  return colors[number % colors.length];
}

/** Build the header; returns what the server shows: {version, rooms, tokenizers, shards, runs}. */
export async function start(room) {
  const header = document.querySelector("header.top");
  const artefacts = await needed("api/artefacts");
  const links = artefacts.rooms.map(({ name, title }) =>
    element("a", { href: name, "aria-current": name === room ? "page" : null }, title));
  const theme = element("button.theme", { onclick: switchTheme }, themeWords());
  header.replaceChildren(element("span.brand", "Gristmill"), element("nav", { "aria-label": "Pages" }, links), theme);
  return artefacts;

  function switchTheme() {
    const other = ofTheme({ light: "dark", dark: "light" });
    store("gristmill-theme", other);
    document.documentElement.dataset.theme = other;
    theme.textContent = themeWords();
    document.dispatchEvent(new Event("themechange"));
  }
}

function themeWords() {
  return ofTheme({ light: "Dark colors", dark: "Light colors" });
}

/** Return the element with an id. */
export function byId(id) {
  return document.getElementById(id);
}
