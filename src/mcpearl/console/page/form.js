// Forms made from JSON Schemas. Each field reads to a value, or to nothing when it is left out.

import { fill, h } from "./dom.js";
import { choices, describe, isNull, kind, problem, resolve, variants } from "./schema.js";

export const ABSENT = Symbol("absent");
const DEEPEST = 6;
const MOST_FIELDS = 400; // of one form; what is beyond is written as JSON
const MOST_CHOICES = 1000;
let number = 0;

export class Form {
  constructor(schema) {
    this.root = schema && typeof schema === "object" ? schema : {};
    this.field = make(this.root, { root: this.root, depth: 0, required: true, name: "", left: { fields: MOST_FIELDS } });
    this.raw = h("textarea", { rows: 12, "aria-label": "Arguments as JSON", spellcheck: "false" });
    this.rawError = h("div", { class: "error", role: "alert" });
    this.body = h("div", {}, this.field.element);
    this.isRaw = false;
    this.element = h("div", { class: "form" }, this.body);
  }

  // Switches between the form and its JSON, with what was filled in.
  asJson(wanted) {
    if (wanted === this.isRaw) return;
    if (wanted) {
      const { value } = this.readForm();
      this.raw.value = JSON.stringify(value === ABSENT ? {} : value, null, 2);
      fill(this.body, h("div", { class: "field" }, this.raw, this.rawError));
    } else {
      const { value, errors } = this.readRaw();
      if (errors.length) return;
      this.field.set(value);
      fill(this.body, this.field.element);
    }
    this.isRaw = wanted;
  }

  set(value) { this.field.set(value); }

  read() { return this.isRaw ? this.readRaw() : this.readForm(); }

  readForm() {
    const errors = [];
    const value = this.field.read(errors);
    return { value: value === ABSENT ? {} : value, errors };
  }

  readRaw() {
    this.rawError.textContent = "";
    try {
      return { value: JSON.parse(this.raw.value), errors: [] };
    } catch (error) {
      this.rawError.textContent = String(error.message);
      return { value: {}, errors: [{ message: error.message, element: this.raw }] };
    }
  }
}

function make(given, place) {
  const schema = resolve(given, place.root);
  place.left.fields -= 1 + Object.keys(schema.properties ?? {}).length;
  if (place.depth > DEEPEST || (place.depth && place.left.fields < 0)) return anything(schema, place);
  if (Object.hasOwn(schema, "const")) return constant(schema, place);
  const listed = choices(schema, place.root);
  if (listed?.length === 1 && place.required) return constant({ ...schema, const: listed[0].value }, place);
  if (listed) return listed.length > MOST_CHOICES ? anything(schema, place) : choice(schema, place, listed);
  const each = variants(schema, place.root);
  if (each) {
    const other = each.filter((one) => !isNull(one));
    const { anyOf, oneOf, ...beside } = schema;
    if (other.length === 1) return make({ ...other[0], ...defined(beside) }, { ...place, nullable: other.length < each.length });
    return union(schema, place, each);
  }
  switch (kind(schema)) {
    case "boolean": return boolean(schema, place);
    case "integer": case "number": return numeric(schema, place);
    case "string": return schema.contentEncoding === "base64" ? binary(schema, place) : text(schema, place);
    case "array": return schema.prefixItems ? tuple(schema, place) : list(schema, place);
    case "object": return schema.properties || place.depth === 0 ? object(schema, place) : map(schema, place);
    case "null": return constant({ ...schema, const: null }, place);
  }
  return anything(schema, place);
}

const defined = (record) => Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined));
const below = (place, more) => ({ ...place, nullable: false, depth: place.depth + 1, ...more });

// A field with a label, a hint and a place for what is wrong with it.
function labelled(schema, place, input) {
  const id = `f${++number}`;
  const error = h("div", { class: "error", id: `${id}e` });
  const hint = h("div", { class: "hint", id: `${id}h` }, schema.description ?? "");
  input.id = id;
  input.setAttribute("aria-describedby", `${id}h ${id}e`);
  if (place.required) input.setAttribute("aria-required", "true");
  const element = h("div", { class: "field", "data-field": place.name },
    h("label", { for: id }, title(schema, place), " ", h("span", { class: "type" }, describe(schema, place.root), place.required ? "" : ", optional")),
    schema.description ? hint : h("span", { id: `${id}h` }), input, error);
  // What was wrong is not said of what is written instead, until that is checked.
  for (const changed of ["input", "change"]) input.addEventListener(changed, () => mark(null));
  function mark(message) {
    error.textContent = message ?? "";
    input.setAttribute("aria-invalid", message ? "true" : "false");
  }
  function complain(message, errors) {
    mark(message);
    if (message) errors.push({ message: `${title(schema, place)}: ${message}`, element: input });
  }
  return { element, complain };
}

