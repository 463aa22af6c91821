// The live view: what the server does at the moment, and what a person can do about it.

import { Chart, POINTS } from "./charts.js";
import { bytes, card, clock, fill, h, json, seconds, toast } from "./dom.js";
import { act, on } from "./link.js";
import { joinRows, mergeBounds, mergePulses, mergeTasks } from "./merging.js";

const KEPT = 500;
const BETWEEN = 500; // milliseconds from one drawing to the next
const LATE = 4000; // milliseconds without a sign of a worker after which it is not counted
const rate = (n) => n >= 1000 ? `${(n / 1000).toFixed(1)} k/s` : `${n.toFixed(n < 10 ? 1 : 0)} /s`;
const whole = (n) => String(Math.round(n));

export class LiveView {
  constructor() {
    this.operable = false;
    this.own = null; // the worker that has this page; null if there are no workers
    this.workers = new Map(); // by number: what each of them sent last
    this.history = []; // the last pulses of all workers
    this.chosen = ""; // the one that is shown; empty for all
    this.stale = new Set(); // the parts to be drawn again
    this.drawing = null; // the timer for that
    this.drawnAt = 0;
    this.calls = [];
    this.paused = false;
    this.opened = new Set();
    this.drawn = []; // the calls of which the list was drawn; newer ones may have come since
    this.held = null; // those that stay in it while it is paused, or while one of them is open
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
    this.tree = h("div", { class: "scroll", tabindex: 0 });
    this.sessions = h("div", { class: "scroll" });
    this.running = h("div", { class: "scroll" });
    this.tasks = h("div", { class: "scroll", tabindex: 0 });
    this.tasksCard = card("Tasks", null, this.tasks);
    this.tasksCard.hidden = true;
    this.upstreams = h("div", { class: "scroll", tabindex: 0 });
    this.upstreamsCard = card("Upstreams", null, this.upstreams);
    this.upstreamsCard.hidden = true;
    this.bounds = h("div", { class: "scroll", tabindex: 0 });
    this.rows = h("tbody", {});
    this.missed = h("span", { class: "soft" });
    this.more = ""; // how many calls of this second are not listed
    this.choice = h("select", { id: "worker", change: () => this.choose(this.choice.value) });
    this.chips = h("div", { class: "row" });
    this.crew = h("div", { class: "row crew", hidden: true, role: "group", "aria-label": "Workers" }, h("label", {}, "Show ", this.choice), this.chips);
    this.element = h("div", {}, this.crew,
      h("div", { class: "charts" }, Object.values(this.charts).map((each) => each.element)),
      h("div", { class: "grid" },
        wide("half", card("Supervision tree", null, this.tree)),
        wide("half", card("Bounds", null, this.bounds)),
        wide("wide", card("Clients and sessions", null, this.sessions)),
        wide("half", card("Calls in flight", null, this.running)),
        wide("half", this.tasksCard),
        wide("wide", this.upstreamsCard),
        wide("wide", this.callsCard())));
    on("hello", (event) => this.begin(event));
    on("worker", (event) => this.showWorker(event));
    on("pulse", (event) => this.pulse(event));
    for (const kind of Object.keys(PARTS)) on(kind, (event) => kind === "calls" ? this.addCalls(event) : this.keep(kind, event));
  }

  // Workers. Without any, there is one source of events, whose number is null.

  begin({ worker, workers, operable }) {
    this.own = worker;
    this.operable = operable;
    this.history = [];
    this.calls = [];
    this.opened.clear();
    this.hold();
    this.chosen = "";
    this.workers = new Map(workers > 1 ? [...Array(workers).keys()].map((number) => [number, { up: false }]) : [[null, { up: false }]]);
    this.crew.hidden = workers < 2;
    fill(this.choice, h("option", { value: "" }, "all workers"), [...this.workers.keys()].map((number) => h("option", { value: String(number) }, `worker ${number}`)));
    for (const chart of Object.values(this.charts)) chart.clear();
    this.showCrew();
    this.showCalls();
  }

  get several() { return this.workers.size > 1; }

