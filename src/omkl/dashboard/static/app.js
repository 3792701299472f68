// The page: one run is open at a time; its events come in, and what is shown follows the play head.

import * as api from "./api.js";
import { Charts } from "./charts.js";
import { serve } from "./form.js";
import { count, element, known, number, say } from "./format.js";
import { linkLegend, nodeLegend } from "./legend.js";
import { Network } from "./network.js";
import { Panel } from "./panel.js";
import { Player } from "./player.js";
import { Run } from "./run.js";
import { Notes, figures, story } from "./words.js";

const SLOW_MS = 200; // between two updates of text
const LIST_MS = 4000; // between two looks at the list of runs

const COMPILES = "A new simulation is compiled first, which takes some seconds. Then it begins.";

const at = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const wide = matchMedia("(min-width: 900px)");

const run = new Run();
const player = new Player(run);
const network = new Network(at("network"), (node) => panel.open(node, run));
const charts = new Charts((error) => status("failed", error.message));
const panel = new Panel(charts, network);
const notes = new Notes(at("notes"));

const open = { name: null, source: null, saved: false, own: false, state: "idle", painted: null, told: null, slow: -Infinity };

// ---- the run that is open

function show(name, saved, own) {
  if (name === open.name) return;
  open.source?.close();
  run.clear();
  if (panel.node !== null) panel.close(false);
  Object.assign(open, { name, saved, own, painted: null, told: null });
  at("welcome").hidden = true;
  at("run").hidden = false;
  at("run").classList.add("empty");
  network.clear();
  say(at("title"), saved || !own ? name : "A new simulation");
  document.title = `${name} · omkl`;
  say(at("story"), "");
  at("about").hidden = true;
  wait(saved || !own ? "The run is being opened." : COMPILES);
  status("busy", saved || !own ? "opening" : "compiling");
  open.source = api.listen(name, { event: heard, broken, closed });
  location.hash = `run=${encodeURIComponent(name)}`;
  if (!wide.matches) at("new").open = at("list").open = false;
  list();
}

function heard(event) {
  const again = event.event === "network" && event.started === run.network?.started;
  const kind = run.take(event);
  if (kind === "network") begin(again);
  if (kind === "frame" && run.frames.length === 1) moves();
  if (kind === "end") ended(event);
}

/** A network has been told: draw it; after a broken connection it is the same one, and the play head stays. */
function begin(again) {
  const simulated = run.network.source === "simulation";
  if (!again) player.reset(simulated && !open.saved, !simulated || open.saved);
  open.painted = null;
  document.title = `${run.network.title} · omkl`;
  say(at("title"), run.network.title);
  network.draw(run.network);
  if (panel.node !== null) again ? network.select(panel.node) : panel.close(false);
  if (!simulated) wait("The nodes are asked how they stand.");
  const { nodes, ids, settings, disagreement, window } = run.network;
  say(at("window"), window ?? "");
  say(at("apart"), disagreement ?? "");
  at("sample").hidden = nodes <= ids.length;
  say(at("sample"), `${count(ids.length)} of ${count(nodes)} nodes are drawn; curves and figures are of all.`);
  const row = ([key, value]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, String(value ?? "–")));
  at("settings").replaceChildren(...Object.entries(settings ?? {}).map(row));
  at("about").hidden = false;
  at("notes").setAttribute("aria-live", simulated ? "off" : "polite"); // faults by the dozen are not read out
}

/** The first frame has come. */
function moves() {
  at("run").classList.remove("empty");
  wait("");
  status("live", run.network.source === "simulation" ? "running" : "live");
}

function ended({ failed, text }) {
  if (text === "stopped") status("ended", text);
  else status(failed ? "failed" : "ended", failed ? "failed" : open.saved ? "saved" : "finished", text);
  if (!run.frames.length) wait(failed ? `It failed: ${text}` : text, false);
  list();
}

function broken(final) {
  if (final) status("failed", "not connected", "The server refuses: open the address that omkl dashboard has printed.");
  else status("busy", "reconnecting");
}

function closed() {
  if (open.state !== "failed" && !run.end) status("ended", "ended");
  if (open.saved && !run.end) run.end = { text: "" };
  list();
}

function wait(text, busy = true) {
  at("waiting").hidden = !text;
  at("waiting").classList.toggle("busy", busy);
  say(at("waiting").firstElementChild, text);
}

function status(state, text, more = "") {
  open.state = state;
  at("status").dataset.state = state;
  say(at("status"), more ? `${text}: ${more}` : text);
  at("stop").hidden = !(open.own && (state === "live" || text === "compiling"));
  open.slow = -Infinity;
}

