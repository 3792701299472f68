// A frame in words: the headline figures, a sentence, and what happened until then.

import { bytes, count, element, known, number, pairs } from "./format.js";

const MOST_SHOWN = 100; // notes

const isSimulated = ({ source }) => source === "simulation";

/** The bits of a node in a round: of a simulation the mean so far, as its result has it, of a network those of now. */
const sent = (network, frame) => (isSimulated(network) ? frame.total / frame.round / network.nodes : frame.bits);

/** The headline figures, as the children of a `dl`. */
export function figures(network, frame) {
  const { ids, nodes } = network;
  const rows = pairs([
    ["Round", count(frame.round)],
    ["Recent loss", number(frame.loss)],
    ["Disagreement", number(frame.disagreement)],
    [isSimulated(network) ? "A node a round" : "A node a round, now", bytes(sent(network, frame))],
    ["Sent in all", bytes(frame.total)],
    [nodes > ids.length ? "Alive, of those drawn" : "Alive", `${count(frame.alive)} of ${count(ids.length)}`],
  ]);
  rows.at(-1).classList.toggle("alarm", frame.alive < ids.length);
  return rows;
}

/** What has become of the network since it began. */
export function story(run, frame) {
  const first = run.frames.find((one) => known(one.loss));
  const nodes = `${count(run.network.nodes)} ${run.network.nodes === 1 ? "node" : "nodes"}`;
  if (run.network.source === "network" && !frame.alive) return "No node answers; are they running?";
  if (!first || !known(frame.loss) || frame === first) return `${nodes}, each with data of its own, begin.`;
  const [from, to] = [first, frame].map(({ loss }) => number(loss));
  const change = frame.loss < first.loss ? `have brought their recent loss from ${from} to ${to}` : `are at a recent loss of ${to}`;
  const size = bytes(sent(run.network, frame));
  const told = isSimulated(run.network) ? `sends its neighbors ${size} a round on average` : `now sends its neighbors ${size} a round`;
  const said = sent(run.network, frame) > 0 ? ` Each ${told}: changes of its model, not rows.` : "";
  // A network may have learned for long before it was looked at.
  const seen = frame.loss < first.loss ? `From round ${count(first.round)} to` : "At";
  const after = `After ${count(frame.round)} ${frame.round === 1 ? "round" : "rounds"}`;
  return `${isSimulated(run.network) ? after : `${seen} round ${count(frame.round)},`} ${nodes} ${change}.${said}`;
}

/** A list of notes, the latest first; only what is new is added, so that only that is read out. */
export class Notes {
  constructor(list) {
    this.list = list;
    this.shown = [];
  }

  show(notes) {
    const told = notes.slice(-MOST_SHOWN);
    if (told.length === this.shown.length && told.at(-1) === this.shown.at(-1)) return;
    const [old, kept] = [new Set(this.shown), new Set(told)];
    for (const child of [...this.list.children]) if (!kept.has(child.note)) child.remove();
    for (const note of told) if (!old.has(note)) this.list.prepend(this.entry(note));
    this.shown = told;
  }

  entry(note) {
    const when = element("span", { className: "when" }, `round ${count(note.round)}`);
    const kind = element("span", { className: "kind" }, note.kind);
    return element("li", { note, "data-kind": note.kind }, when, kind, note.text);
  }
}
