// One node, looked at closely.

import { bits, bytes, count, element, known, number, pairs, say } from "./format.js";

const at = (id) => document.getElementById(id);
const LEAST_MS = 200;

export class Panel {
  constructor(charts, network) {
    this.charts = charts;
    this.network = network;
    this.node = null;
    this.drawn = -Infinity;
    addEventListener("theme", () => (this.shown = null));
    at("close").addEventListener("click", () => this.close());
    addEventListener("keydown", (event) => event.key === "Escape" && this.node !== null && this.close());
  }

  open(node, run) {
    this.node = node;
    this.shown = null;
    this.links = null;
    this.charts.own = null;
    at("panel").hidden = false;
    say(at("panel-name"), `Node ${run.network.ids[node]}`);
    this.network.select(node);
    at("panel-name").focus();
  }

  /** Close it; the focus goes back to the node it was opened from. */
  close(back = true) {
    const node = this.node;
    this.node = null;
    at("panel").hidden = true;
    this.network.select(null);
    if (back) this.network.focus(node);
  }

  step(now, run, player) {
    const key = `${run.version}:${player.index}`;
    if (this.node === null || !player.frame || this.shown === key || now - this.drawn < LEAST_MS) return;
    this.shown = key;
    this.drawn = now;
    this.facts(run, player.frame);
    this.weights(run, player.frame);
    this.neighbors(run, player.frame);
    this.charts.drawNode("panel-chart", run, player.index, this.node);
  }

  facts(run, frame) {
    const { loss, disagreement, bits: sent, round, alive } = frame.node;
    const of = (values) => values?.[this.node];
    at("panel").dataset.alive = of(alive) !== 0;
    at("panel-facts").replaceChildren(...pairs([
      ["State", of(alive) !== 0 ? "alive" : run.away],
      ["Round", count(of(round))],
      ["Loss", `${number(of(loss))}`, element("small", {}, ` mean ${number(frame.loss)}`)],
      ["Disagreement", number(of(disagreement)), element("small", {}, ` mean ${number(frame.disagreement)}`)],
      ["Sends a round", bits(of(sent)), element("small", {}, known(of(sent)) ? ` ${bytes(of(sent))}` : "")],
    ]));
  }

  weights(run, frame) {
    const own = frame.node.weights?.[this.node];
    if (!own) return at("panel-weights").replaceChildren();
    const bar = (weight) => {
      const filled = element("span", { className: "filled" });
      filled.style.width = `${100 * weight}%`;
      return element("span", { className: "track", "aria-hidden": true }, filled);
    };
    const rows = own.map((weight, p) => [run.network.kernels[p], bar(weight), weight.toFixed(3)]);
    const told = element("dl", { className: "weights" }, ...pairs(rows));
    at("panel-weights").replaceChildren(element("h3", {}, "How much each of its models counts"), told);
  }

  /** Its links; the buttons stay the same while it is open, so that one in focus stays in focus. */
  neighbors(run, frame) {
    this.links ??= this.makeLinks(run);
    for (const { edge, state, traffic } of this.links) {
      const code = frame.edge.state[edge];
      say(state, run.state(code));
      state.dataset.well = !(code > 0);
      say(traffic, `${bits(frame.edge.bits[edge])} a round`);
    }
  }

  makeLinks(run) {
    const links = run.network.edges.flatMap(([a, b], edge) => {
      if (a !== this.node && b !== this.node) return [];
      const peer = a === this.node ? b : a;
      const button = element("button", { type: "button" }, `node ${run.network.ids[peer]}`);
      button.addEventListener("click", () => this.open(peer, run));
      return [{ edge, button, state: element("span", { className: "link-state" }), traffic: element("span", { className: "hint" }) }];
    });
    const rows = links.map(({ button, state, traffic }) => element("li", {}, button, state, traffic));
    at("panel-links").replaceChildren(...(rows.length ? rows : [element("li", { className: "hint" }, "none that is drawn")]));
    return links;
  }
}