const title = (schema, place) => schema.title && schema.title !== place.name && !place.name ? schema.title : place.name || "value";

function scalar(schema, place, input, parse, show = String) {
  const { element, complain } = labelled(schema, place, input);
  const field = {
    element,
    read(errors) {
      const written = input.value;
      if (written === "" && !(place.required && schema.type === "string" && !schema.format)) {
        complain(place.required && !place.nullable ? "is required" : null, errors);
        return place.required && place.nullable ? null : ABSENT;
      }
      const value = parse(written);
      const wrong = value instanceof Error ? value.message : problem(schema, value);
      complain(wrong, errors);
      return wrong ? ABSENT : value;
    },
    set(value) { input.value = value === undefined || value === null ? "" : show(value); },
  };
  field.set(schema.default);
  return field;
}

function numeric(schema, place) {
  const whole = schema.type === "integer";
  return scalar(schema, place, h("input", { type: "text", inputmode: whole ? "numeric" : "decimal", autocomplete: "off" }), (written) => {
    const value = Number(written.trim());
    if (!written.trim() || !Number.isFinite(value)) return new Error("must be a number");
    if (whole && !Number.isInteger(value)) return new Error("must be a whole number");
    if (whole && !Number.isSafeInteger(value)) return new Error("is larger than a browser can send exactly");
    return value;
  });
}

const TYPES = { date: "date", time: "time", email: "email", uri: "url", password: "password", "date-time": "datetime-local" };

function text(schema, place) {
  if (schema.format === "date-time") {
    return scalar(schema, place, h("input", { type: "datetime-local", step: 1 }),
      (written) => Number.isNaN(Date.parse(written)) ? new Error("must be a date and time") : new Date(written).toISOString(),
      (value) => Number.isNaN(Date.parse(value)) ? "" : local(new Date(value)));
  }
  if (schema.format === "time") return scalar(schema, place, h("input", { type: "time", step: 1 }), (written) => written.length === 5 ? `${written}:00` : written);
  const type = TYPES[schema.format];
  const short = type || schema.format || (schema.maxLength ?? Infinity) <= 120;
  const input = short ? h("input", { type: type ?? "text", autocomplete: "off" }) : h("textarea", { rows: 1, spellcheck: "false" });
  return scalar(schema, place, input, (written) => written);
}

const local = (when) => new Date(when.getTime() - when.getTimezoneOffset() * 60000).toISOString().slice(0, 19);

function binary(schema, place) {
  const input = h("textarea", { rows: 2, placeholder: "base64, or choose a file", spellcheck: "false" });
  const field = scalar(schema, place, input, (written) => /^[A-Za-z0-9+/=\s]*$/.test(written) ? written.replace(/\s/g, "") : new Error("must be base64"));
  const file = h("input", { type: "file", "aria-label": `A file for ${place.name || "the value"}`, change: async () => {
    const data = new Uint8Array(await file.files[0].arrayBuffer());
    let raw = "";
    for (let at = 0; at < data.length; at += 32768) raw += String.fromCharCode(...data.subarray(at, at + 32768));
    input.value = btoa(raw);
  } });
  field.element.append(file);
  return field;
}

function boolean(schema, place) {
  if (place.required && !place.nullable || typeof schema.default === "boolean") {
    const input = h("input", { type: "checkbox" });
    const { element } = labelled(schema, place, input);
    const field = { element, read: () => input.checked, set(value) { input.checked = value === true; } };
    field.set(schema.default);
    return field;
  }
  return choice({ ...schema, type: "boolean" }, place, [{ value: true, title: "true" }, { value: false, title: "false" }]);
}

