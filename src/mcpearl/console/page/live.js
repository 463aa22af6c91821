// The live view: what the server does at the moment, and what a person can do about it.

import { Chart } from "./charts.js";
import { bytes, card, clock, fill, h, json, seconds, toast } from "./dom.js";
import { act, on } from "./link.js";

const KEPT = 500;
const rate = (n) => n >= 1000 ? `${(n / 1000).toFixed(1)} k/s` : `${n.toFixed(n < 10 ? 1 : 0)} /s`;
const whole = (n) => String(Math.round(n));

export class LiveView {
  constructor() {
    this.operable = false;
    this.calls = [];
    this.paused = false;
    this.opened = new Set();
    this.charts = {
      rate: new Chart("Calls", ["calls"], rate),
      took: new Chart("Time per call", ["median", "95 %", "99 %"], seconds),
      errors: new Chart("Failures", ["failures"], rate),
      flying: new Chart("In flight", ["calls"], whole),
      sessions: new Chart("Sessions", ["sessions", "connections"], whole),
      lag: new Chart("Delay of the event loop", ["delay"], seconds),
      memory: new Chart("Memory", ["process", "held for clients"], bytes),
      cpu: new Chart("Processor", ["share"], (n) => `${Math.round(n * 100)} %`),
    };
    this.tree = h("div", { class: "scroll" });
    this.sessions = h("div", { class: "scroll" });
    this.running = h("div", { class: "scroll" });
    this.tasks = h("div", { class: "scroll" });
    this.tasksCard = card("Tasks", null, this.tasks);
    this.tasksCard.hidden = true;
    this.upstreams = h("div", { class: "scroll" });
    this.upstreamsCard = card("Upstreams", null, this.upstreams);
    this.upstreamsCard.hidden = true;
    this.bounds = h("div", { class: "scroll" });
    this.rows = h("tbody", {});
    this.missed = h("span", { class: "soft" });
    this.element = h("div", {},
      h("div", { class: "charts" }, Object.values(this.charts).map((each) => each.element)),
      h("div", { class: "grid" },
        wide("half", card("Supervision tree", null, this.tree)),
        wide("half", card("Bounds", null, this.bounds)),
        wide("wide", card("Clients and sessions", null, this.sessions)),
        wide("half", card("Calls in flight", null, this.running)),
        wide("half", this.tasksCard),
        wide("wide", this.upstreamsCard),
        wide("wide", this.callsCard())));
    on("pulse", (event) => this.pulse(event));
    on("tree", (event) => fill(this.tree, h("ul", { class: "tree" }, this.node(event.root, []))));
    on("sessions", (event) => this.showSessions(event));
    on("running", (event) => this.showRunning(event));
    on("tasks", (event) => this.showTasks(event));
    on("upstreams", (event) => this.showUpstreams(event));
    on("bounds", (event) => this.showBounds(event));
    on("calls", (event) => this.addCalls(event));
  }

  pulse(event) {
    const { charts } = this;
    charts.rate.add([event.rate], `${event.totals.calls} while watched`);
    charts.took.add([event.p50, event.p95, event.p99], event.rate ? `95 %: ${seconds(event.p95)}` : "");
    const { tool_error: tools, error, cancelled } = event.totals;
    charts.errors.add([event.errors], `${tools + error} failed, ${cancelled} cancelled`);
    charts.flying.add([event.in_flight]);
    charts.sessions.add([event.sessions, event.connections], `${event.connections} connections`);
    charts.lag.add([event.lag]);
    charts.memory.add([event.memory, event.held], `${bytes(event.held)} held`);
    charts.cpu.add([event.cpu]);
  }

  // The tree

  node(node, path) {
    const look = { running: "good", waiting: "warn", starting: "warn", stopping: "warn", failed: "bad" }[node.state] ?? "";
    return h("li", {},
      h("div", { class: "node" }, h("b", {}, node.name), h("span", { class: `chip ${look}` }, node.state),
        node.restarts ? h("span", { class: "warn" }, `restarted ${node.restarts}×`) : null,
        node.last_error ? h("span", { class: "soft" }, node.last_error) : null,
        this.operable && path.length ? h("button", { type: "button", class: "small quiet", "aria-label": `Restart ${node.name}`, click: () =>
          sure(`Restart ${path.join(" / ")}? What it holds is lost.`, { do: "restart_child", path }) }, "restart") : null),
      node.children.length ? h("ul", {}, node.children.map((each) => this.node(each, [...path, each.name]))) : null);
  }

  // Tables

