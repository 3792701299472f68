// The server, as this page asks it.

async function ask(path, options = {}) {
  const answer = await fetch(path, options);
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const told = await answer.json().catch(() => ({}));
  throw new Error(told.error ?? `the server answers ${answer.status}`);
}

const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const options = () => ask("/api/options");
export const runs = () => ask("/api/runs");
export const start = (settings) => post("/api/runs", settings);
export const stop = (name) => post(`/api/runs/${encodeURIComponent(name)}/stop`);

/** An event, or null where a line of a file is damaged. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Hear the events of a run until it ends; the connection is made anew where it breaks. */
export function listen(name, { event, broken, closed }) {
  const source = new EventSource(`/api/runs/${encodeURIComponent(name)}/events`);
  source.onmessage = (message) => {
    const told = parsed(message.data);
    if (told) event(told);
  };
  source.onerror = () => broken(source.readyState === EventSource.CLOSED);
  source.addEventListener("close", () => {
    source.close();
    closed();
  });
  return source;
}
