// Curves over rounds, up to the play head, by plotly.

import { bits, count, element, known, number, say } from "./format.js";
import { LINES, LINES_ON_DARK } from "./palette.js";

const LEAST_MS = 200; // between two drawings of a chart
const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false };
const KINDS = { fault: "x", resync: "diamond", recovered: "circle", info: "line-ns" };
const GUESS = Math.log(2); // what a constant guess loses, two classes alike

function load() {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/plotly.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.js did not come"));
    document.head.append(script);
  });
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const dark = document.documentElement.dataset.theme === "dark";
  const names = ["ink", "muted", "line", "accent", "band", "bad", "good", "warn", "surface"];
  const family = getComputedStyle(document.body).fontFamily;
  return { family, lines: dark ? LINES_ON_DARK : LINES, ...Object.fromEntries(names.map((n) => [n, color(`--${n}`)])) };
}

const column = (frames, pick) => frames.map((frame) => pick(frame) ?? null);
const curve = (frames, pick, color, more = {}) => ({
  x: column(frames, (f) => f.round), y: column(frames, pick), mode: "lines", line: { color, width: 2 },
  hovertemplate: "%{y:.4~g}<extra></extra>", ...more,
});

function head(frames, pick, color) {
  const frame = frames.at(-1);
  const marker = { color, size: 7 };
  return { x: [frame.round], y: [pick(frame) ?? null], mode: "markers", marker, hoverinfo: "skip", showlegend: false };
}

const DRAWN = {
  loss(frames, run, colors) {
    const low = curve(frames, (f) => f.spread?.[0], colors.accent, { line: { width: 0 }, hoverinfo: "skip", hovertemplate: null });
    const high = { ...low, y: column(frames, (f) => f.spread?.[1]), fill: "tonexty", fillcolor: colors.band };
    const traces = [low, high, curve(frames, (f) => f.loss, colors.accent), head(frames, (f) => f.loss, colors.accent)];
    const top = Math.max(run.scales().top.loss, 1e-9);
    return { traces, top: Math.min(top, 2 * (run.scales().loss?.[1] ?? top)), guess: run.network.guess ?? (run.network.loss === "logistic" ? GUESS : 0), title: "round" };
  },
  weights(frames, run, colors) {
    const named = (kernel, p) => curve(frames, (f) => f.weights?.[p], colors.lines[p % colors.lines.length], { name: kernel });
    return { traces: run.network.kernels.map(named), top: 1 };
  },
  disagreement(frames, run, colors) {
    const pick = (f) => f.disagreement;
    return { traces: [curve(frames, pick, colors.accent), head(frames, pick, colors.accent)], top: run.scales().top.disagreement };
  },
  bits(frames, run, colors) {
    const pick = (f) => f.bits;
    return { traces: [curve(frames, pick, colors.accent), head(frames, pick, colors.accent)], top: run.scales().top.bits };
  },
  total(frames, run, colors) {
    const pick = (f) => f.total;
    const area = curve(frames, pick, colors.accent, { fill: "tozeroy", fillcolor: colors.band });
    return { traces: [area, head(frames, pick, colors.accent)], top: run.scales().top.total };
  },
  notes(frames, run, colors) {
    const notes = run.notesUntil(frames.at(-1));
    const fill = { fault: colors.bad, resync: colors.warn, recovered: colors.good, info: colors.muted };
    const kinds = Object.keys(KINDS).filter((kind) => run.notes.some((note) => note.kind === kind)).reverse();
    const traces = kinds.map((kind) => {
      const own = notes.filter((note) => note.kind === kind);
      const marker = { color: fill[kind], size: 8, symbol: KINDS[kind], line: { color: fill[kind], width: kind === "info" ? 1.5 : 0 } };
      const y = own.map(() => kind);
      return { x: own.map((n) => n.round), y, text: own.map((n) => n.text), mode: "markers", marker, hovertemplate: "%{text}<extra></extra>" };
    });
    return { traces, kinds };
  },
};

function layout({ top, legend, guess, kinds, title }, [first, last], colors) {
  const axis = { color: colors.muted, gridcolor: colors.line, zeroline: false, fixedrange: true, tickfont: { size: 11 } };
  const apart = { ticks: "outside", ticklen: 5, tickcolor: "rgba(0,0,0,0)" }; // the first round from the zero beside it
  const shapes = guess && top > guess * 0.8
    ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: guess, y1: guess, line: { color: colors.muted, width: 1, dash: "dot" } }]
    : [];
  const annotations = shapes.length
    ? [{ xref: "paper", x: 1, xanchor: "right", y: guess, yanchor: "bottom", text: "a constant guess", showarrow: false, font: { size: 11, color: colors.muted } }]
    : [];
  return {
    margin: { l: kinds ? 70 : 44, r: 10, t: 6, b: title ? 38 : 28 },
    height: kinds && 38 + 20 * kinds.length,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colors.family, color: colors.muted, size: 11 },
    xaxis: { ...axis, range: [first, Math.max(last, first + 1)], showgrid: false, nticks: 6, ...apart, title: title && { text: title, standoff: 4, font: { size: 11 } } },
    yaxis: kinds
      ? { ...axis, type: "category", categoryorder: "array", categoryarray: kinds, range: [-0.6, kinds.length - 0.4] }
      : { ...axis, range: [0, Math.max(guess && top > guess * 0.8 ? guess * 1.1 : 0, top * 1.06 || 1)], nticks: 5, exponentformat: "SI" },
    showlegend: Boolean(legend),
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, font: { size: 11 } },
    hovermode: kinds ? "closest" : "x",
    hoverlabel: { bgcolor: colors.surface, bordercolor: colors.line, font: { color: colors.ink } },
    dragmode: false,
    shapes,
    annotations,
  };
}

