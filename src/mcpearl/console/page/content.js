// Showing what a server returned. Text is text; images and sounds are shown from memory, and only of
// types that cannot carry scripts. An SVG is text here.

import { bytes, h, json, link } from "./dom.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);
const SOUNDS = new Set(["audio/mpeg", "audio/mp3", "audio/wav", "audio/x-wav", "audio/ogg", "audio/webm", "audio/flac", "audio/aac", "audio/mp4"]);

function decoded(data) {
  const raw = atob(data);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) found[at] = raw.charCodeAt(at);
  return found;
}

function media(data, type) {
  let content;
  try { content = decoded(data); } catch { return h("p", { class: "bad" }, "The data is not base64."); }
  const shown = IMAGES.has(type) ? "img" : SOUNDS.has(type) ? "audio" : null;
  const blob = new Blob([content], { type: shown ? type : "application/octet-stream" });
  const address = URL.createObjectURL(blob);
  const save = h("a", {}, `Save (${bytes(content.length)})`);
  save.href = address;
  save.download = "content." + (/^[a-z]+\/([a-z0-9]+)/.exec(type)?.[1] ?? "bin");
  if (!shown) return h("div", {}, h("code", {}, String(type)), " ", save);
  const element = document.createElement(shown);
  element.src = address;
  if (shown === "audio") element.controls = true;
  else element.alt = "An image the server returned";
  return h("div", {}, element, save);
}

function resource(contents) {
  const name = h("div", {}, link(String(contents.uri ?? "")), " ", h("span", { class: "soft" }, contents.mimeType ?? ""));
  if (typeof contents.text === "string") return [name, json(pretty(contents.text, contents.mimeType))];
  if (typeof contents.blob === "string") return [name, media(contents.blob, contents.mimeType ?? "application/octet-stream")];
  return [name, json(contents)];
}

function pretty(text, type) {
  if (!/json/.test(type ?? "") && !/^\s*[[{]/.test(text)) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

export function block(content) {
  const body = () => {
    switch (content?.type) {
      case "text": return json(pretty(String(content.text)));
      case "image": case "audio": return media(String(content.data), String(content.mimeType));
      case "resource": return resource(content.resource ?? {});
      case "resource_link": return h("div", {}, link(String(content.uri)), " ", content.description ?? content.name ?? "");
    }
    return json(content);
  };
  return h("div", { class: "block" }, h("div", { class: "kind" }, String(content?.type ?? "content")), body());
}

export function result(method, found) {
  const parts = [];
  if (method === "tools/call" || method === "tasks/result") {
    if (found.isError) parts.push(h("p", { class: "bad" }, "The tool says that it failed:"));
    parts.push((found.content ?? []).map(block));
    if (found.structuredContent !== undefined) parts.push(h("h3", {}, "Structured content"), json(found.structuredContent));
  } else if (method === "resources/read") {
    parts.push((found.contents ?? []).map((each) => h("div", { class: "block" }, resource(each))));
  } else if (method === "prompts/get") {
    parts.push(found.description ? h("p", {}, found.description) : null, (found.messages ?? []).map((each) =>
      h("div", {}, h("span", { class: "chip" }, String(each.role)), [each.content].flat().map(block))));
  } else {
    parts.push(json(found));
  }
  return h("div", { class: "result" }, parts, h("details", {}, h("summary", {}, "The whole result"), json(found)));
}

export function failure(error) {
  return h("div", { class: "result", role: "alert" },
    h("p", { class: "bad" }, error.message ?? "failed", error.code === undefined ? "" : ` (${error.code})`),
    error.data === undefined || error.data === null ? null : json(error.data));
}
