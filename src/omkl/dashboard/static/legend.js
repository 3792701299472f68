// What the colors and lines of the picture mean.

import { bits, element, number } from "./format.js";
import { gradient } from "./palette.js";

const dot = (kind) => {
  const svg = `<svg viewBox="-9 -9 18 18" aria-hidden="true"><g class="node" ${kind}><circle class="dot" r="7"/><path class="cross" d="M-3.5-3.5 3.5 3.5M-3.5 3.5 3.5-3.5"/></g></svg>`;
  return element("span", { className: "swatch", innerHTML: svg });
};

const line = (state, well, width) => {
  const svg = `<svg viewBox="0 0 26 10" aria-hidden="true"><line class="edge" data-well="${well}" x1="1" x2="25" y1="5" y2="5" stroke-width="${width}" stroke-opacity="0.9"/></svg>`;
  const made = element("span", { className: "swatch", innerHTML: svg });
  made.querySelector("line").dataset.state = state; // a name from the server is no markup
  return made;
};

const entry = (...parts) => element("span", { className: "entry" }, ...parts);

/** The scale of the nodes' colors. */
export function nodeLegend(by, scale, meaning, away) {
  const gone = entry(dot('data-alive="false"'), away);
  if (by === "liveness") {
    const well = entry(dot('data-alive="true" data-by="liveness"'), "alive");
    return [well, entry(dot('data-alive="true" data-by="liveness" data-unwell="true"'), "a link is not up"), gone];
  }
  if (!scale) return [entry(dot('data-alive="true"'), "not known of single nodes"), gone];
  const ramp = element("span", { className: "ramp" });
  ramp.style.background = gradient;
  const label = `${by}${meaning ? `, ${meaning}` : ""}: from ${number(scale[0])}, dark, to ${number(scale[1])}, bright`;
  return [element("span", { className: "entry", title: label }, number(scale[0]), ramp, number(scale[1])), gone];
}

/** The states of links, and how wide traffic is drawn. */
export function linkLegend(states, traffic, thick) {
  const known = states.map((state, i) => entry(line(state, i === 0, 2.5), state));
  const widths = [line(states[0], true, 1), line(states[0], true, 1 + thick)];
  return traffic ? [...known, entry(widths[0], "0 to", widths[1], `${bits(traffic)} a round or more`)] : known;
}