  choose(value) {
    this.chosen = value;
    for (const chart of Object.values(this.charts)) chart.clear();
    for (const pulses of this.history) this.draw(pulses);
    for (const kind of Object.keys(PARTS)) this.redraw(kind);
    this.showCalls();
  }

  // The last events of a kind, of the workers that are shown.
  last(kind) {
    return [...this.workers].filter(([number, each]) => this.wants(number) && each[kind]).map(([, each]) => each[kind]);
  }

  wants(worker) { return this.chosen === "" || String(worker) === this.chosen; }

  showWorker({ worker, up, pid, restarts }) {
    const known = this.workers.get(worker);
    if (!known) return;
    this.workers.set(worker, up ? { up, pid, restarts, heard: Date.now() } : { up, pid: known.pid, restarts: known.restarts });
    this.showCrew();
    for (const kind of Object.keys(PARTS)) this.redraw(kind);
  }

  showCrew() {
    if (!this.several) return;
    fill(this.chips, [...this.workers].map(([number, each]) => {
      const late = each.up && Date.now() - each.heard > LATE;
      const state = !each.up ? "not there" : late ? `process ${each.pid}, silent` : `process ${each.pid}`;
      return h("span", { class: `chip ${!each.up ? "bad" : late ? "warn" : "good"}` }, `worker ${number}: ${state}${each.restarts ? `, replaced ${each.restarts}×` : ""}`);
    }));
  }

  keep(kind, event) {
    const known = this.workers.get(event.worker ?? null);
    if (!known) return;
    known[kind] = event;
    this.redraw(kind);
  }

  // Draws parts again, at most twice a second however many workers there are: a row that is replaced all the
  // time cannot be clicked.
  redraw(kind) {
    this.stale.add(kind);
    this.drawing ??= setTimeout(() => this.drawStale(), Math.max(0, this.drawnAt + BETWEEN - Date.now()));
  }

  drawStale() {
    const kinds = [...this.stale];
    this.stale.clear();
    this.drawing = null;
    this.drawnAt = Date.now();
    for (const each of kinds) PARTS[each](this, this.last(each));
  }

  pulse(event) {
    const known = this.workers.get(event.worker ?? null);
    if (!known) return;
    known.pulse = event;
    known.heard = Date.now();
    if ((event.worker ?? null) !== this.own) return; // one point of the charts for each pulse of our own
    const pulses = [...this.workers.values()].filter((each) => each.pulse && Date.now() - each.heard < LATE).map((each) => each.pulse);
    this.showCrew();
    this.history.push(pulses);
    if (this.history.length > POINTS) this.history.shift();
    this.draw(pulses);
  }

  draw(pulses) {
    const { charts } = this;
    const event = mergePulses(pulses.filter((each) => this.wants(each.worker)));
    const { calls = 0, tool_error: tools = 0, error = 0, cancelled = 0 } = event.totals;
    charts.rate.add([event.rate], `${calls} while watched`);
    charts.took.add([event.p50, event.p95, event.p99], event.rate ? `95 %: ${seconds(event.p95)}` : "");
    charts.errors.add([event.errors], `${tools + error} failed, ${cancelled} cancelled`);
    charts.flying.add([event.in_flight]);
    charts.sessions.add([event.sessions, event.connections], `${event.connections} connection${event.connections === 1 ? "" : "s"}`);
    charts.lag.add([event.lag]);
    charts.memory.add([event.memory, event.held], `${bytes(event.held)} held`);
    charts.cpu.add([event.cpu]);
  }

  // The tree

  showTree(events) {
    const one = (event) => this.node(event.root, [], event.worker);
    if (!this.several) return fill(this.tree, h("ul", { class: "tree" }, events.map(one)));
    const shown = [...this.workers].filter(([number]) => this.wants(number));
    return fill(this.tree, h("ul", { class: "tree" }, shown.map(([number, each]) => h("li", {},
      h("div", { class: "node" }, h("b", {}, `worker ${number}`), h("span", { class: `chip ${each.up ? "good" : "bad"}` }, each.up ? "running" : "not there"),
        each.restarts ? h("span", { class: "warn" }, `replaced ${each.restarts}×`) : null,
        this.operable && each.up ? h("button", { type: "button", class: "small quiet", "aria-label": `Restart worker ${number}`, click: () =>
          sure(`Restart worker ${number}? Its calls may finish; its sessions are lost.`, { do: "restart_child", path: [], worker: number }) }, "restart") : null),
      each.tree ? h("ul", {}, one(each.tree)) : null))));
  }

