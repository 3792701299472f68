// The form that starts a simulation.

import * as api from "./api.js";
import { element } from "./format.js";

const PERCENT = 100; // links that fail are asked for in percent
const NUMBERS = ["nodes", "bits", "eta", "gamma", "rounds", "seed", "links"];

function choices(select, names, none) {
  const options = names.map((entry) => entry.name ?? entry).map((name) => element("option", { value: name }, name));
  select.replaceChildren(...(none ? [element("option", { value: "" }, none)] : []), ...options);
}

function prepare(form, { limits, defaults, ...names }) {
  for (const name of ["data", "topology", "method"]) choices(form.elements[name], names[name]);
  choices(form.elements.learner, names.learner, "method's own");
  for (const [name, [least, most]] of Object.entries(limits ?? {})) {
    const field = form.elements[name];
    const unit = name === "links" ? PERCENT : 1;
    if (field?.tagName === "INPUT") Object.assign(field, { min: unit * least, max: unit * most });
  }
  for (const [name, value] of Object.entries(defaults ?? {})) {
    const field = form.elements[name];
    if (field && value !== null) field.value = name === "links" ? PERCENT * value : value;
  }
}

/** Data that belong to nodes, stations say, bring their nodes along. */
function follow(form, data) {
  const { data: chosen, nodes, topology } = form.elements;
  const own = data.find(({ name }) => name === chosen.value)?.nodes;
  nodes.disabled = topology.disabled = Boolean(own);
  if (own) nodes.title = topology.title = `these data have ${own} nodes of their own`;
  else for (const field of [nodes, topology]) field.removeAttribute("title");
}

function settings(form) {
  const given = Object.fromEntries(new FormData(form));
  for (const name of NUMBERS) given[name] = (given[name] ?? "") === "" ? null : Number(given[name]);
  if (given.links !== null) given.links /= PERCENT;
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null && value !== ""));
}

/** Let a form start simulations; `started` hears the name of each. Return what is missing for any, in words. */
export async function serve(form, error, started) {
  const tell = (text) => {
    error.hidden = !text;
    error.textContent = text;
  };
  const button = form.querySelector("#start");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tell("");
    button.disabled = true;
    try {
      started((await api.start(settings(form))).run);
    } catch (refused) {
      tell(refused.message);
      form.closest("details").open = true;
      error.scrollIntoView({ block: "nearest" });
    } finally {
      button.disabled = false;
    }
  });
  try {
    const options = await api.options();
    prepare(form, options);
    tell(options.missing ?? "");
    form.elements.data.addEventListener("change", () => follow(form, options.data));
    return options.missing ?? "";
  } catch (refused) {
    tell(refused.message);
    return "";
  }
}
