// Colors that stand for numbers: from violet-blue to yellow, ever lighter, so that they are told apart by lightness alone.

const STOPS = [[58, 69, 181], [109, 75, 189], [160, 79, 174], [205, 92, 143], [236, 122, 108], [248, 163, 85], [251, 210, 95]];
const DARK_FROM = 0.5; // of the scale, dark text is easier to read than white

/** The color of a share of the scale, 0 to 1. */
export function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  const mixed = STOPS[low].map((value, i) => Math.round(value + (STOPS[low + 1][i] - value) * (at - low)));
  return `rgb(${mixed.join(" ")})`;
}

export const inkOn = (share) => (share > DARK_FROM ? "#1b1f2a" : "#ffffff");

export const gradient = `linear-gradient(to right, ${STOPS.map((_, i) => shade(i / (STOPS.length - 1))).join(", ")})`;

export const LINES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#ee8866", "#44bb99"];
export const LINES_ON_DARK = ["#77aadd", "#ff8a99", "#5fbf6b", "#ddcc77", "#88ddff", "#dd77bb", "#bbbbbb", "#ffaa88", "#77ddbb"];