  node(node, path, worker) {
    const look = { running: "good", waiting: "warn", starting: "warn", stopping: "warn", failed: "bad" }[node.state] ?? "";
    return h("li", {},
      h("div", { class: "node" }, h("b", {}, node.name), h("span", { class: `chip ${look}` }, node.state),
        node.restarts ? h("span", { class: "warn" }, `restarted ${node.restarts}×`) : null,
        node.last_error ? h("span", { class: "soft" }, node.last_error) : null,
        this.operable && path.length ? h("button", { type: "button", class: "small quiet", "aria-label": `Restart ${node.name}${worker === null ? "" : ` of worker ${worker}`}`, click: () =>
          sure(`Restart ${path.join(" / ")}? What it holds is lost.`, { do: "restart_child", path, worker }) }, "restart") : null),
      node.children.length ? h("ul", {}, node.children.map((each) => this.node(each, [...path, each.name], worker))) : null);
  }

  // Tables

  // A table, with a column for the worker where there are several.
  table(names, rows) {
    const all = this.several ? [...names.slice(0, 1), "Worker", ...names.slice(1)] : names;
    return h("table", {}, h("thead", {}, h("tr", {}, headings(all))), h("tbody", {}, rows.map((row) => labelled(all, row))));
  }

  worker(row) { return this.several ? h("td", {}, row.worker) : null; }

  showSessions({ rows, all }) {
    fill(this.sessions, rows.length ? this.table(
      ["Client", "Protocol", "Wire", "Session", "Principal", "!In flight", "!Asked", "!Subscribed", "!Held", "!Silent", ""],
      rows.map((each) => h("tr", {},
        h("td", {}, each.client ?? h("i", {}, "clients without a session")), this.worker(each),
        h("td", {}, each.protocol ?? ""), h("td", {}, each.wire ?? ""),
        h("td", {}, each.session ? this.followButton("session", each.session) : ""),
        h("td", {}, each.principal ?? ""),
        num(each.in_flight), num(each.asked), num(each.subscriptions), num(bytes(each.held)), num(seconds(each.silent)),
        h("td", { class: "act" }, this.operable && each.is_session ? h("button", { type: "button", class: "small danger", click: () =>
          sure(`End the session of ${each.client}?`, { do: "end_session", number: each.number, worker: each.worker }) }, "end") : ""))))
      : h("p", { class: "empty" }, "No client is connected."), more(rows, all));
  }

  showRunning({ rows, all }) {
    fill(this.running, rows.length ? this.table(["Call", "Client", "!For", ""],
      rows.map((each) => h("tr", {},
        h("td", {}, h("span", { class: "soft" }, each.method), " ", h("b", {}, each.name ?? "")), this.worker(each),
        h("td", {}, each.client ?? ""), num(each.seconds < 1 ? "< 1 s" : seconds(each.seconds)),
        h("td", { class: "act" }, this.operable ? h("button", { type: "button", class: "small danger", click: () =>
          act({ do: "stop_call", number: each.number, worker: each.worker }).catch((error) => toast(error.message)) }, "stop") : ""))))
      : h("p", { class: "empty" }, "No call is in flight."), more(rows, all));
  }

  showTasks({ states, waiting, rows }) {
    this.tasksCard.hidden = false;
    fill(this.tasks, h("div", { class: "row" }, Object.entries(states).map(([state, n]) => h("span", { class: "chip" }, `${state}: ${n}`)),
      waiting ? h("span", { class: "chip warn" }, `waiting: ${waiting}`) : null),
    rows.length ? this.table(["Task", "Tool", "State", "!For"], rows.map((each) => h("tr", {},
      h("td", { class: "mono" }, each.id), this.worker(each), h("td", {}, each.name ?? ""), h("td", {}, each.state, each.message ? `: ${each.message}` : ""), num(seconds(each.seconds)))))
      : h("p", { class: "empty" }, "No task is at work."));
  }