  showSessions({ rows, all }) {
    fill(this.sessions, rows.length ? h("table", {},
      head(["Client", "Protocol", "~Wire", "Session", "~Principal", "!In flight", "~!Asked", "~!Subscribed", "~!Held", "~!Silent", ""]),
      h("tbody", {}, rows.map((each) => h("tr", {},
        h("td", {}, each.client ?? h("i", {}, "clients without a session")),
        h("td", {}, each.protocol ?? ""), h("td", { class: "less" }, each.wire ?? ""),
        h("td", {}, each.session ? this.followButton("session", each.session) : ""),
        h("td", { class: "less" }, each.principal ?? ""),
        num(each.in_flight), num(each.asked, "less"), num(each.subscriptions, "less"), num(bytes(each.held), "less"), num(seconds(each.silent), "less"),
        h("td", { class: "act" }, this.operable && each.is_session ? h("button", { type: "button", class: "small danger", click: () =>
          sure(`End the session of ${each.client}?`, { do: "end_session", number: each.number }) }, "end") : "")))))
      : h("p", { class: "empty" }, "No client is connected."), more(rows, all));
  }

  showRunning({ rows, all }) {
    fill(this.running, rows.length ? h("table", {}, head(["Call", "~Client", "!For", ""]),
      h("tbody", {}, rows.map((each) => h("tr", {},
        h("td", {}, h("span", { class: "soft" }, each.method), " ", h("b", {}, each.name ?? "")),
        h("td", { class: "less" }, each.client ?? ""), num(each.seconds < 1 ? "< 1 s" : seconds(each.seconds)),
        h("td", { class: "act" }, this.operable ? h("button", { type: "button", class: "small danger", click: () =>
          act({ do: "stop_call", number: each.number }).catch((error) => toast(error.message)) }, "stop") : "")))))
      : h("p", { class: "empty" }, "No call is in flight."), more(rows, all));
  }

  showTasks({ states, waiting, rows }) {
    this.tasksCard.hidden = false;
    fill(this.tasks, h("div", { class: "row" }, Object.entries(states).map(([state, n]) => h("span", { class: "chip" }, `${state}: ${n}`)),
      waiting ? h("span", { class: "chip warn" }, `waiting: ${waiting}`) : null),
    rows.length ? h("table", {}, head(["Task", "Tool", "State", "!For"]), h("tbody", {}, rows.map((each) => h("tr", {},
      h("td", { class: "mono" }, each.id), h("td", {}, each.name ?? ""), h("td", {}, each.state, each.message ? `: ${each.message}` : ""), num(seconds(each.seconds))))))
      : h("p", { class: "empty" }, "No task is at work."));
  }

  showUpstreams({ rows }) {
    this.upstreamsCard.hidden = false;
    fill(this.upstreams, h("table", {}, head(["Upstream", "State", "~Protocol", "~!For", "~!Attempts", "Reason"]), h("tbody", {}, rows.map((each) => h("tr", {},
      h("td", {}, each.name), h("td", {}, h("span", { class: `chip ${{ ready: "good", down: "bad" }[each.state] ?? "warn"}` }, each.state)),
      h("td", { class: "less" }, each.protocol ?? ""), num(seconds(each.seconds), "less"), num(each.tries || "", "less"), h("td", {}, each.reason ?? ""))))));
  }

  showBounds({ rows }) {
    fill(this.bounds, h("table", {}, head(["Bound", "!Used", "!Of", "~", "!Reached"]), h("tbody", {}, rows.map((each) => {
      const share = each.limit ? each.used / each.limit : 0;
      const bar = h("i", {});
      bar.style.width = `${Math.min(share * 100, 100)}%`;
      const shown = each.name === "max_held" ? bytes : String;
      return h("tr", {}, h("td", {}, each.name), num(each.limit === undefined ? "" : shown(each.used)), num(each.limit === undefined ? "" : shown(each.limit)),
        h("td", { class: "less" }, each.limit === undefined ? "" : h("div", { class: `meter${share > 0.8 ? " near" : ""}` }, bar)),
        h("td", { class: `num${each.reached ? " bad" : ""}`, title: each.detail ?? "" }, each.reached ? `${each.reached}×` : ""));
    }))));
  }

  // The last calls

