// Every message of this page's connection as it travels, and a place to write one by hand.

import { bytes, card, fill, h, json, toast } from "./dom.js";
import { act, on } from "./link.js";

const KEPT = 500;

export class MessagesView {
  constructor(session) {
    this.session = session;
    this.rows = [];
    this.asked = new Map(); // the methods of the last requests, by their way and id, for their answers
    this.list = h("ol", { class: "messages", "aria-label": "Messages" });
    this.find = h("input", { type: "search", placeholder: "Find", "aria-label": "Find messages", input: () => this.show() });
    this.text = h("textarea", { rows: 4, spellcheck: "false", "aria-label": "A message to send" });
    this.element = h("div", { class: "stack" },
      card("Send a message", h("button", { type: "button", class: "quiet", click: () => this.example() }, "Example"), this.text,
        h("div", { class: "row" }, h("button", { type: "button", class: "main", click: () => act({ do: "send", text: this.text.value }).catch((error) => toast(error.message)) }, "Send"),
          h("span", { class: "soft" }, "It is sent as it is, also if it is wrong. The answer appears below."))),
      card("Messages", [this.find, h("button", { type: "button", click: () => { this.rows = []; this.show(); } }, "Clear")], this.list));
    on("message", (event) => this.add(event));
    this.show();
  }

  example() {
    const { era, protocol } = this.session;
    const params = era === "modern" ? { _meta: {
      "io.modelcontextprotocol/protocolVersion": protocol,
      "io.modelcontextprotocol/clientInfo": { name: "by hand", version: "0" },
      "io.modelcontextprotocol/clientCapabilities": {},
    } } : {};
    this.text.value = JSON.stringify({ jsonrpc: "2.0", id: "by-hand-1", method: "tools/list", params }, null, 2);
  }

  add(event) {
    this.rows.unshift({ ...event, at: new Date(), about: this.about(event) });
    if (this.rows.length > KEPT) this.rows.pop();
    if (!this.element.isConnected) return;
    const wanted = this.find.value.toLowerCase();
    if (wanted && !event.text.toLowerCase().includes(wanted)) return;
    if (this.rows.length === 1) fill(this.list);
    this.list.prepend(row(this.rows[0]));
    if (this.list.childElementCount > KEPT) this.list.lastElementChild.remove();
  }

  // What a message is, in a few words: its method, or of an answer that of its request.
  about({ way, text }) {
    let message;
    try { message = JSON.parse(text); } catch { return ""; } // cut, or not JSON
    const { id, method, error, params } = message ?? {};
    if (method === undefined && id === undefined) return "";
    const asking = `${method === undefined ? (way === "sent" ? "received" : "sent") : way} ${JSON.stringify(id)}`;
    if (method === undefined) return `${error ? "error" : "result"} of ${this.asked.get(asking) ?? "a request"}`;
    const said = typeof params?.name === "string" ? `${method} ${params.name}` : String(method);
    if (id !== undefined) {
      this.asked.delete(asking);
      this.asked.set(asking, said);
      if (this.asked.size > KEPT) this.asked.delete(this.asked.keys().next().value);
    }
    return said;
  }

  show() {
    const wanted = this.find.value.toLowerCase();
    const found = this.rows.filter((each) => !wanted || each.text.toLowerCase().includes(wanted));
    fill(this.list, found.length ? found.map(row) : h("li", { class: "empty" }, "No messages yet."));
  }
}

function row(event) {
  const sent = event.way === "sent";
  const details = h("details", { toggle: () => {
    if (details.open && details.childElementCount === 1) {
      let whole = event.text;
      try { whole = JSON.stringify(JSON.parse(event.text), null, 2); } catch { /* cut, or not JSON */ }
      details.append(json(whole));
    }
  } }, h("summary", {}, h("span", { class: `way ${event.way}`, "aria-label": event.way }, sent ? "→" : "←"),
    h("span", { class: "soft" }, event.at.toLocaleTimeString()), h("span", { class: "soft" }, bytes(event.size)),
  event.about ? h("b", {}, event.about) : null, h("span", { class: "mono text" }, event.text.slice(0, 400))));
  return h("li", {}, details);
}