  showUpstreams({ rows }) {
    this.upstreamsCard.hidden = false;
    fill(this.upstreams, this.table(["Upstream", "State", "Protocol", "!For", "!Attempts", "Reason"], rows.map((each) => h("tr", {},
      h("td", {}, each.name), this.worker(each), h("td", {}, h("span", { class: `chip ${{ ready: "good", down: "bad" }[each.state] ?? "warn"}` }, each.state)),
      h("td", {}, each.protocol ?? ""), num(seconds(each.seconds)), num(each.tries || ""), h("td", {}, each.reason ?? "")))));
  }

  showBounds(rows) {
    fill(this.bounds, this.table(["Bound", "!Used", "!Of", "", "!Reached"], rows.map((each) => {
      const share = each.limit ? each.used / each.limit : 0;
      const bar = h("i", {});
      bar.style.width = `${Math.min(share * 100, 100)}%`;
      const shown = each.name === "max_held" ? bytes : String;
      return h("tr", {}, h("td", {}, each.name), this.worker(each), num(each.limit === undefined ? "" : shown(each.used)), num(each.limit === undefined ? "" : shown(each.limit)),
        h("td", {}, each.limit === undefined ? "" : h("div", { class: `meter${share > 0.8 ? " near" : ""}` }, bar)),
        h("td", { class: `num${each.reached ? " bad" : ""}`, title: each.detail ?? "" }, each.reached ? `${each.reached}×` : ""));
    })));
  }

  // The last calls

  callsCard() {
    this.find = h("input", { type: "search", placeholder: "tool, method, client, trace", "aria-label": "Find calls", input: () => this.showCalls() });
    this.only = h("select", { "aria-label": "Outcome", change: () => this.showCalls() },
      [["", "all"], ["result", "succeeded"], ["failed", "failed"], ["cancelled", "cancelled"]].map(([value, text]) => h("option", { value }, text)));
    this.pause = h("button", { type: "button", click: () => {
      this.paused = !this.held;
      this.opened.clear();
      this.hold();
      this.showCalls();
    } });
    this.hold();
    this.following = h("span", {});
    this.headings = h("thead", {});
    return card("Last calls", [this.following, this.missed, this.find, this.only, this.pause],
      h("div", { class: "scroll" }, h("table", {}, this.headings, this.rows)));
  }

  followButton(by, value) {
    return h("button", { type: "button", class: "small quiet mono", "aria-label": `Follow the ${by} ${value.slice(0, 10)}`, title: `Follow this ${by}`, click: () => this.follow(by, value) }, value.slice(0, 10));
  }

  follow(by, value) {
    this.followed = by ? { by, value } : null;
    this.paused = false; // what it does next is what is looked for
    this.opened.clear();
    this.hold();
    act({ do: "follow", by: by ?? null, value: value ?? "" }).catch((error) => toast(error.message));
    fill(this.following, by ? h("span", { class: "chip good" }, `following ${by} ${value.slice(0, 12)} `,
      h("button", { type: "button", class: "small quiet", "aria-label": "Follow all calls again", click: () => this.follow(null) }, "✕")) : null);
    this.showCalls();
  }

  addCalls({ rows, missed, worker = null }) {
    const known = this.workers.get(worker);
    if (!known) return;
    known.missed = missed;
    this.calls = rows.map((row) => ({ ...row, worker })).concat(this.calls).sort((one, other) => other.at - one.at).slice(0, KEPT);
    const all = [...this.workers].reduce((total, [number, each]) => total + (this.wants(number) && each.missed || 0), 0);
    this.more = all ? `${all} more in this second` : "";
    this.redraw("calls");
  }

