// Numbers as the pages write them.
import { grouped } from "./page.js";

/** Return a number with three digits: 65.5k, 17.1M. */
export function short(number) {
  return scaled(number, ["T", "B", "M", "k", ""]);
}

function scaled(number, suffixes) {
  const found = [1e12, 1e9, 1e6, 1e3].findIndex((scale) => Math.abs(number) >= 0.9995 * scale);
  return found < 0 ? plain(number) + suffixes[4] : plain(number / 1000 ** (4 - found)) + suffixes[found];
}

/** Return a number with three significant digits. */
export function plain(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e6 || size < 1e-4) return Number(number.toPrecision(3)).toExponential().replace("e+", "e");
  return size >= 1000 ? grouped(Math.round(number)) : String(Number(number.toPrecision(3)));
}

/** Return a loss with three decimals. */
export function loss(number) {
  if (Math.abs(number) >= 1e6) return plain(number);
  return Math.abs(number) >= 0.1 ? number.toFixed(3) : plain(number);
}

/** Return a duration in its two largest units: 1 min 52 s. */
export function duration(seconds) {
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  for (const [name, size, part, partSize] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / partSize);
      return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${part}` : ""}`;
    }
  }
}

/** Return 1,234,567 bytes as "1.23 MB". */
export function bytes(number) {
  return scaled(number, [" TB", " GB", " MB", " kB", " B"]);
}

/** Return a share as "12.3 %"; with zeros at its end in a column of them. */
export function percent(share, inColumn = false) {
  const digits = (100 * share).toPrecision(3);
  return share > 0 && share < 1e-4 ? "< 0.01 %" : `${inColumn && share ? digits : Number(digits)} %`;
}
