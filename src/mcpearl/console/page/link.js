// The way to the console: one stream of events in, requests out. The key is in the fragment of the
// address, which browsers do not send; it is taken out of the address bar and kept for this tab only.

const listeners = new Map();
let page = null;
let nextId = 1;
const waiting = new Map();

export function on(type, listener) {
  listeners.set(type, [...(listeners.get(type) ?? []), listener]);
}

function tell(event) {
  for (const listener of listeners.get(event.type) ?? []) {
    try { listener(event); } catch (error) { console.error(error); }
  }
}

function stored(name) {
  try { return sessionStorage.getItem(name) ?? ""; } catch { return ""; }
}

function store(name, value) {
  try { sessionStorage.setItem(name, value); } catch { /* kept in memory only */ }
  secrets[name] = value;
}

const secrets = { key: stored("key"), token: stored("token") };

export function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) {
    store("key", given);
    history.replaceState(null, "", location.pathname);
  }
}

export function useSecrets(key, token) {
  if (key) store("key", key);
  store("token", token);
}

function headers(more) {
  const found = { "X-Console-Key": secrets.key, ...more };
  if (secrets.token) found.Authorization = `Bearer ${secrets.token}`;
  return found;
}

// Runs as long as the page is open: connects, reads, and connects again.
export async function run(refused) {
  for (;;) {
    let status = 0;
    try {
      const response = await fetch("events", { headers: headers(), cache: "no-store" });
      status = response.status;
      if (response.ok) await read(response.body.getReader());
    } catch { /* the server is gone; it may come back */ }
    page = null;
    for (const { fail } of waiting.values()) fail(new Error("the console is not connected"));
    waiting.clear();
    tell({ type: "gone" });
    if (status === 401 || status === 403) await refused(status);
    else await new Promise((done) => setTimeout(done, 1000));
  }
}

async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\r\n\r\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\r\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data) received(JSON.parse(data));
    }
  }
}

function received(event) {
  if (event.type === "hello") page = event.page;
  if (event.type === "answer") {
    const found = waiting.get(event.id);
    waiting.delete(event.id);
    found?.done(event);
  } else if (event.type === "progress") {
    waiting.get(event.id)?.progress?.(event);
  }
  tell(event);
}

export async function act(action) {
  if (page === null) throw new Error("the console is not connected");
  const response = await fetch("do", {
    method: "POST", body: JSON.stringify(action), cache: "no-store",
    headers: headers({ "Content-Type": "application/json", "X-Console-Page": page }),
  });
  if (response.ok) return;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error?.message ?? body.error ?? `the console answered ${response.status}`);
}

// Sends a request to the server that is tried. Resolves with the answer, which may be an error.
export function ask(method, params = {}, { task = false, timeout = 300, progress } = {}) {
  const id = nextId++;
  const answer = new Promise((done, fail) => waiting.set(id, { done, fail, progress }));
  act({ do: "ask", id, method, params, task, timeout }).catch((error) => {
    waiting.get(id)?.fail(error);
    waiting.delete(id);
  });
  return { id, answer, cancel: () => act({ do: "cancel", id }).catch(() => {}) };
}