// ---- what is shown of it

function tick(now) {
  requestAnimationFrame(tick);
  if (!run.network) return;
  player.advance(now);
  const key = `${run.version}:${player.index}:${by()}`;
  const slow = now - open.slow >= SLOW_MS;
  if (player.frame && key !== open.painted && (slow || !calm.matches)) {
    open.painted = key;
    network.paint(run, player.frame, by());
    control();
  }
  network.move(!calm.matches && (player.playing || (player.following && open.state === "live")));
  const told = `${key}:${open.state}:${player.playing}:${player.following}`;
  if (slow && open.told !== told) {
    open.told = told;
    open.slow = now;
    words();
  }
  charts.step(now, run, player);
  panel.step(now, run, player);
}

const by = () => document.querySelector("[name=color]:checked").value;

function control() {
  const { frame, index, last } = player;
  const slider = at("slider");
  if (Number(slider.max) !== last) slider.max = last;
  if (Number(slider.value) !== index) slider.value = index;
  say(at("where"), run.network.rounds ? `${count(frame.round)} / ${count(run.network.rounds)}` : count(frame.round));
}

/** Everything in words, a few times a second. */
function words() {
  const moving = player.playing || player.following;
  at("play").setAttribute("aria-label", moving ? "Pause" : "Play");
  at("play").classList.toggle("on", moving);
  at("live").hidden = open.state !== "live";
  at("live").setAttribute("aria-pressed", player.following);
  const frame = player.frame;
  if (!frame) return;
  at("slider").setAttribute("aria-valuetext", `round ${frame.round}, loss ${number(frame.loss)}`);
  network.describe(run, frame);
  const scale = frame.node[by()]?.some(known) ? run.scales()[by()] : null;
  at("scale").replaceChildren(...nodeLegend(by(), scale, by() === "disagreement" ? run.network.disagreement : "", run.away));
  at("links").replaceChildren(...linkLegend(run.network.states, run.scales().traffic, network.thick));
  at("figures").replaceChildren(...figures(run.network, frame));
  say(at("story"), story(run, frame));
  notes.show(run.notesUntil(frame));
}

// ---- the list of runs

async function list() {
  let runs;
  try {
    runs = await api.runs();
  } catch (error) {
    if (!open.source) status("failed", "not connected", error.message);
    return null;
  }
  const entries = runs.map(({ name, title, live }) => {
    const link = element("a", { href: `#run=${encodeURIComponent(name)}` }, element("span", {}, title || name));
    link.append(element("small", { className: live ? "on" : "" }, `${live ? "live" : "saved"} · ${name}`));
    if (name === open.name) link.setAttribute("aria-current", "true");
    return element("li", {}, link);
  });
  const key = JSON.stringify([runs, open.name]);
  if (key !== open.list) at("runs").replaceChildren(...entries);
  open.list = key;
  at("no-runs").hidden = runs.length > 0;
  return runs;
}

/** Open the run that the address names, or the first there is; where there is none, invite to start one. */
async function navigate() {
  const named = new URLSearchParams(location.hash.slice(1)).get("run");
  const runs = (await list()) ?? [];
  const chosen = runs.find((one) => one.name === named) ?? (named && open.name ? null : runs[0]);
  if (chosen) show(chosen.name, !chosen.live, chosen.own);
  else if (!open.name) {
    at("welcome").hidden = false;
    at("new").open = true;
    status("idle", "ready");
  }
}

/** Offer the form, but to whom watches a network and has no data set: there is nothing to start, and nothing amiss. */
async function offer() {
  const missing = await serve(at("form"), at("error"), (name) => show(name, false, true));
  at("new").hidden = missing !== "" && ((await list()) ?? []).some(({ source }) => source === "network");
}

function fold() {
  for (const id of ["new", "list", "about"]) at(id).open = wide.matches;
}

at("play").addEventListener("click", () => player.toggle());
at("live").addEventListener("click", () => player.follow());
at("slider").addEventListener("input", (event) => player.seek(Number(event.target.value)));
at("speed").addEventListener("change", (event) => (player.speed = Number(event.target.value)));
at("stop").addEventListener("click", () => api.stop(open.name).catch((error) => status("failed", "failed", error.message)));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the run
  (at("run").hidden ? at("welcome").querySelector("button") : at("stage")).focus();
});
wide.addEventListener("change", fold);
addEventListener("hashchange", navigate);
setInterval(() => document.hidden || list(), LIST_MS);

fold();
offer();
navigate();
requestAnimationFrame(tick);
