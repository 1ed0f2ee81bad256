// The playground: the form, the stream of events of a generation, and the conversation of a chat.
import { announce, byId as get, counted, element, fillChoice, fillSelect, grouped, lost, on, request, respond, showError, start } from "./page.js";
import { TextsView } from "./playground_texts.js";
import { TokenView } from "./playground_tokens.js";

const REFRESH_MILLISECONDS = 10_000;
const MODES = {
  continue: ["Continue", "Prompt", "An empty prompt starts a new document.", 0.8],
  chat: ["Chat", "Message", "The model responds in its chat template.", 0.8],
  sample: ["Sample", "", "", 0.8],
  reconstruct: ["Reconstruct", "Text", "The model encodes the text and decodes it again.", 0],
  interpolate: ["Interpolate", "First text", "", 0],
};
const REASONS = {
  "end of text": "ended by the model", "stop string": "ended before a stop string", "max tokens": "ended after the maximum number of tokens",
};

// A name of this page for the queue. Not randomUUID, which needs HTTPS or the loopback.
const client = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const temperatures = {}; // by mode, as entered
let about = null; // what the server knows about the run
let mode = "continue";
let running = null; // the AbortController of the generation
let view = null;
let chat = []; // messages so far

const artefacts = await start("playground");
const asked = new URLSearchParams(location.search);
fillSelect(get("run"), Object.entries(artefacts.runs));
if (artefacts.runs[asked.get("run")] !== undefined) get("run").value = asked.get("run");
get("max_tokens").value = "200";
on("run", "change", () => load({ isNew: true }));
on("form", "submit", generate);
on("halt", "click", stop);
on("fresh", "click", () => { stop(); chat = []; get("view").replaceChildren(); say("A new chat."); get("prompt").focus(); });
on("seed", "input", () => { get("keep").checked = get("seed").value !== ""; });
on("temperature", "input", () => { temperatures[mode] = get("temperature").value; });
on(document, "keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); generate(); }
  if (event.key === "Escape" && running) { event.preventDefault(); stop(); }
});
setInterval(() => {
  if (document.visibilityState === "visible" && !running && document.activeElement !== get("checkpoint")) load({ isNew: false });
}, REFRESH_MILLISECONDS);
await load({ isNew: true });

/** Show the checkpoints and modes of the chosen run. */
async function load({ isNew }) {
  const run = get("run").value;
  let found;
  try {
    found = await request(`api/playground/${run}`);
  } catch (error) {
    about = null;
    get("start").disabled = true;
    if (get("message").textContent !== error.message) showError(error); // a screen reader reads it once, not at each refresh
    return;
  }
  if (run !== get("run").value) return; // another run was chosen in the meantime
  const before = about;
  about = found;
  if (isNew || Boolean(before?.problem) !== Boolean(found.problem) || before === null) showError(found.problem || null);
  get("training").hidden = !found.is_trained;
  get("start").disabled = Boolean(found.problem) || running !== null;
  showCheckpoints(isNew);
  if (isNew || before?.modes.join() !== found.modes.join()) showModes(isNew);
  if (isNew) { stop(); chat = []; view = null; get("view").replaceChildren(); }
}

