// Making elements. What a server sends only ever becomes text: no markup, no attribute that loads or
// runs something is made here from data.

const ALLOWED = /^(id|class|type|role|for|name|value|placeholder|title|tabindex|min|max|step|rows|cols|maxlength|minlength|multiple|checked|disabled|hidden|open|selected|readonly|autocomplete|spellcheck|inputmode|list|colspan|scope|label|width|height|alt|aria-[a-z]+|data-[a-z-]+)$/;

export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (!ALLOWED.test(name)) throw new Error(`attribute ${name} is not set from data`);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

export function put(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return put(element, children);
}

// Only addresses of the web become links; any other URI is shown as text.
export function link(uri) {
  let address;
  try { address = new URL(uri); } catch { return h("code", {}, uri); }
  if (address.protocol !== "https:" && address.protocol !== "http:") return h("code", {}, uri);
  const anchor = h("a", {}, uri);
  anchor.href = address.href;
  anchor.target = "_blank";
  anchor.rel = "noopener noreferrer";
  return anchor;
}

export function json(value) {
  return h("pre", { tabindex: 0 }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

let hiding;
export function toast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { place.hidden = true; }, 6000);
}

export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser does not let this page write to the clipboard");
  }
}

export function card(title, right, ...body) {
  return h("section", { class: "card", "aria-label": title },
    h("header", {}, h("h2", {}, title), h("div", { class: "right" }, right)), body);
}

// Tabs with the keyboard: arrows, Home and End move, as people expect of a tab list.
export function tabs(place, names, choose) {
  const buttons = Object.entries(names).map(([key, text]) => h("button", {
    type: "button", role: "tab", id: `tab-${key}`, "data-tab": key, tabindex: -1,
    click: () => show(key), keydown: (event) => move(event, key),
  }, text));
  const keys = Object.keys(names);
  put(place, buttons);
  function show(key, focus) {
    for (const button of buttons) {
      const chosen = button.dataset.tab === key;
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) button.focus();
    }
    choose(key);
  }
  function move(event, key) {
    const at = keys.indexOf(key);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: keys.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(keys[(to + keys.length) % keys.length], true);
  }
  return show;
}

export const seconds = (s) => s === null || s === undefined ? "" : s < 0.0009995 ? `${(s * 1e6).toFixed(0)} µs`
  : s < 0.9995 ? `${(s * 1e3).toFixed(s < 0.1 ? 1 : 0)} ms` : s < 120 ? `${s.toFixed(1)} s` : `${(s / 60).toFixed(0)} min`;
export const bytes = (n) => n === null || n === undefined ? "" : n < 1024 ? `${n} B` : n < 1048576 ? `${(n / 1024).toFixed(1)} KiB`
  : n < 1073741824 ? `${(n / 1048576).toFixed(1)} MiB` : `${(n / 1073741824).toFixed(2)} GiB`;
export const clock = (at) => new Date(at * 1000).toLocaleTimeString();