function choice(schema, place, listed) {
  const input = h("select", {},
    place.required && !place.nullable && schema.default === undefined && listed.length === 1 ? null : h("option", { value: "" }, "—"),
    listed.map((one, at) => h("option", { value: at }, one.title ? `${one.title}` : typeof one.value === "string" ? one.value : JSON.stringify(one.value))));
  const { element, complain } = labelled(schema, place, input);
  const field = {
    element,
    read(errors) {
      const missing = input.value === "";
      complain(missing && place.required && !place.nullable ? "is required" : null, errors);
      return missing ? (place.required && place.nullable ? null : ABSENT) : listed[Number(input.value)].value;
    },
    set(value) {
      const at = listed.findIndex((one) => JSON.stringify(one.value) === JSON.stringify(value));
      if (at >= 0) input.value = String(at);
      else if (value === undefined || value === null) input.value = input.options[0]?.value ?? "";
    },
  };
  field.set(schema.default);
  return field;
}

function constant(schema, place) {
  const element = h("div", { class: "field", "data-field": place.name }, h("span", { class: "label" }, place.name || "value"), h("code", {}, JSON.stringify(schema.const)));
  return { element, read: () => schema.const, set() {} };
}

function anything(schema, place) {
  const input = h("textarea", { rows: 3, placeholder: "JSON", spellcheck: "false" });
  return scalar({ ...schema, type: undefined }, place, input, (written) => {
    try { return JSON.parse(written); } catch (error) { return error; }
  }, (value) => JSON.stringify(value, null, 2));
}

// A group that may be left out has a box to include it, and is not made before that. `build` returns
// its body, and how to read and set it.
function group(schema, place, build) {
  const error = h("div", { class: "error", role: "alert" });
  const top = place.depth === 0;
  const optional = !top && (!place.required || place.nullable);
  const place_ = h("div", {});
  let made = null;
  const parts = () => {
    if (!made) {
      made = build();
      place_.append(made.body);
    }
    return made;
  };
  const include = h("input", { type: "checkbox", "aria-label": `Include ${place.name}`, change: () => show(include.checked) });
  const show = (wanted) => {
    if (wanted) parts();
    include.checked = wanted;
    place_.hidden = !wanted;
  };
  const element = top ? h("div", {}, place_, error) : h("fieldset", { "data-field": place.name },
    h("legend", {}, optional ? [include, " "] : null, title(schema, place), " ", h("span", { class: "type soft" }, describe(schema, place.root), place.required ? "" : ", optional")),
    schema.description ? h("div", { class: "hint soft" }, schema.description) : null, place_, error);
  const field = {
    element,
    read(errors) {
      error.textContent = "";
      if (optional && !include.checked) return place.required ? null : ABSENT;
      const value = parts().read(errors);
      const wrong = value === ABSENT ? null : problem(schema, value);
      if (wrong) {
        error.textContent = wrong;
        errors.push({ message: `${title(schema, place)}: ${wrong}`, element: include });
      }
      return value;
    },
    set(value) {
      const there = value !== undefined && value !== null;
      if (optional) show(there);
      if (there) parts().set(value);
    },
  };
  show(!optional);
  if (schema.default !== undefined) field.set(schema.default);
  return field;
}

function object(schema, place) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return group(schema, place, () => {
    const fields = Object.entries(schema.properties ?? {}).map(([name, each]) =>
      [name, make(each, below(place, { name, required: required.has(name) }))]);
    const open = schema.additionalProperties && (schema.additionalProperties !== true || !fields.length);
    const more = open ? map(schema, below(place, { name: fields.length ? "further members" : "members", required: true })) : null;
    return {
      body: h("div", {}, fields.map(([, field]) => field.element), more?.element,
        fields.length || more ? null : h("p", { class: "soft" }, "It takes no arguments.")),
      read(errors) {
        const found = more ? { ...more.read(errors) } : {};
        for (const [name, field] of fields) {
          const value = field.read(errors);
          if (value !== ABSENT) Object.defineProperty(found, name, { value, enumerable: true, configurable: true, writable: true });
        }
        return found;
      },
      set(value) {
        for (const [name, field] of fields) field.set(Object.hasOwn(value, name) ? value[name] : undefined);
        more?.set(Object.fromEntries(Object.entries(value).filter(([name]) => !fields.some(([own]) => own === name))));
      },
    };
  });
}