  callsCard() {
    this.find = h("input", { type: "search", placeholder: "tool, method, client, trace", "aria-label": "Find calls", input: () => this.showCalls() });
    this.only = h("select", { "aria-label": "Outcome", change: () => this.showCalls() },
      [["", "all"], ["result", "succeeded"], ["failed", "failed"], ["cancelled", "cancelled"]].map(([value, text]) => h("option", { value }, text)));
    this.pause = h("button", { type: "button", "aria-pressed": "false", click: () => {
      this.paused = !this.paused;
      this.pause.setAttribute("aria-pressed", this.paused);
      this.pause.textContent = this.paused ? "Go on" : "Pause";
      this.showCalls();
    } }, "Pause");
    this.following = h("span", {});
    return card("Last calls", [this.following, this.missed, this.find, this.only, this.pause],
      h("div", { class: "scroll" }, h("table", {}, head(["~Time", "Call", "~Client", "Session", "~Trace", "Outcome", "!Took", "~!Size"]), this.rows)));
  }

  followButton(by, value) {
    return h("button", { type: "button", class: "small quiet mono", "aria-label": `Follow the ${by} ${value}`, title: `Follow this ${by}`, click: () => this.follow(by, value) }, value.slice(0, 10));
  }

  follow(by, value) {
    this.followed = by ? { by, value } : null;
    act({ do: "follow", by: by ?? null, value: value ?? "" }).catch((error) => toast(error.message));
    fill(this.following, by ? h("span", { class: "chip good" }, `following ${by} ${value.slice(0, 12)} `,
      h("button", { type: "button", class: "small quiet", "aria-label": "Follow all calls again", click: () => this.follow(null) }, "✕")) : null);
    this.showCalls();
  }

  addCalls({ rows, missed }) {
    this.calls = rows.reverse().concat(this.calls).slice(0, KEPT);
    this.missed.textContent = missed ? `${missed} more in this second` : "";
    if (!this.paused) this.showCalls();
  }

  shown(call) {
    const { followed } = this;
    const wanted = this.find.value.toLowerCase();
    if (followed && call[followed.by] !== followed.value) return false;
    const only = this.only.value;
    if (only && (only === "failed" ? !["error", "tool_error"].includes(call.outcome) : call.outcome !== only)) return false;
    return !wanted || [call.name, call.method, call.client, call.trace, call.session, call.principal].some((each) => each?.toLowerCase().includes(wanted));
  }

  showCalls() {
    const rows = this.calls.filter((call) => this.shown(call)).slice(0, 100);
    fill(this.rows, rows.length ? rows.map((call) => this.callRow(call)) : h("tr", {}, h("td", { colspan: 8, class: "empty" }, "No calls yet.")));
  }

  callRow(call) {
    const look = { result: "good", cancelled: "warn" }[call.outcome] ?? "bad";
    const details = call.arguments !== null;
    const open = this.opened.has(call.number);
    const toggle = () => {
      if (open) this.opened.delete(call.number); else this.opened.add(call.number);
      this.showCalls();
    };
    const name = [h("span", { class: "soft" }, call.method), " ", h("b", {}, call.name ?? "")];
    return [
      h("tr", { class: open ? "open" : "" }, h("td", { class: "less" }, clock(call.at)),
        h("td", {}, details ? h("button", { type: "button", class: "small quiet", "aria-expanded": String(open), click: toggle }, name) : name),
        h("td", { class: "less" }, call.client ?? ""), h("td", {}, call.session ? this.followButton("session", call.session) : ""),
        h("td", { class: "less" }, call.trace ? this.followButton("trace", call.trace) : ""),
        h("td", {}, h("span", { class: look }, call.outcome.replace("_", " "))), num(seconds(call.took)), num(bytes(call.size), "less")),
      open ? h("tr", {}, h("td", { colspan: 8 }, h("h3", {}, "Arguments"), json(indented(call.arguments)), h("h3", {}, "Result"), json(indented(call.result ?? "")))) : null,
    ];
  }
}

function indented(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

const wide = (size, element) => { element.classList.add(size); return element; };
const num = (value, more = "") => h("td", { class: `num ${more}` }, value === null || value === undefined ? "" : String(value));
// Of a heading, `!` marks a column of numbers, `~` one that narrow screens leave out.
const head = (names) => h("thead", {}, h("tr", {}, names.map((name) =>
  h("th", { scope: "col", class: `${name.includes("!") ? "num" : ""} ${name.includes("~") ? "less" : ""}` }, name.replace(/[!~]/g, "")))));
const more = (rows, all) => all > rows.length ? h("p", { class: "soft" }, `${all - rows.length} more are not shown.`) : null;

function sure(question, action) {
  const dialog = h("dialog", { "aria-label": question }, h("p", {}, question), h("div", { class: "row" },
    h("button", { type: "button", class: "main", click: () => {
      dialog.close();
      act(action).catch((error) => toast(error.message));
    } }, "Yes"), h("button", { type: "button", click: () => dialog.close() }, "No")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
