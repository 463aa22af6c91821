// The page: what is connected, which view is shown, and the key that lets it in.

import { fill, h, tabs, toast } from "./dom.js";
import { act, on, run, takeKey, useSecrets } from "./link.js";
import { LiveView } from "./live.js";
import { LogsView } from "./logs.js";
import { MessagesView } from "./messages.js";
import { questions } from "./questions.js";
import { settings } from "./settings.js";
import { TryView } from "./trying.js";

const find = (id) => document.getElementById(id);
const session = { phase: "not connected" };
const views = { live: new LiveView(), try: new TryView(session), client: { element: settings(session) }, messages: new MessagesView(session), logs: new LogsView() };
const show = tabs(find("tabs"), { live: "Live", try: "Try", client: "Client", messages: "Messages", logs: "Logs" }, (key) => {
  fill(find("main"), views[key].element);
  views[key].show?.call?.(views[key], views[key].kind);
  remember("view", key);
});

function remember(name, value) {
  try { localStorage.setItem(`mcpearl-${name}`, value); } catch { /* not kept */ }
}

function remembered(name) {
  try { return localStorage.getItem(`mcpearl-${name}`); } catch { return null; }
}

function theme(chosen) {
  document.documentElement.dataset.theme = chosen;
  remember("theme", chosen);
}
if (remembered("theme")) theme(remembered("theme"));
find("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  theme(dark ? "light" : "dark");
});

function connect() {
  const target = find("target").value;
  act({ do: "open", target, protocol: find("protocol").value }).catch((error) => toast(error.message));
}
find("connect").addEventListener("click", connect);
find("target").addEventListener("change", connect);
find("protocol").addEventListener("change", connect);

on("hello", (event) => {
  const names = Object.keys(event.places);
  session.places = event.places;
  fill(find("target"), names.map((name) => h("option", { value: name }, name)));
  if (names.includes(session.target)) find("target").value = session.target;
  if (!find("protocol").options.length) fill(find("protocol"), h("option", { value: "auto" }, "newest"), event.protocols.map((each) => h("option", { value: each }, each)));
  find("tab-live").hidden = !event.live;
  document.title = `${names[0] ?? ""} · mcpearl console`;
  const last = remembered("view");
  show(!event.live ? (last && last !== "live" ? last : "try") : last ?? "live");
  connect();
});

on("state", (event) => {
  const other = event.target !== session.target;
  Object.assign(session, event);
  const place = session.places?.[event.target] ?? {};
  const url = place.url ? new URL(place.url, location.href).href : null;
  session.place = { shown: place.shown || url || event.target, url };
  const look = { ready: "good", failed: "bad" }[event.phase] ?? "warn";
  find("phase").className = `chip ${look}`;
  find("phase").textContent = event.phase === "ready" ? `${event.protocol}, ${event.era}` : event.phase;
  find("phase").title = event.error?.message ?? "";
  if (event.error) toast(event.error.message);
  if (event.phase === "ready") views.try.connected();
  else if (other || event.phase === "failed") views.try.disconnected(event.error);
});

on("gone", () => {
  session.phase = "gone";
  find("phase").className = "chip bad";
  find("phase").textContent = "the console is gone";
});

// Asks for the key, which is in the address that the server printed, and for a token where it has `auth`.
function refused(status) {
  return new Promise((done) => {
    const key = h("input", { id: "key", autocomplete: "off", "aria-required": "true" });
    const token = h("input", { id: "token", type: "password", autocomplete: "off" });
    const dialog = h("dialog", { "aria-label": "Key of the console" }, h("form", { submit: (event) => {
      event.preventDefault();
      useSecrets(key.value.trim(), token.value.trim());
      dialog.close();
    } }, h("h2", {}, status === 401 ? "This server wants an access token" : "Open the address that the server printed"),
    h("p", { class: "soft" }, "The address of the console ends with its key. It is made anew at every start."),
    h("div", { class: "field" }, h("label", { for: "key" }, "Key"), key),
    h("div", { class: "field" }, h("label", { for: "token" }, "Access token, if the server has auth"), token),
    h("button", { type: "submit", class: "main" }, "Open")));
    dialog.addEventListener("close", () => { dialog.remove(); done(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

takeKey();
addEventListener("hashchange", takeKey);
questions(find("questions"));
show(remembered("view") ?? "live");
run(refused);
