// Questions of the server that a person answers here: forms, addresses to visit, texts for a model.

import { block } from "./content.js";
import { card, fill, h, json, link, toast } from "./dom.js";
import { Form } from "./form.js";
import { act, on } from "./link.js";

export function questions(place) {
  const open = new Map();
  on("question", (event) => {
    const element = event.method === "elicitation/create" ? elicitation(event) : sampling(event);
    open.set(event.number, element);
    place.append(element);
    place.hidden = false;
    element.querySelector("input, textarea, select, button")?.focus();
  });
  on("question_over", (event) => {
    open.get(event.number)?.remove();
    open.delete(event.number);
    place.hidden = !open.size;
  });
  on("gone", () => { open.clear(); fill(place); place.hidden = true; });
}

const answer = (number, result) => act({ do: "answer", question: number, result }).catch((error) => toast(error.message));

function elicitation({ number, params }) {
  const refuse = [
    h("button", { type: "button", click: () => answer(number, { action: "decline" }) }, "Decline"),
    h("button", { type: "button", click: () => answer(number, { action: "cancel" }) }, "Cancel"),
  ];
  if (params.mode === "url") {
    return card("The server asks you to visit an address", null, h("p", {}, params.message), h("p", {}, link(String(params.url))),
      h("div", { class: "row" }, h("button", { type: "button", class: "main", click: () => answer(number, { action: "accept" }) }, "I have been there"), refuse));
  }
  const form = new Form({ type: "object", ...params.requestedSchema });
  const problem = h("p", { class: "bad", role: "alert" });
  return card("The server asks", null, h("p", {}, params.message), h("form", { submit: (event) => {
    event.preventDefault();
    const { value, errors } = form.read();
    problem.textContent = errors.map((each) => each.message).join("; ");
    if (!errors.length) answer(number, { action: "accept", content: value });
  } }, form.element, problem, h("div", { class: "row" }, h("button", { type: "submit", class: "main" }, "Accept"), refuse)));
}

function sampling({ number, params }) {
  const text = h("textarea", { rows: 4, "aria-label": "Text of the model" });
  const model = h("input", { value: "a person", "aria-label": "Name of the model" });
  const reason = h("select", { "aria-label": "Why the model stopped" }, ["endTurn", "maxTokens", "stopSequence"].map((each) => h("option", { value: each }, each)));
  return card("The server wants text from a model", h("span", { class: "chip" }, `up to ${params.maxTokens} tokens`),
    params.systemPrompt ? [h("h3", {}, "System prompt"), json(params.systemPrompt)] : null,
    params.messages.map((each) => h("div", {}, h("span", { class: "chip" }, String(each.role)), [each.content].flat().map(block))),
    params.tools ? h("details", {}, h("summary", {}, `${params.tools.length} tools`), json(params.tools)) : null,
    h("form", { submit: (event) => {
      event.preventDefault();
      answer(number, { role: "assistant", content: { type: "text", text: text.value }, model: model.value, stopReason: reason.value });
    } }, h("div", { class: "field" }, text), h("div", { class: "row" }, model, reason, h("button", { type: "submit", class: "main" }, "Answer"),
      h("button", { type: "button", click: () => answer(number, null) }, "Refuse"))));
}