function map(schema, place) {
  const inner = typeof schema.additionalProperties === "object" ? schema.additionalProperties : {};
  return rows(schema, place, () => {
    const key = h("input", { class: "key", "aria-label": `Name in ${place.name}`, placeholder: "name" });
    const field = make(inner, below(place, { name: "value", required: true, left: { fields: MOST_FIELDS } }));
    return { key, field, element: h("div", { class: "entry" }, key, h("div", { class: "grow" }, field.element)) };
  }, (each, errors) => Object.fromEntries(each.map(({ key, field }) => [key.value, field.read(errors)]).filter(([, value]) => value !== ABSENT)),
  (value) => Object.entries(value), (row, [name, each]) => { row.key.value = name; row.field.set(each); });
}

function list(schema, place) {
  const items = schema.items ?? {};
  return rows(schema, place, () => {
    const field = make(items, below(place, { name: `${place.name || "entry"}[]`, required: true, left: { fields: MOST_FIELDS } }));
    return { field, element: field.element };
  }, (each, errors) => each.map(({ field }) => field.read(errors)).filter((value) => value !== ABSENT),
  (value) => Array.isArray(value) ? value : [], (row, each) => row.field.set(each));
}

function rows(schema, place, make, read, parts, set) {
  let each = [];
  const place_ = h("div", {});
  const add = () => {
    const row = make();
    row.item = h("div", { class: "item" }, h("div", { class: "body" }, row.element),
      h("button", { type: "button", class: "small quiet", "aria-label": `Remove from ${place.name}`, click: () => {
        each = each.filter((one) => one !== row);
        row.item.remove();
        button.focus();
      } }, "✕"));
    each.push(row);
    place_.append(row.item);
    return row;
  };
  const button = h("button", { type: "button", class: "small", click: () => add().item.querySelector("input, textarea, select")?.focus() }, `Add to ${place.name || "the list"}`);
  return group(schema, place, () => ({
    body: h("div", {}, place_, button),
    read: (errors) => read(each, errors),
    set(value) {
      each = [];
      place_.replaceChildren();
      for (const part of parts(value)) set(add(), part);
    },
  }));
}

function tuple(schema, place) {
  return group(schema, place, () => {
    const fields = schema.prefixItems.map((each, at) => make(each, below(place, { name: `${place.name}[${at}]`, required: true })));
    return {
      body: h("div", {}, fields.map((field) => field.element)),
      read: (errors) => fields.map((field) => field.read(errors)).map((value) => value === ABSENT ? null : value),
      set: (value) => fields.forEach((field, at) => field.set(value[at])),
    };
  });
}

function union(schema, place, each) {
  const names = each.map((one, at) => one.title ?? (isNull(one) ? "null" : tag(one) ?? describe(one, place.root)) ?? `variant ${at + 1}`);
  return group(schema, place, () => {
    const body = h("div", {});
    const made = new Map();
    const select = h("select", { "aria-label": `Kind of ${place.name || "the value"}`, change: () => show() },
      names.map((name, at) => h("option", { value: at }, name)));
    const current = () => {
      const at = Number(select.value);
      if (!made.has(at)) made.set(at, make(each[at], below(place, { name: place.name, required: true })));
      return made.get(at);
    };
    const show = () => fill(body, current().element);
    show();
    return {
      body: h("div", {}, select, body),
      read: (errors) => current().read(errors),
      set(value) {
        select.value = String(Math.max(each.findIndex((one) => fits(one, value, place.root)), 0));
        current().set(value);
        show();
      },
    };
  });
}

const fixed = (schema) => schema?.const ?? (schema?.enum?.length === 1 ? schema.enum[0] : undefined);
const tag = (schema) => Object.values(schema.properties ?? {}).map(fixed).find((each) => typeof each === "string");

function fits(schema, value, root) {
  if (Object.hasOwn(schema, "const")) return JSON.stringify(schema.const) === JSON.stringify(value);
  const listed = choices(schema, root);
  if (listed) return listed.some((one) => JSON.stringify(one.value) === JSON.stringify(value));
  switch (kind(schema)) {
    case "integer": return Number.isInteger(value);
    case "number": return typeof value === "number";
    case "array": return Array.isArray(value);
    case "null": return value === null;
    case "object": return value !== null && typeof value === "object" && !Array.isArray(value)
      && (schema.required ?? []).every((name) => Object.hasOwn(value, name))
      && Object.entries(schema.properties ?? {}).every(([name, each]) => fixed(each) === undefined || fixed(each) === value[name]);
    case "any": return true;
  }
  return typeof value === kind(schema);
}
