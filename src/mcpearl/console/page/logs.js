// What is logged: by the server's process, by the server to its client, and on its stderr.

import { card, clock, fill, h } from "./dom.js";
import { on } from "./link.js";

const KEPT = 1000;
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical"];

export class LogsView {
  constructor() {
    this.rows = [];
    this.find = h("input", { type: "search", placeholder: "Find", "aria-label": "Find in the logs", input: () => this.show() });
    this.level = h("select", { "aria-label": "Lowest level", change: () => this.show() }, LEVELS.map((each) => h("option", { value: each, selected: each === "debug" }, each)));
    this.lines = h("div", { class: "logs", role: "log", tabindex: 0, "aria-label": "Log" });
    this.element = card("Logs", [this.find, this.level, h("button", { type: "button", click: () => { this.rows = []; this.show(); } }, "Clear")], this.lines);
    on("logs", ({ rows, worker }) => rows.forEach((each) => this.add({ ...each, level: each.level.toLowerCase(),
      logger: worker === null || worker === undefined ? each.logger : `worker ${worker}: ${each.logger}` })));
    on("stderr", (event) => this.add({ at: Date.now() / 1000, level: "info", logger: "stderr", text: event.text }));
    on("notice", (event) => this.add(event.method === "notifications/message"
      ? { at: Date.now() / 1000, level: event.params.level, logger: `to the client${event.params.logger ? `: ${event.params.logger}` : ""}`, text: typeof event.params.data === "string" ? event.params.data : JSON.stringify(event.params.data) }
      : { at: Date.now() / 1000, level: "notice", logger: event.method, text: JSON.stringify(event.params ?? {}) }));
    this.show();
  }

  wanted(row) {
    const text = this.find.value.toLowerCase();
    return LEVELS.indexOf(row.level) >= LEVELS.indexOf(this.level.value) && (!text || `${row.logger} ${row.text}`.toLowerCase().includes(text));
  }

  add(row) {
    if (!LEVELS.includes(row.level)) row.level = "critical";
    this.rows.push(row);
    if (this.rows.length > KEPT) this.rows.shift();
    if (!this.wanted(row)) return;
    if (this.rows.length === 1) fill(this.lines);
    const atEnd = this.lines.scrollTop + this.lines.clientHeight >= this.lines.scrollHeight - 20;
    this.lines.append(line(row));
    if (this.lines.childElementCount > KEPT) this.lines.firstElementChild.remove();
    if (atEnd) this.lines.scrollTop = this.lines.scrollHeight;
  }

  show() {
    const found = this.rows.filter((row) => this.wanted(row));
    fill(this.lines, found.length ? found.map(line) : h("div", { class: "empty" }, "Nothing was logged yet."));
  }
}

const LOOKS = { warning: "warn", error: "bad", critical: "bad" };
const line = (row) => h("div", {}, h("span", { class: "soft" }, clock(row.at)), " ", h("span", { class: LOOKS[row.level] ?? "soft" }, row.level.padEnd(8)), " ", h("b", {}, row.logger), " ", row.text);
