// Charts and tables of the page shards. Lengths and counts are requested when they come into view: counting reads up to
// 100 million tokens.
import { barChart, logChart } from "./bars.js";
import { percent, short } from "./numbers.js";
import { byId as by, element, grouped, hint, on, request } from "./page.js";
import { dataTable, figures, meter, pager, scrolled, table } from "./tables.js";
import { withSigns } from "./tokens.js";

/** Return an object whose `reset()` empties the sections, to be filled for the current split when they are seen. */
export function makeStatistics(room) {
  let edition = 0;
  let begin = 0;
  const isDone = new Set();
  const sections = { lengths: fillLengths, zipf: fillFrequencies, frequencies: fillFrequencies };
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) fill(entry.target.id);
  }, { rootMargin: "200px" });

  function reset() {
    edition++;
    begin = 0;
    isDone.clear();
    for (const id of Object.keys(sections)) {
      show(id, hint("Reading …"));
      observer.unobserve(by(id));
      observer.observe(by(id));
    }
    by("frequency-summary").textContent = "";
  }

  async function fill(id) {
    if (isDone.has(id)) return;
    isDone.add(id);
    if (id !== "lengths") isDone.add("zipf").add("frequencies");
    const mine = edition;
    try {
      await sections[id](() => mine === edition);
    } catch (error) {
      if (mine !== edition) return;
      for (const place of id === "lengths" ? [id] : ["zipf", "frequencies"]) explain(place)(error);
    }
  }

  async function fillLengths(isCurrent) {
    const reply = await request(room.query("lengths", { split: room.split, tokenizer: room.tokenizer }));
    if (!isCurrent() || room.changed(reply.edition)) return;
    if (reply.problem) {
      show("lengths", hint(reply.problem));
      return;
    }
    const { edges, counts, percentiles, mean } = reply;
    const range = (i) => (edges[i + 1] - edges[i] === 1 ? grouped(edges[i]) : `${grouped(edges[i])}–${grouped(edges[i + 1] - 1)}`);
    const bars = counts.map((value, i) => ({ value, title: `${range(i)} tokens: ${grouped(value)} documents (${percent(value / reply.counted)})` }));
    const mark = room.facts.end_of_text ? " A length includes the end-of-text id." : "";
    const sample = reply.counted < reply.total ? ` A sample of ${grouped(reply.counted)} of ${grouped(reply.total)} documents.` : "";
    const labels = [...new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (edges.length - 2))))];
    show("lengths",
      barChart({
        bars, labels: labels.map((i) => short(edges[i])), title: `Documents by number of tokens${reply.is_log ? ", on a logarithmic axis" : ""}`,
        summary: `Histogram of document lengths: ${grouped(percentiles.min)} to ${grouped(percentiles.max)} tokens, median ${grouped(percentiles.median)}.`,
      }),
      element("dl.percentiles", figures([...Object.entries(percentiles), ["mean", Math.round(10 * mean) / 10]].map(([name, value]) => [name, grouped(value)]))),
      hint(`${mark}${sample}`),
      dataTable("Documents by length", ["Tokens", "#Documents", "#Share"], counts.map((value, i) => [range(i), value, percent(value / reply.counted, true)])));
  }

  async function fillFrequencies(isCurrent = () => true) {
    const reply = await request(room.query("frequencies", { split: room.split, order: by("order").value, begin, tokenizer: room.tokenizer }));
    if (!isCurrent() || room.changed(reply.edition)) return;
    drawZipf(reply);
    drawFrequencies(reply);
  }

  function drawZipf({ zipf, used, vocab_size }) {
    const points = zipf.ranks.map((rank, i) => [rank, zipf.counts[i]]);
    if (!points.length) {
      show("zipf", hint("The split has no tokens."));
      return;
    }
    const few = points.filter((_, i) => i % Math.ceil(points.length / 40) === 0 || i === points.length - 1);
    show("zipf",
      logChart({
        points, title: "Occurrences of a token by its rank (Zipf plot), both axes logarithmic",
        summary: `The most frequent token occurs ${grouped(points[0][1])} times, the one of rank ${grouped(used)} ${grouped(points.at(-1)[1])} times.`,
        describe: ([rank, count]) => `rank ${grouped(rank)}: ${grouped(count)} times`,
      }),
      hint(usedWords(used, vocab_size)),
      dataTable("Counts by rank", ["#Rank", "#Count"], few));
  }

  function drawFrequencies(reply) {
    const isSample = reply.counted < reply.num_tokens;
    by("frequency-summary").textContent = `${isSample ? `An even sample of ${grouped(reply.counted)} of ${grouped(reply.num_tokens)}` : `All ${grouped(reply.num_tokens)}`} tokens counted. ${usedWords(reply.used, reply.vocab_size)}`;
    if (!reply.rows.length) {
      show("frequencies", hint(by("order").value === "unused" ? "Every token occurs." : "No tokens."));
      return;
    }
    const most = Math.max(...reply.rows.map((row) => row.count), 1);
    const rows = reply.rows.map((row) => [String(row.id), row.text === null ? "" : element("span.chip", { title: row.bytes }, withSigns(row.text)), row.count, percent(row.count / reply.counted, true), meter(row.count / most)]);
    const drawn = table("Table of token frequencies", ["#Id", "Token", "#Count", "#Share", "Bar"], rows);
    for (const line of drawn.querySelectorAll("tr")) line.lastChild.classList.add("bar");
    drawn.querySelector("th:last-child").replaceChildren(element("span.quiet", "Bar"));
    const turn = (from) => {
      begin = from;
      fillFrequencies().then(() => content("frequencies").querySelector("button")?.focus(), explain("frequencies"));
    };
    show("frequencies",
      scrolled("Table of token frequencies", drawn),
      pager({ begin, number: reply.rows.length, total: reply.total, step: reply.page_rows, show: turn }));
  }

  on("order", "change", () => {
    begin = 0;
    fillFrequencies().catch(explain("frequencies"));
  });
  return { reset };
}

const content = (id) => by(id).querySelector(".content");
const show = (id, ...parts) => content(id).replaceChildren(...parts);
const explain = (id) => (error) => show(id, element("p", error.message));
const usedWords = (used, size) => (size ? `${grouped(used)} of ${grouped(size)} ids occur (${percent(used / size)}).` : `${grouped(used)} different ids occur.`);