  // While a call is open it stays where it is: on a busy server it would be out of sight within a second.
  hold() {
    this.held = this.paused || this.opened.size ? this.held ?? this.drawn : null;
    this.pause.setAttribute("aria-pressed", Boolean(this.held));
    this.pause.textContent = this.held ? "Go on" : "Pause";
  }

  shown(call) {
    const { followed } = this;
    const wanted = this.find.value.toLowerCase();
    if (!this.wants(call.worker) || (followed && call[followed.by] !== followed.value)) return false;
    const only = this.only.value;
    if (only && (only === "failed" ? !["error", "tool_error"].includes(call.outcome) : call.outcome !== only)) return false;
    return !wanted || [call.name, call.method, call.client, call.trace, call.session, call.principal].some((each) => each?.toLowerCase().includes(wanted));
  }

  showCalls() {
    this.missed.textContent = this.held ? "paused" : this.more;
    this.drawn = this.held ?? this.calls;
    const rows = this.drawn.filter((call) => this.shown(call)).slice(0, 100);
    const names = ["Time", "Call", ...(this.several ? ["Worker"] : []), "Client", "Session", "Trace", "Outcome", "!Took", "!Size"];
    fill(this.headings, h("tr", {}, headings(names)));
    fill(this.rows, rows.length ? rows.map((call) => this.callRow(call, names)) : h("tr", {}, h("td", { colspan: 9, class: "empty" }, "No calls yet.")));
  }

  callRow(call, names) {
    const look = { result: "good", cancelled: "warn" }[call.outcome] ?? "bad";
    const details = call.arguments !== null;
    const id = `${call.worker} ${call.number}`;
    const open = this.opened.has(id);
    const toggle = () => {
      if (open) this.opened.delete(id); else this.opened.add(id);
      this.hold();
      this.showCalls();
    };
    const name = [h("span", { class: "soft" }, call.method), " ", h("b", {}, call.name ?? "")];
    return [
      labelled(names, h("tr", { class: open ? "open" : "" }, h("td", {}, clock(call.at)),
        h("td", {}, details ? h("button", { type: "button", class: "small quiet", "aria-expanded": String(open), click: toggle }, name) : name),
        this.worker(call), h("td", {}, call.client ?? ""), h("td", {}, call.session ? this.followButton("session", call.session) : ""),
        h("td", {}, call.trace ? this.followButton("trace", call.trace) : ""),
        h("td", {}, h("span", { class: look }, call.outcome.replace("_", " "))), num(seconds(call.took)), num(bytes(call.size))), 1),
      open ? h("tr", {}, h("td", { colspan: 9 }, h("h3", {}, "Arguments"), json(indented(call.arguments)), h("h3", {}, "Result"), json(indented(call.result ?? "")))) : null,
    ];
  }
}

// How each kind of event is shown, from the last one of every worker.
const PARTS = {
  tree: (view, events) => view.showTree(events),
  sessions: (view, events) => view.showSessions(joinRows(events)),
  running: (view, events) => view.showRunning(joinRows(events)),
  tasks: (view, events) => { if (events.length || !view.tasksCard.hidden) view.showTasks(mergeTasks(events)); },
  upstreams: (view, events) => { if (events.length || !view.upstreamsCard.hidden) view.showUpstreams(joinRows(events)); },
  bounds: (view, events) => view.showBounds(mergeBounds(events)),
  calls: (view) => { if (!view.held) view.showCalls(); },
};

function indented(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

const wide = (size, element) => { element.classList.add(size); return element; };
const num = (value) => h("td", { class: "num" }, value === null || value === undefined ? "" : String(value));
// Of a heading, `!` marks a column of numbers. One without a name is a plain cell.
const headings = (names) => names.map((name) => name
  ? h("th", { scope: "col", class: name.startsWith("!") ? "num" : "" }, name.replace("!", ""))
  : h("td", { class: "corner" }));
// On a narrow screen a row is a few lines: first the cell that names it, then each with the name of its column.
function labelled(names, row, naming = 0) {
  names.forEach((name, at) => { row.cells[at].dataset.label = name.replace("!", ""); });
  row.cells[naming].classList.add("naming");
  return row;
}
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
