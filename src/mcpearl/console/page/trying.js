// Trying what a server offers: lists on the left, a form and what came of it on the right.

import { failure, result } from "./content.js";
import { asCommand, asCurl, asPython } from "./copying.js";
import { card, copied, fill, h, json, seconds, tabs, toast } from "./dom.js";
import { Form } from "./form.js";
import { ask, on } from "./link.js";

const KINDS = {
  tools: { title: "Tools", method: "tools/list", member: "tools", needs: "tools" },
  resources: { title: "Resources", method: "resources/list", member: "resources", needs: "resources" },
  templates: { title: "Templates", method: "resources/templates/list", member: "resourceTemplates", needs: "resources" },
  prompts: { title: "Prompts", method: "prompts/list", member: "prompts", needs: "prompts" },
};

export class TryView {
  constructor(session) {
    this.session = session; // what is known of the connection: place, protocol, era, capabilities
    this.kind = "tools";
    this.offered = {};
    this.subscribed = new Set();
    this.find = h("input", { type: "search", placeholder: "Find", "aria-label": "Find in the list", input: () => this.list() });
    this.names = h("ul", { class: "list", "aria-label": "What the server offers" });
    this.detail = h("div", { class: "stack" });
    const bar = h("div", { class: "subtabs", role: "tablist", "aria-label": "Kinds" });
    this.show = tabs(bar, Object.fromEntries(Object.entries(KINDS).map(([key, each]) => [key, each.title])), (key) => this.choose(key));
    this.element = h("div", { class: "split" },
      h("section", { class: "card", "aria-label": "Offered" }, bar, h("div", { class: "row" }, h("div", { class: "grow" }, this.find),
        h("button", { type: "button", "aria-label": "Load the list again", click: () => this.load(this.kind) }, "↻")), this.names),
      this.detail);
    on("notice", (event) => {
      const changed = /^notifications\/(tools|resources|prompts)\/list_changed$/.exec(event.method)?.[1];
      if (changed) this.load(changed);
    });
  }

  connected() {
    this.offered = {};
    this.subscribed.clear();
    fill(this.detail, this.introduction());
    this.show(this.kind);
  }

  // What was shown is of another server, or of a connection that is no more.
  disconnected(error) {
    this.offered = {};
    this.subscribed.clear();
    fill(this.names, h("li", { class: "empty" }, "Not connected."));
    fill(this.detail, card(error ? `${this.session.target} cannot be reached` : `Connecting to ${this.session.target}…`, null,
      h("p", {}, h("code", {}, this.session.place.shown)), error ? h("p", { class: "bad", role: "alert" }, error.message) : null));
  }

  introduction() {
    const { server, protocol, era, capabilities, instructions } = this.session;
    return card(server?.title ?? server?.name ?? "The server", h("span", { class: "chip" }, `${protocol}, ${era} era`),
      server?.description ? h("p", {}, server.description) : null,
      instructions ? [h("h3", {}, "Instructions"), json(instructions)] : null,
      h("h3", {}, "Capabilities"), json(capabilities ?? {}));
  }

  choose(kind) {
    this.kind = kind;
    if (this.offered[kind]) {
      this.list();
      return;
    }
    // The list of the kind before is not this one's.
    fill(this.names, h("li", { class: "empty" }, this.session.phase === "ready" ? "Loading…" : "Not connected."));
    this.load(kind);
  }

  async load(kind) {
    const { method, member, needs } = KINDS[kind];
    if (this.session.phase !== "ready") return;
    if (!this.session.capabilities?.[needs]) {
      this.offered[kind] = [];
    } else {
      try {
        const { result: found, error } = await ask(method).answer;
        if (error) toast(error.message);
        this.offered[kind] = found?.[member] ?? [];
      } catch (error) {
        toast(error.message);
      }
    }
    if (kind === this.kind) this.list();
  }