function showCheckpoints(isNew) {
  const select = get("checkpoint");
  const words = ({ name, val_loss }) => name + (typeof val_loss === "number" ? `, validation loss ${val_loss.toFixed(3)}` : "");
  const latest = about.checkpoints[0]?.name;
  const options = about.checkpoints.length === 0 ? [] : [
    ["best", "best (lowest validation loss)"], ["latest", `latest (${latest})`], ...about.checkpoints.map((each) => [each.name, words(each)]),
  ];
  const key = JSON.stringify(options);
  if (select.dataset.options === key && !isNew) return;
  const chosen = isNew ? asked.get("checkpoint") : select.value;
  select.dataset.options = key;
  fillSelect(select, options);
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

function showModes(isNew) {
  fillChoice(get("modes"), about.modes.map((name) => [name, MODES[name][0]]), mode, choose);
  get("modes").hidden = about.modes.length < 2;
  const usual = about.modes.includes("chat") ? "chat" : about.modes[0];
  if (usual) choose(!isNew && about.modes.includes(mode) ? mode : usual);
}

function choose(name) {
  mode = name;
  for (const radio of document.querySelectorAll("[name=modes]")) radio.checked = radio.value === name;
  for (const part of document.querySelectorAll("[data-modes]")) part.hidden = !part.dataset.modes.split(" ").includes(name);
  const [, label, hint, temperature] = MODES[name];
  labelOf("prompt").textContent = label;
  get("prompt-hint").textContent = hint;
  get("temperature").value = temperatures[name] ?? temperature;
  const isLatent = !["continue", "chat"].includes(name);
  get("max_tokens").placeholder = isLatent ? "automatic" : "200";
  if (isLatent && get("max_tokens").value === "200") get("max_tokens").value = "";
  if (!isLatent && get("max_tokens").value === "") get("max_tokens").value = "200";
}

function labelOf(id) {
  return document.querySelector(`label[for=${id}]`);
}

/** Return the number in a field, or null if it is empty. Throws an Error with the allowed values. */
function numberOf(id) {
  const field = get(id);
  if (field.value === "" && !field.validity.badInput) return null;
  const value = Number(field.value);
  const { badInput, rangeUnderflow, rangeOverflow } = field.validity;
  const isWhole = !["temperature", "top_p"].includes(id);
  if (badInput || rangeUnderflow || rangeOverflow || (isWhole && !Number.isInteger(value))) {
    field.focus();
    const range = field.max ? `${field.min} to ${grouped(field.max)}` : `at least ${field.min}`;
    throw new Error(`${labelOf(id).textContent} must be ${isWhole ? "a whole number, " : ""}${range}.`);
  }
  return value;
}

function needText(id) {
  if (get(id).value) return;
  get(id).focus();
  throw new Error(`${labelOf(id).textContent} is empty. Enter at least one character.`);
}

function makeRequest() {
  const prompt = get("prompt").value;
  return {
    client, mode, checkpoint: get("checkpoint").value,
    prompt: mode === "chat" || mode === "sample" ? "" : prompt,
    other: mode === "interpolate" ? get("other").value : "",
    messages: mode === "chat" ? [...chat, { role: "user", content: prompt }] : [],
    num_texts: (mode === "interpolate" ? numberOf("points") : numberOf("samples")) ?? 4,
    max_tokens: numberOf("max_tokens"), temperature: numberOf("temperature"), top_k: numberOf("top_k"), top_p: numberOf("top_p"),
    seed: get("keep").checked ? numberOf("seed") : null,
    stop: get("stop").value.split("\n").filter((line) => line !== ""),
  };
}

async function generate() {
  if (running || !about || about.problem) return;
  let body;
  try {
    body = makeRequest();
    for (const id of { chat: ["prompt"], reconstruct: ["prompt"], interpolate: ["prompt", "other"] }[mode] ?? []) needText(id);
  } catch (error) {
    showError(error);
    return;
  }
  showError(null);
  const controller = new AbortController();
  setRunning(controller);
  const place = showConversation(body);
  view = null;
  const state = { body, place, began: 0, num: 0, isOver: false, seed: null, checkpoint: "", device: "" };
  say("Starting …");
  get("progress").scrollIntoView({ block: "nearest" }); // below the form on a phone
  announce("Generating.");
  try {
    for await (const [name, data] of events(`api/playground/${get("run").value}/generate`, body, controller.signal)) receive(state, name, data);
    if (!state.isOver) lost({});
  } catch (error) {
    if (error.name === "AbortError") finish(state, "stopped", "");
    else fail(state, error);
  } finally {
    if (running === controller) setRunning(null);
    if (mode === "chat" && body.mode === "chat") remember(body, state);
  }
}

/** Yield [name, data] of each event of the reply to a POST request. */
async function* events(path, body, signal) {
  const reply = await respond(path, body, { signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    const part = await reader.read().catch(lost);
    if (part.done) return;
    held += part.value;
    const frames = held.split("\n\n");
    held = frames.pop();
    for (const frame of frames) {
      const fields = Object.fromEntries(frame.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.event) yield [fields.event, JSON.parse(fields.data)];
    }
  }
}

function receive(state, name, data) {
  if (name === "waiting") say(`Waiting: ${data.before} before you.`);
  else if (name === "loading") say(`Loading ${data.name} on ${data.device} …`);
  else if (name === "started") begin(state, data);
  else if (name === "tokens") {
    view ??= new TokenView(state.place, state.body.mode === "continue" ? state.body.prompt : "");
    view.push(data);
    state.num += data.length;
    report(state, "");
  } else if (name === "text" || name === "part") {
    view ??= new TextsView(state.place, state.body);
    view.push(data);
  } else if (name === "end") finish(state, REASONS[data.reason] ?? "", data.rest, data);
  else if (name === "error") fail(state, new Error(data.message));
}

function begin(state, data) {
  Object.assign(state, data, { began: performance.now() });
  if (!get("keep").checked) get("seed").value = data.seed;
  const { num_prompt_tokens: length, context_length: context } = data;
  if (length > context) {
    showError(new Error(`The prompt has ${grouped(length)} tokens, more than the context of the model (${grouped(context)}). Only the last ${grouped(Math.max(1, Math.floor(context / 2)))} tokens are used.`));
  }
  report(state, "");
}

function finish(state, words, rest, end) {
  state.isOver = true;
  view?.finish(rest);
  if (end) state.num = end.num;
  report(state, words, end?.seconds);
  announce(`${words || "Done"}. ${state.num ? `${grouped(state.num)} tokens.` : ""}`);
}

function fail(state, error) {
  state.isOver = true;
  view?.finish("");
  showError(error);
  say(state.num ? "Ended by an error." : "");
  load({ isNew: false }); // the checkpoint may have been removed by the run
}

/** Show the figures of the generation. */
function report(state, words, seconds = (performance.now() - state.began) / 1000) {
  if (!state.began) { say(words ? `${words[0].toUpperCase()}${words.slice(1)}.` : ""); return; }
  const rate = seconds > 0.05 && state.num ? `${grouped(Math.round(state.num / seconds))} tokens/s` : "";
  const texts = view?.boxes?.length;
  const num = state.num ? counted(state.num, "token") : texts ? counted(texts, "text") : state.isOver && !view ? "no text" : "";
  const time = state.isOver ? `${seconds.toFixed(1)} s` : "generating …";
  say([num, rate, time, `seed ${state.seed}`, `${state.checkpoint} on ${state.device}`, words].filter(Boolean).join(" · "));
}

function say(text) {
  get("progress").textContent = text;
}

/** Clear the result, show the messages of a chat, and return the place for the new text. */
function showConversation({ messages }) {
  const place = element("div");
  const items = messages.map(({ role, content }) => element("li", { class: role },
    element("span.who", role === "user" ? "You" : "Model"), content));
  get("view").replaceChildren(items.length ? element("ul.chat", { "aria-label": "Conversation" }, items) : "", place);
  return place;
}

/** Keep the message and the response for the next message. A response without text is forgotten with its message. */
function remember(body, state) {
  const text = state.began ? view?.text ?? "" : "";
  if (!text) return;
  chat = [...body.messages, { role: "assistant", content: text }];
  get("prompt").value = "";
}

function setRunning(controller) {
  running = controller;
  get("start").disabled = controller !== null || Boolean(about?.problem);
  get("halt").disabled = controller === null;
  get("output").setAttribute("aria-busy", String(controller !== null));
}

function stop() {
  running?.abort();
}
