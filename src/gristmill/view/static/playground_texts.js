// Texts that arrive as a whole: of a model with latents (samples, a reconstruction, an interpolation), or of a model
// with its own way to write, without probabilities.
import { element } from "./page.js";

export class TextsView {
  /** Build the view in `place` for a request of the playground. */
  constructor(place, { mode, prompt, other }) {
    this.mode = mode;
    this.ends = [prompt, other];
    this.boxes = [];
    this.list = element("ol.texts");
    this.current = element("div.text", { dir: "auto", "aria-live": "polite" });
    this.slider = element("input", { type: "range", id: "point", min: "0", max: "0", value: "0", oninput: () => this.#move() });
    if (mode === "interpolate") this.#buildSlider(place);
    else if (mode === "reconstruct") this.#buildSides(place, prompt);
    else place.replaceChildren(this.list);
  }

  get text() {
    return this.boxes.map((box) => box.textContent).join("\n\n");
  }

  push({ number, text = "" }) {
    if (!this.boxes[number]) this.#add(number);
    this.boxes[number].textContent += text;
    if (this.mode === "interpolate") this.#move();
  }

  finish() {}

  #add(number) {
    const box = element("div.text", { dir: "auto" });
    this.boxes[number] = box;
    if (this.mode === "reconstruct") {
      this.side.replaceChildren(element("span.who", "Reconstruction"), box);
      return;
    }
    this.list.append(element("li", element("span.who", `${this.mode === "interpolate" ? "Point" : "Text"} ${number + 1}`), box));
    this.slider.max = String(this.boxes.length - 1);
  }

  #buildSides(place, prompt) {
    this.side = element("div", element("span.who", "Reconstruction"), element("div.text", "…"));
    place.replaceChildren(element("div.sides.texts",
      element("div", element("span.who", "Original"), element("div.text", { dir: "auto" }, prompt)), this.side));
  }

  #buildSlider(place) {
    const [first, last] = this.ends;
    place.replaceChildren(
      element("div.slider", element("label", { for: "point" }, "From the first text to the second"), this.slider,
        element("div.ends", { "aria-hidden": "true" }, element("span", first), element("span", last))),
      this.current,
      element("details.after", element("summary", "All points as a list"), this.list));
  }

  #move() {
    const at = Number(this.slider.value);
    this.slider.setAttribute("aria-valuetext", `Point ${at + 1} of ${this.boxes.length}`);
    this.current.textContent = this.boxes[at]?.textContent ?? "";
    for (const [number, item] of [...this.list.children].entries()) {
      if (number === at) item.setAttribute("aria-current", "true");
      else item.removeAttribute("aria-current");
    }
  }
}
