// What this page's client is and does: roots, the log level, pings, and requests without a form.

import { failure } from "./content.js";
import { card, fill, h, json, seconds, toast } from "./dom.js";
import { act, ask } from "./link.js";
import { TaskPanel } from "./trying.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

export function settings(session) {
  const roots = h("textarea", { rows: 3, placeholder: "file:///home/ada/project, one URI in each line", "aria-label": "Roots", spellcheck: "false" });
  const level = h("select", { "aria-label": "Log level" }, LEVELS.map((each) => h("option", { value: each }, each)));
  const pinged = h("span", { class: "soft", role: "status" });
  const method = h("input", { placeholder: "method", value: "tools/list", "aria-label": "Method" });
  const params = h("textarea", { rows: 4, "aria-label": "Params as JSON", spellcheck: "false" }, "{}");
  const output = h("div", { "aria-live": "polite" });
  const taskId = h("input", { placeholder: "id of a task", "aria-label": "Id of a task" });
  const tasks = h("div", {});
  async function send() {
    let given;
    try { given = JSON.parse(params.value || "{}"); } catch (error) { return toast(error.message); }
    const { result, error, took } = await ask(method.value, given).answer.catch((problem) => ({ error: problem }));
    fill(output, h("p", { class: "soft" }, `after ${seconds(took)}`), error ? failure(error) : json(result));
  }
  return h("div", { class: "grid" },
    half(card("Roots", null, h("p", { class: "soft" }, "Folders that the server is told it may work in."), roots,
      h("button", { type: "button", click: () => act({ do: "roots", uris: roots.value.split("\n").map((each) => each.trim()).filter(Boolean) }).then(() => toast("The server is told when it asks"), (error) => toast(error.message)) }, "Use these roots"))),
    half(card("Connection", null, h("div", { class: "row" }, h("button", { type: "button", click: async () => {
      const { error, took } = await ask("ping").answer.catch((problem) => ({ error: problem }));
      pinged.textContent = error ? error.message : `answered after ${seconds(took)}`;
    } }, "Ping"), pinged),
    h("div", { class: "row" }, h("label", {}, "Log messages from level ", level), h("button", { type: "button", click: async () => {
      const { error } = await ask("logging/setLevel", { level: level.value }).answer.catch((problem) => ({ error: problem }));
      toast(error ? error.message : `From now on: ${level.value}`);
    } }, "Set")))),
    half(card("Any request", null, h("div", { class: "field" }, method), params, h("button", { type: "button", class: "main", click: send }, "Send"), output)),
    half(card("Tasks", null, h("div", { class: "row" }, h("button", { type: "button", click: async () => {
      const { result, error } = await ask("tasks/list").answer.catch((problem) => ({ error: problem }));
      fill(tasks, error ? failure(error) : result.tasks.length ? result.tasks.map((each) => h("div", { class: "row" }, h("code", {}, each.taskId), h("span", { class: "chip" }, each.status),
        h("button", { type: "button", class: "small", click: () => tasks.append(new TaskPanel(each.taskId).element) }, "open"))) : h("p", { class: "empty" }, "There are no tasks."));
    } }, "List tasks"), taskId, h("button", { type: "button", click: () => taskId.value && tasks.append(new TaskPanel(taskId.value).element) }, "Open")), tasks)));
}

const half = (element) => { element.classList.add("half"); return element; };
