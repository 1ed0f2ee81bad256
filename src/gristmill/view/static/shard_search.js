// The search of the page shards. Each request covers a bounded number of tokens; the page asks until it has enough.
import { announce, byId as by, counted, element, grouped, on, request } from "./page.js";

const PAUSE_AFTER = 100; // results, then the user decides
const MOST = 1000; // results that stay on the page

/** Return the search. `open(number, offset, found)` shows a result. */
export function makeSearch(room, open) {
  let search = null; // {query, kind, …, cursor, number, controller}

  async function run() {
    const mine = search;
    const pauseAt = Math.min(mine.number + PAUSE_AFTER, MOST);
    mine.controller = new AbortController();
    mine.isRunning = true;
    draw();
    try {
      while (mine.cursor !== null && mine.number < pauseAt) {
        const { query, kind, ignore_case, cursor, split, tokenizer, edition } = mine;
        const reply = await request(room.query("search"), { query, kind, ignore_case, cursor, split, tokenizer, edition }, mine.controller);
        if (search !== mine) return;
        if (mine.controller.signal.aborted) break;
        [mine.cursor, mine.total] = [reply.cursor, reply.total];
        mine.number += reply.results.length;
        by("results").append(...reply.results.map(row));
        draw();
      }
    } catch (error) {
      if (search !== mine) return;
      mine.problem = `${error.message} `;
    }
    if (mine.controller.signal.aborted) mine.problem = "Stopped. ";
    mine.isRunning = false;
    draw();
    announce(by("search-status").textContent);
  }

  function draw() {
    const { number, cursor, total, isRunning, problem } = search;
    const documents = `${counted(number, room.unit())} found`;
    const share = total ? (cursor ?? total) / total : 0;
    const searched = total === null ? "" : cursor === null ? `. All ${grouped(total)} tokens searched.`
      : ` in ${grouped(cursor)} of ${grouped(total)} tokens (${(100 * share).toFixed(share < 0.1 ? 2 : 0)} %)${isRunning ? " …" : "."}`;
    by("search-status").textContent = problem && total === null ? problem : `${problem || ""}${documents}${searched}`;
    by("stop").hidden = !isRunning;
    by("more").hidden = isRunning || cursor === null || total === null || number >= MOST;
  }

  function row(found) {
    const button = element("button", { onclick: () => {
      by("results").querySelector('[aria-current="true"]')?.removeAttribute("aria-current");
      button.setAttribute("aria-current", "true");
      open(found.number, found.token, found);
    } },
    element("span.grey", `${room.unit() === "part" ? "Part" : "Document"} ${grouped(found.number)}, token ${grouped(found.token)}`),
    found.before, element("mark", found.match), found.after);
    return element("li", button);
  }

  function clear() {
    search?.controller?.abort();
    search = null;
    by("results").replaceChildren();
    by("search-status").textContent = "";
    by("stop").hidden = by("more").hidden = true;
  }

  on("search", "submit", () => {
    clear();
    const isIds = by("kind").value === "ids";
    if (isIds ? !/^[\s,[]*\d{1,10}([\s,]+\d{1,10})*[\s,\]]*$/.test(by("query").value) : !by("query").value) {
      by("search-status").textContent = isIds ? "Type ids separated by spaces, such as 17 256." : "Type a text to search for.";
      return;
    }
    search = {
      query: by("query").value, kind: by("kind").value, ignore_case: by("ignore-case").checked, split: room.split,
      tokenizer: room.tokenizer, edition: room.facts.edition, cursor: 0, number: 0, total: null, problem: "",
    };
    run();
  });
  on("stop", "click", () => search?.controller.abort());
  on("more", "click", () => {
    search.problem = "";
    run();
  });
  on("kind", "change", () => { by("case-choice").hidden = by("kind").value === "ids"; });
  return { clear };
}