/** Over whom the spread is: a run of which only means were kept has one over its seeds. */
const who = (frame) => (frame.node.loss.some(known) ? " of nodes" : "");

const TOLD = {
  loss: (f) => number(f.loss) + (f.spread && f.spread[0] !== f.spread[1] ? ` (10 % to 90 %${who(f)}: ${f.spread.map(number).join(" to ")})` : ""),
  disagreement: (f) => number(f.disagreement),
  bits: (f) => `${count(f.bits)} a node`,
  total: (f) => bits(f.total),
  notes: (f, run) => `${run.notesUntil(f).length}`,
};

export class Charts {
  constructor(failed) {
    this.colors = theme();
    this.due = Object.keys(DRAWN).map((name) => ({ name, drawn: -Infinity, shown: null }));
    this.fits = new ResizeObserver((changed) => changed.forEach(({ target }) => this.fit(target)));
    for (const target of document.querySelectorAll(".chart")) this.fits.observe(target);
    load().then((plotly) => {
      this.plotly = plotly;
      this.again();
    }, failed);
    addEventListener("theme", () => this.again());
  }

  again() {
    this.colors = theme();
    this.own = null;
    for (const chart of this.due) chart.shown = null;
  }

  /** Give a curve the width of its card, which the window does not always tell of. */
  fit(target) {
    const { offsetWidth, _fullLayout: drawn } = target;
    if (drawn && offsetWidth && drawn.width !== offsetWidth) this.plotly.relayout(target, { width: offsetWidth });
  }

  /** Draw the chart that is due the longest, at most one: a picture moves meanwhile. */
  step(now, run, player) {
    const key = `${run.version}:${player.index}`;
    const chart = this.due.find(({ shown, drawn }) => shown !== key && now - drawn >= LEAST_MS);
    if (!chart || !player.frame) return;
    this.due.push(...this.due.splice(this.due.indexOf(chart), 1));
    Object.assign(chart, { shown: key, drawn: now });
    this.draw(chart.name, run, run.frames.slice(0, player.index + 1));
  }

  draw(name, run, frames) {
    this.tell(name, document.getElementById(`of-${name}`), frames.at(-1), run);
    if (name === "notes") document.getElementById("timeline").hidden = !run.notes.length; // before it is drawn: it takes its size
    if (!this.plotly || (name === "notes" && !run.notes.length)) return;
    const { traces, ...shape } = DRAWN[name](frames, run, this.colors);
    this.plotly.react(`chart-${name}`, traces, layout(shape, run.scales().rounds, this.colors), CONFIG);
  }

  tell(name, caption, frame, run) {
    if (name !== "weights") return say(caption, TOLD[name](frame, run));
    const words = run.network.kernels.map((kernel) => kernel.split(" "));
    const family = words.every(([first, ...rest]) => first === words[0][0] && rest.length) ? words[0][0] : "";
    const what = family === "prior" ? "width of the prior" : family && `width of the ${family} kernel`;
    const keys = words.map((word, p) => {
      const line = element("i");
      line.style.background = this.colors.lines[p % this.colors.lines.length];
      return element("span", {}, line, word.slice(family ? 1 : 0).join(" "));
    });
    return caption.replaceChildren(...(frame.weights ? [what, ...keys] : ["not told"]));
  }

  /** Draw the loss of a node against the mean. */
  drawNode(target, run, index, node) {
    const key = `${run.version}:${index}:${node}`;
    if (!this.plotly || this.own === key) return;
    this.own = key;
    const frames = run.frames.slice(0, index + 1);
    const mean = curve(frames, (f) => f.loss, this.colors.muted, { name: "mean", line: { color: this.colors.muted, width: 1.5, dash: "dot" } });
    const own = curve(frames, (f) => f.node.loss[node], this.colors.accent, { name: `node ${run.network.ids[node]}` });
    const top = Math.max(run.scales().loss?.[1] ?? 0, ...own.y.filter(known).slice(-50));
    this.plotly.react(target, [mean, own], layout({ top, legend: true }, run.scales().rounds, this.colors), CONFIG);
  }
}
