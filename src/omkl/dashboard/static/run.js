// What has been told of one run: its network, the frames kept, the notes.

import { known } from "./format.js";

const MOST_FRAMES = 1000;
const MOST_NOTES = 500;

const larger = (a, b) => Math.max(a, b);

function quantile(values, share) {
  const sorted = values.filter(known).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.round(share * (sorted.length - 1))] : null;
}

export class Run {
  constructor() {
    this.clear();
  }

  clear() {
    this.network = null;
    this.frames = [];
    this.notes = [];
    this.end = null;
    this.version = (this.version ?? 0) + 1; // grows with everything told, also from run to run
    this.measured = { version: -1 };
  }

  /** Take in an event and return its kind. */
  take(event) {
    if (event.event === "network") {
      this.clear();
      this.network = event;
    } else if (event.event === "frame" && this.network) {
      event.apart = quantile(event.node.disagreement, 0.9);
      event.busiest = event.edge.bits.filter(known).reduce(larger, 0);
      this.frames.push(event);
    } else if (event.event === "note") {
      this.notes.push(event);
      if (this.notes.length > MOST_NOTES) this.notes.shift();
    } else if (event.event === "end") {
      this.end = event;
    }
    this.version += 1;
    return event.event;
  }

  /** Drop every second of the older half of the frames where there are too many; return where a place in them is now. */
  thin(place) {
    if (this.frames.length <= MOST_FRAMES) return place;
    const half = this.frames.length >> 1;
    this.frames = this.frames.filter((_, i) => i >= half || i % 2 === 0);
    return place < half ? place / 2 : place - (half >> 1);
  }

  /** The scales of colors, widths and axes, over all frames kept: they hold still while a run is played. */
  scales() {
    if (this.measured.version !== this.version) this.measured = { version: this.version, ...this.measure() };
    return this.measured;
  }

  measure() {
    const of = (pick) => this.frames.map(pick).filter(known);
    const most = (pick) => of(pick).reduce(larger, 0);
    const low = of((f) => f.spread?.[0] ?? f.loss);
    const high = of((f) => f.spread?.[1] ?? f.loss);
    return {
      // the first rounds may be far off: they get the scale's end, and the rest its colors
      loss: low.length ? [low.reduce((a, b) => Math.min(a, b)), quantile(high, 0.95)] : null,
      disagreement: this.frames.some((f) => known(f.apart)) ? [0, quantile(of((f) => f.apart), 0.95)] : null,
      traffic: quantile(of((f) => f.busiest || null), 0.75) ?? 0, // the first rounds say the most
      rounds: [this.frames[0]?.round ?? 0, this.network?.rounds ?? this.frames.at(-1)?.round ?? 1],
      top: {
        loss: high.reduce(larger, 0),
        disagreement: most((f) => f.disagreement),
        bits: most((f) => f.bits),
        total: most((f) => f.total),
      },
    };
  }

  /** The notes up to a frame: by rounds in a simulation, whose frames may come all at once; else by the clock. */
  notesUntil(frame) {
    const key = this.network?.source === "simulation" ? "round" : "time";
    const last = frame === this.frames.at(-1);
    return last ? this.notes : this.notes.filter((note) => !known(note[key]) || note[key] <= frame[key]);
  }

  /** What a node is that does not take part: in a simulation it sleeps for a round. */
  get away() {
    return this.network.source === "simulation" ? "asleep" : "gone";
  }

  state(code) {
    return this.network.states[code] ?? "unknown";
  }
}
