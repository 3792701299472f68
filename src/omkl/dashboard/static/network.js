// The network as a picture: a dot for every node, a line for every link, and a whisper that runs along it.

import { bits, known, number } from "./format.js";
import { inkOn, shade } from "./palette.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST_WHISPERS = 48; // more are a swarm
const MARGIN = 26; // pixels around the picture
const FEW_EDGES = 40; // with more, lines are thinner
const NUDGES = 12; // rounds of pushing
const TOUCH = 9; // pixels around a node that are still the node
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function shape(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  set(made, attributes);
  parent?.append(made);
  return made;
}

function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (node.getAttribute(key) !== String(value)) node.setAttribute(key, value);
  }
}

export class Network {
  constructor(svg, open) {
    this.svg = svg;
    this.open = open;
    this.nodes = [];
    this.edges = [];
    svg.addEventListener("click", (event) => this.chosen(event.target));
    svg.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.fit()).observe(svg);
  }

  clear() {
    this.svg.replaceChildren();
    this.nodes = [];
    this.edges = [];
  }

  /** Draw a network anew. */
  draw(network) {
    this.clear();
    this.network = network;
    const lines = shape("g", { class: "edges" }, this.svg);
    const whispers = shape("g", { class: "whispers", "aria-hidden": true }, this.svg);
    const dots = shape("g", {}, this.svg);
    const every = Math.ceil(network.edges.length / MOST_WHISPERS);
    this.edges = network.edges.map((_, i) => ({
      line: shape("line", { class: "edge" }, lines),
      whisper: i % every === 0 ? this.whisper(whispers, i) : null,
    }));
    this.nodes = network.ids.map((id, i) => this.node(dots, id, i));
    this.around = network.ids.map(() => []);
    network.edges.forEach((ends, i) => ends.forEach((end) => this.around[end].push(i)));
    this.reachable(0);
    this.fit();
  }

  whisper(parent, i) {
    const dot = shape("circle", { r: 2.8, class: "whisper" }, parent);
    const seconds = 1.3 + ((i * 0.618) % 1) * 1.1; // out of step with each other
    shape("animateMotion", { dur: `${seconds}s`, begin: `-${(i * 0.37) % 2}s`, repeatCount: "indefinite" }, dot);
    return dot;
  }

  node(parent, id, i) {
    const group = shape("g", { class: "node", role: "button", tabindex: -1, "data-id": id, "data-index": i }, parent);
    const parts = { group, hit: shape("circle", { class: "hit" }, group), dot: shape("circle", { class: "dot" }, group) };
    parts.cross = shape("path", { class: "cross" }, group);
    parts.text = shape("text", { "aria-hidden": true }, group);
    parts.text.textContent = id;
    parts.title = shape("title", {}, group);
    return parts;
  }

  /** Place everything in the room there is; positions keep their aspect, y is up. */
  fit() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !height || !this.nodes.length) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [xs, ys] = [0, 1].map((axis) => this.network.positions.map((p) => p[axis]));
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = Math.min((width - 2 * MARGIN) / (right - left || 1e-9), (height - 2 * MARGIN) / (high - low || 1e-9));
    this.places = this.network.positions.map(([x, y]) => [
      width / 2 + (x - (left + right) / 2) * scale,
      height / 2 - (y - (low + high) / 2) * scale,
    ]);
    this.radius = Math.min(Math.max(0.38 * this.apart(), 5), 15);
    const room = Math.min(1, FEW_EDGES / this.edges.length);
    this.thick = Math.min(3.5 * Math.sqrt(room), 0.3 * this.radius); // pixels that traffic adds to a line
    this.opacity = 0.55 + 0.45 * room;
    this.nudge(2 * this.radius + 3, [width, height]);
    this.placeNodes(this.radius);
    this.placeEdges();
  }

  /** How far a node is from its nearest, in the median. */
  apart() {
    const nearest = this.places.map(([x, y], i) =>
      Math.min(...this.places.map(([a, b], j) => (i === j ? Infinity : Math.hypot(x - a, y - b)))));
    return nearest.sort((a, b) => a - b)[nearest.length >> 1];
  }

  /** Push nodes apart that would hide each other, but not out of the picture. */
  nudge(least, room) {
    for (let turn = 0; turn < NUDGES; turn += 1) {
      this.places.forEach((one, i) => this.places.slice(0, i).forEach((other) => {
        const [dx, dy] = [one[0] - other[0] || 0.01, one[1] - other[1]];
        const push = Math.max(0, least / Math.hypot(dx, dy) - 1) / 2;
        [dx, dy].forEach((d, axis) => {
          one[axis] += d * push;
          other[axis] -= d * push;
        });
      }));
      for (const place of this.places) {
        room.forEach((size, axis) => (place[axis] = Math.min(Math.max(place[axis], least / 2 + 2), size - least / 2 - 2)));
      }
    }
  }

  placeNodes(radius) {
    const arm = radius * 0.5;
    const size = Math.min(radius + 1, 11); // of letters, in pixels
    const fits = (id) => size >= 9 && 0.6 * size * id.length < 1.8 * radius;
    this.nodes.forEach(({ group, hit, dot, cross, text }, i) => {
      set(group, { transform: `translate(${this.places[i].map((v) => v.toFixed(1)).join(" ")})` });
      set(hit, { r: Math.min(radius + TOUCH, 22) });
      set(dot, { r: radius });
      set(cross, { d: `M${-arm} ${-arm} ${arm} ${arm}M${-arm} ${arm} ${arm} ${-arm}` });
      text.style.fontSize = `${size.toFixed(1)}px`;
      text.style.display = fits(this.network.ids[i]) ? "" : "none";
    });
  }

  placeEdges() {
    this.edges.forEach(({ line, whisper }, i) => {
      const [[x1, y1], [x2, y2]] = this.network.edges[i].map((end) => this.places[end].map((v) => v.toFixed(1)));
      set(line, { x1, y1, x2, y2 });
      const path = i % 2 ? `M${x1} ${y1}L${x2} ${y2}` : `M${x2} ${y2}L${x1} ${y1}`;
      if (whisper) set(whisper.firstChild, { path });
    });
  }

  /** Show a frame: colors by loss, disagreement or liveness, lines by traffic and state. */
  paint(run, frame, by) {
    const scales = run.scales();
    const unwell = new Set();
    this.edges.forEach(({ line, whisper }, i) => {
      const code = frame.edge.state[i];
      if (code > 0) run.network.edges[i].forEach((end) => unwell.add(end));
      const traffic = frame.edge.bits[i] ?? (scales.traffic ? 0 : 0.5); // of a run that tells none, lines are as usual
      const share = Math.min(traffic / (scales.traffic || 1), 1);
      set(line, { "data-state": run.state(code), "data-well": !(code > 0) });
      set(line, { "stroke-width": (1 + this.thick * share).toFixed(1), "stroke-opacity": (code > 0 ? 0.85 : this.opacity * (0.3 + 0.5 * share)).toFixed(2) });
      if (whisper) set(whisper, { "data-quiet": code > 0 || !(frame.edge.bits[i] > 0) });
    });
    this.nodes.forEach((parts, i) => this.tint(parts, i, frame, by === "liveness" ? null : scales[by], by, unwell.has(i)));
  }

  tint({ group, dot, text }, i, frame, scale, by, unwell) {
    const alive = frame.node.alive[i] !== 0;
    set(group, { "data-alive": alive, "data-unwell": unwell, "data-by": by });
    const value = by === "liveness" ? null : frame.node[by]?.[i];
    const share = scale && known(value) ? (value - scale[0]) / (scale[1] - scale[0] || 1) : null;
    const colored = alive && share !== null;
    dot.style.fill = colored ? shade(share) : "";
    text.style.fill = colored ? inkOn(share) : "";
  }

  /** Say in words what a frame shows. */
  describe(run, frame) {
    this.nodes.forEach(({ group, title }, i) => {
      const words = this.words(run, frame, i);
      if (title.textContent === words) return;
      title.textContent = words;
      group.setAttribute("aria-label", words);
    });
  }

  words(run, frame, i) {
    const name = `node ${run.network.ids[i]}`;
    const { loss, disagreement, bits: sent, alive } = frame.node;
    if (alive[i] === 0) return `${name}: ${run.away}`;
    const figures = `loss ${number(loss[i])}, disagreement ${number(disagreement?.[i])}, ${bits(sent?.[i])} a round`;
    const unwell = this.around[i].filter((edge) => frame.edge.state[edge] > 0).length;
    const links = unwell ? `, ${unwell} of ${this.around[i].length} links not ${run.state(0)}` : "";
    return `${name}: alive, ${figures}${links}`;
  }

  /** Whispers run only while the run does. */
  move(moving) {
    if (this.moving === moving) return;
    this.moving = moving;
    this.svg.classList.toggle("moving", moving);
    if (moving) this.svg.unpauseAnimations();
    else this.svg.pauseAnimations();
  }

  select(index) {
    this.nodes.forEach(({ group }, i) => set(group, { "aria-pressed": i === index }));
  }

  focus(index) {
    this.reachable(index);
    this.nodes[index]?.group.focus();
  }

  /** Tab comes to one node, arrow keys lead on from there. */
  reachable(index) {
    this.nodes.forEach(({ group }, i) => set(group, { tabindex: i === index ? 0 : -1 }));
  }

  chosen(target) {
    const group = target.closest(".node");
    if (!group) return;
    this.reachable(Number(group.dataset.index));
    this.open(Number(group.dataset.index));
  }

  pressed(event) {
    const group = event.target.closest(".node");
    if (!group) return;
    const from = Number(group.dataset.index);
    if (event.key === "Enter" || event.key === " ") this.open(from);
    else if (event.key in ARROWS) this.focus(this.towards(from, ARROWS[event.key]));
    else if (event.key === "Home") this.focus(0);
    else if (event.key === "End") this.focus(this.nodes.length - 1);
    else return;
    event.preventDefault();
  }

  /** The node nearest in a direction, or the same where none is. */
  towards(from, [right, down]) {
    const [x, y] = this.places[from];
    let best = from;
    let least = Infinity;
    this.places.forEach(([px, py], i) => {
      const [dx, dy] = [px - x, py - y];
      const along = dx * right + dy * down;
      const cost = (dx * dx + dy * dy) / along; // the distance, longer the more it is aside
      if (along > 0.5 && cost < least) [best, least] = [i, cost];
    });
    return best;
  }
}
