// Numbers and elements, as they are shown.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const count = (value) => (known(value) ? grouped.format(value) : "–");

/** Three digits that matter. */
export function number(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return count(value);
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(size >= 1 ? 2 : 3);
}

function scaled(value, unit, units) {
  if (!known(value)) return "–";
  let step = 0;
  while (Math.abs(value) >= (step ? 1000 : 10_000) && step < 4) {
    value /= 1000;
    step += 1;
  }
  return step ? `${Number(value.toPrecision(3)).toLocaleString("en-US")} ${units[step - 1]}` : `${count(value)} ${unit}`;
}

export const bits = (value) => scaled(value, "bits", ["kbit", "Mbit", "Gbit", "Tbit"]);
export const bytes = (value) => scaled(known(value) ? value / 8 : value, "bytes", ["kB", "MB", "GB", "TB"]);

/** An element with properties and children; properties with a dash are attributes. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

/** Terms and what they come to, as the children of a `dl`. */
export const pairs = (rows) =>
  rows.map(([term, ...told]) => element("div", {}, element("dt", {}, term), element("dd", {}, ...told)));

/** Set text only where it differs: a screen reader is told of changes, not of repetitions. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