  list() {
    const wanted = this.find.value.toLowerCase();
    const found = (this.offered[this.kind] ?? []).filter((each) => !wanted || JSON.stringify([each.name, each.title, each.uri, each.uriTemplate, each.description]).toLowerCase().includes(wanted));
    fill(this.names, found.length ? found.slice(0, 1000).map((each) => h("li", {}, h("button", { type: "button", "data-name": each.name, click: (event) => {
      for (const other of this.names.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
      event.currentTarget.setAttribute("aria-current", "true");
      this.open(each);
    } }, each.title ?? each.name ?? each.uri, h("small", {}, each.description ?? each.uri ?? each.uriTemplate ?? "")))) : h("li", { class: "empty" }, "Nothing here."));
  }

  open(entry) {
    fill(this.detail, { tools: () => this.tool(entry), resources: () => this.resource(entry), templates: () => this.template(entry), prompts: () => this.prompt(entry) }[this.kind]());
    if (matchMedia("(max-width: 720px)").matches) this.detail.scrollIntoView();
  }

  tool(tool) {
    const form = new Form(tool.inputSchema);
    const support = tool.execution?.taskSupport;
    const asTask = h("input", { type: "checkbox", id: "as-task", checked: support === "required" });
    const run = new Runner(this.session, () => {
      const { value, errors } = form.read();
      return { errors, method: "tools/call", params: { name: tool.name, arguments: value }, schema: tool.inputSchema, options: { task: asTask.checked } };
    });
    const hints = Object.entries(tool.annotations ?? {}).filter(([name, value]) => value === true && name.endsWith("Hint"));
    return card(tool.title ?? tool.name, hints.map(([name]) => h("span", { class: `chip ${name === "destructiveHint" ? "bad" : ""}` }, name.replace("Hint", ""))),
      tool.description ? h("p", {}, tool.description) : null,
      h("form", { submit: (event) => { event.preventDefault(); run.start(); }, keydown: submitOnEnter(run) }, form.element,
        h("div", { class: "row" }, run.buttons("Call"),
          h("label", {}, asTask, " as a task", support ? ` (${support})` : ""),
          h("button", { type: "button", class: "quiet", click: () => form.asJson(!form.isRaw) }, "Form / JSON"))),
      run.output,
      h("details", {}, h("summary", {}, "Schemas"), h("h3", {}, "Input"), json(tool.inputSchema ?? {}), tool.outputSchema ? [h("h3", {}, "Output"), json(tool.outputSchema)] : null));
  }

  resource(resource) {
    const run = new Runner(this.session, () => ({ errors: [], method: "resources/read", params: { uri: resource.uri } }));
    return card(resource.title ?? resource.name ?? resource.uri, resource.mimeType ? h("span", { class: "chip" }, resource.mimeType) : null,
      h("p", {}, h("code", {}, resource.uri)), resource.description ? h("p", {}, resource.description) : null,
      h("div", { class: "row" }, run.buttons("Read"), this.subscription(() => resource.uri)), run.output);
  }

  subscription(uri) {
    if (!this.session.capabilities?.resources?.subscribe) return null;
    const button = h("button", { type: "button", click: async () => {
      const method = this.subscribed.has(uri()) ? "resources/unsubscribe" : "resources/subscribe";
      const { error } = await ask(method, { uri: uri() }).answer;
      if (error) return toast(error.message);
      if (method === "resources/subscribe") this.subscribed.add(uri()); else this.subscribed.delete(uri());
      label();
    } });
    const label = () => { button.textContent = this.subscribed.has(uri()) ? "Unsubscribe" : "Subscribe"; };
    label();
    return button;
  }

  template(template) {
    const names = [...new Set([...template.uriTemplate.matchAll(/\{[+#./;?&]?([^}]*)\}/g)].flatMap((each) => each[1].split(",")).map((name) => name.replace(/(\*|:\d+)$/, "")))];
    const fields = this.completed(names.map((name) => ({ name, required: true })), { type: "ref/resource", uri: template.uriTemplate });
    const uri = () => expanded(template.uriTemplate, fields.read());
    const run = new Runner(this.session, () => ({ errors: [], method: "resources/read", params: { uri: uri() } }));
    return card(template.title ?? template.name ?? template.uriTemplate, template.mimeType ? h("span", { class: "chip" }, template.mimeType) : null,
      h("p", {}, h("code", {}, template.uriTemplate)), template.description ? h("p", {}, template.description) : null,
      h("form", { submit: (event) => { event.preventDefault(); run.start(); } }, fields.element, h("div", { class: "row" }, run.buttons("Read"), this.subscription(uri))), run.output);
  }

  prompt(prompt) {
    const fields = this.completed(prompt.arguments ?? [], { type: "ref/prompt", name: prompt.name });
    const run = new Runner(this.session, () => {
      const given = fields.read();
      const errors = fields.missing().map((name) => ({ message: `${name}: is required`, element: fields.inputs[name] }));
      return { errors, method: "prompts/get", params: { name: prompt.name, arguments: given } };
    });
    return card(prompt.title ?? prompt.name, null, prompt.description ? h("p", {}, prompt.description) : null,
      h("form", { submit: (event) => { event.preventDefault(); run.start(); } }, fields.element, h("div", { class: "row" }, run.buttons("Get"))), run.output);
  }

  // Text fields whose values the server completes while they are typed.
  completed(fields, reference) {
    const inputs = {};
    const completes = Boolean(this.session.capabilities?.completions);
    const read = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]).filter(([, value]) => value !== ""));
    const elements = fields.map(({ name, description, required }, at) => {
      const options = h("datalist", { id: `c${at}-${++listed}` });
      let turn = 0;
      const complete = async () => {
        const own = ++turn;
        await new Promise((done) => setTimeout(done, 150));
        if (own !== turn) return;
        const { [name]: value = "", ...others } = read();
        const params = { ref: reference, argument: { name, value }, ...(Object.keys(others).length ? { context: { arguments: others } } : {}) };
        const { result: found } = await ask("completion/complete", params).answer.catch(() => ({}));
        if (own === turn && found) fill(options, (found.completion?.values ?? []).map((each) => h("option", { value: each })));
      };
      const id = `p${listed}`;
      const input = h("input", { id, autocomplete: "off", list: options.id, "aria-required": String(Boolean(required)), ...(completes ? { input: complete, focus: complete } : {}) });
      inputs[name] = input;
      return h("div", { class: "field", "data-field": name }, h("label", { for: id }, name, " ", h("span", { class: "type" }, required ? "" : "optional")),
        description ? h("div", { class: "hint" }, description) : null, input, options);
    });
    return { element: h("div", {}, elements), read, inputs, missing: () => fields.filter((each) => each.required && !inputs[each.name].value).map((each) => each.name) };
  }
}

let listed = 0;

const submitOnEnter = (run) => (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run.start();
  }
};

// Fills in what people write most in templates; the rest is the server's to judge.
function expanded(template, values) {
  return template.replace(/\{([+#./;?&]?)([^}]*)\}/g, (_, operator, names) => {
    const found = names.split(",").map((name) => name.replace(/(\*|:\d+)$/, "")).filter((name) => values[name] !== undefined);
    const escape = operator === "+" || operator === "#" ? encodeURI : encodeURIComponent;
    if ("?&;".includes(operator) && operator) {
      const pairs = found.map((name) => `${name}=${encodeURIComponent(values[name])}`);
      return pairs.length ? operator + pairs.join(operator === ";" ? ";" : "&") : "";
    }
    const separator = { "": ",", "+": ",", "#": ",", ".": ".", "/": "/" }[operator];
    return found.length ? (operator === "+" ? "" : operator) + found.map((name) => escape(values[name])).join(separator) : "";
  });
}

// One request: its buttons, its progress, its result, and copies of it.
class Runner {
  constructor(session, request) {
    this.session = session;
    this.request = request;
    this.output = h("div", { class: "output", "aria-live": "polite" });
  }

  buttons(text) {
    this.go = h("button", { type: "submit", class: "main", click: (event) => { if (!event.currentTarget.form) this.start(); } }, text);
    this.stop = h("button", { type: "button", disabled: true, click: () => this.asked?.cancel() }, "Cancel");
    this.copy = h("select", { "aria-label": "Copy the call", change: () => this.copyAs() },
      [["", "Copy as…"], ["python", "Python"], ["command", "mcpearl"], ["curl", "curl"]].map(([value, label]) => h("option", { value }, label)));
    return [this.go, this.stop, this.copy];
  }

  checked() {
    const request = this.request();
    if (!request.errors.length) return request;
    request.errors[0].element?.focus?.();
    fill(this.output, h("p", { class: "bad", role: "alert" }, request.errors.map((each) => each.message).join("; ")));
    return null;
  }

  async start() {
    const request = this.checked();
    if (!request) return;
    const bar = h("progress", {});
    const said = h("span", { class: "soft" }, "…");
    fill(this.output, h("div", {}, bar, said));
    this.stop.disabled = false;
    this.asked = ask(request.method, request.params, { ...request.options, progress: (event) => {
      if (event.total) { bar.max = event.total; bar.value = event.progress; }
      said.textContent = [event.message, event.total ? `${event.progress} of ${event.total}` : event.progress].filter((each) => each !== undefined && each !== null).join(" · ");
    } });
    try {
      const { result: found, error, took } = await this.asked.answer;
      const time = h("p", { class: "soft" }, `${error ? "failed" : "answered"} after ${seconds(took)}`);
      if (found?.taskId && request.options?.task) fill(this.output, time, new TaskPanel(found.taskId).element);
      else fill(this.output, time, error ? failure(error) : result(request.method, found));
    } catch (error) {
      fill(this.output, failure(error));
    }
    this.stop.disabled = true;
  }

  copyAs() {
    const way = this.copy.value;
    this.copy.value = "";
    const request = this.checked();
    if (!request || !way) return;
    const { place } = this.session;
    const { method, params, schema } = request;
    const made = way === "python" ? asPython(place, method, params, this.session) : way === "command" ? asCommand(place, method, params, this.session) : asCurl(place, method, params, this.session, schema);
    if (made === null) return toast("This cannot be copied: the server has no address");
    fill(this.output, h("div", { class: "row" }, h("b", {}, way), h("button", { type: "button", class: "small", click: () => copied(made) }, "Copy")), h("pre", { class: "copy", tabindex: 0 }, made));
    copied(made);
  }
}

// A task that was started: looked at, waited for, cancelled.
export class TaskPanel {
  constructor(id) {
    this.id = id;
    this.state = h("span", { class: "chip", role: "status" }, "working");
    this.output = h("div", {});
    this.element = h("div", { class: "block" }, h("div", { class: "row" }, "Task ", h("code", {}, id), this.state,
      h("button", { type: "button", click: () => this.look() }, "Look"),
      h("button", { type: "button", click: () => ask("tasks/cancel", { taskId: id }).answer.then(() => this.look()) }, "Cancel the task")), this.output);
    this.look();
    this.wait();
  }

  async look() {
    const { result: found, error } = await ask("tasks/get", { taskId: this.id }).answer.catch((problem) => ({ error: problem }));
    this.state.textContent = error ? error.message : [found.status, found.statusMessage].filter(Boolean).join(": ");
  }

  async wait() {
    const { result: found, error } = await ask("tasks/result", { taskId: this.id }, { timeout: 900 }).answer.catch((problem) => ({ error: problem }));
    fill(this.output, error ? failure(error) : result("tasks/result", found));
    this.look();
  }
}
