// Reading JSON Schema as the forms need it: references, unions, and the checks of single values.

export function resolve(schema, root) {
  let found = schema === true || schema === undefined ? {} : schema === false ? { not: {} } : schema;
  for (let hops = 0; found && typeof found === "object" && found.$ref && hops < 20; hops++) {
    const { $ref, ...beside } = found;
    found = { ...at(root, $ref), ...beside };
  }
  if (!found || typeof found !== "object") return {};
  if (Array.isArray(found.allOf) && !found.$ref) {
    const { allOf, ...beside } = found;
    return allOf.map((each) => resolve(each, root)).concat(beside).reduce(merged, {});
  }
  if (Array.isArray(found.type) && found.type.length) {
    const { type, ...beside } = found;
    if (type.length === 1) return { ...beside, type: type[0] };
    const { title, description, default: preset, ...each } = beside;
    return { title, description, default: preset, anyOf: type.map((one) => ({ ...each, type: one })) };
  }
  return found;
}

function merged(one, other) {
  return {
    ...one, ...other,
    ...(one.properties || other.properties ? { properties: { ...one.properties, ...other.properties } } : {}),
    ...(one.required || other.required ? { required: [...(one.required ?? []), ...(other.required ?? [])] } : {}),
  };
}

function at(root, reference) {
  if (typeof reference !== "string" || !reference.startsWith("#")) return {};
  let found = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    let name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    try { name = decodeURIComponent(name); } catch { /* as it is */ }
    found = found && typeof found === "object" && Object.hasOwn(found, name) ? found[name] : undefined;
  }
  return found && typeof found === "object" ? found : {};
}

export const isNull = (schema) => schema.type === "null" || schema.const === null;

export function variants(schema, root) {
  const found = schema.anyOf ?? schema.oneOf;
  return Array.isArray(found) ? found.map((each) => resolve(each, root)) : null;
}

// The values of a choice, with their titles; null if the schema is not a choice.
export function choices(schema, root) {
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, at) => ({ value, title: schema.enumNames?.[at] }));
  }
  const each = variants(schema, root);
  if (each?.length && each.every((one) => Object.hasOwn(one, "const"))) {
    return each.map((one) => ({ value: one.const, title: one.title }));
  }
  return null;
}

export function kind(schema) {
  if (schema.type) return schema.type;
  if (schema.properties || schema.additionalProperties) return "object";
  if (schema.items || schema.prefixItems) return "array";
  return "any";
}

export function describe(schema, root) {
  const listed = choices(schema, root);
  if (listed) return "one of " + listed.length;
  const each = variants(schema, root);
  if (each) return each.map((one) => describe(one, root)).slice(0, 5).join(" or ");
  if (Object.hasOwn(schema, "const")) return "always " + JSON.stringify(schema.const);
  const type = kind(schema);
  if (type === "array") return "list" + (schema.items ? " of " + describe(resolve(schema.items, root), root) : "");
  return type + (schema.format ? `, ${schema.format}` : "") + limits(schema);
}

function limits(schema) {
  const found = [];
  if (schema.minimum !== undefined) found.push(`≥ ${schema.minimum}`);
  if (schema.exclusiveMinimum !== undefined) found.push(`> ${schema.exclusiveMinimum}`);
  if (schema.maximum !== undefined) found.push(`≤ ${schema.maximum}`);
  if (schema.exclusiveMaximum !== undefined) found.push(`< ${schema.exclusiveMaximum}`);
  if (schema.multipleOf !== undefined) found.push(`a multiple of ${schema.multipleOf}`);
  if (schema.minLength) found.push(`${schema.minLength} characters or more`);
  if (schema.maxLength !== undefined) found.push(`up to ${schema.maxLength} characters`);
  if (schema.pattern) found.push(`like /${schema.pattern}/`);
  return found.length ? ", " + found.join(", ") : "";
}

// What is wrong with a value, or null. The server checks everything again.
export function problem(schema, value) {
  if (typeof value === "number") {
    if (schema.minimum !== undefined && value < schema.minimum) return `must be at least ${schema.minimum}`;
    if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum) return `must be more than ${schema.exclusiveMinimum}`;
    if (schema.maximum !== undefined && value > schema.maximum) return `must be at most ${schema.maximum}`;
    if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum) return `must be less than ${schema.exclusiveMaximum}`;
    if (schema.multipleOf && Math.abs(value / schema.multipleOf - Math.round(value / schema.multipleOf)) > 1e-9) return `must be a multiple of ${schema.multipleOf}`;
  } else if (typeof value === "string") {
    const length = [...value].length;
    if (schema.minLength !== undefined && length < schema.minLength) return `must have at least ${schema.minLength} characters`;
    if (schema.maxLength !== undefined && length > schema.maxLength) return `must have at most ${schema.maxLength} characters`;
    if (schema.pattern && breaks(schema.pattern, value)) return `must be like /${schema.pattern}/`;
    if (schema.format === "uuid" && !/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value)) return "must be a UUID";
    if (schema.format === "email" && !/^[^@\s]+@[^@\s]+$/.test(value)) return "must be an address such as ada@example.com";
    if (schema.format === "uri" && !URL.canParse(value)) return "must be a whole URI";
  } else if (Array.isArray(value)) {
    if (schema.minItems !== undefined && value.length < schema.minItems) return `must have at least ${schema.minItems} entries`;
    if (schema.maxItems !== undefined && value.length > schema.maxItems) return `must have at most ${schema.maxItems} entries`;
    if (schema.uniqueItems && new Set(value.map((each) => JSON.stringify(each))).size < value.length) return "must not repeat an entry";
  } else if (value && typeof value === "object") {
    const size = Object.keys(value).length;
    if (schema.minProperties !== undefined && size < schema.minProperties) return `must have at least ${schema.minProperties} entries`;
    if (schema.maxProperties !== undefined && size > schema.maxProperties) return `must have at most ${schema.maxProperties} entries`;
  }
  return null;
}

// A pattern that could take forever on a short text is left to the server.
function breaks(pattern, value) {
  if (pattern.length > 200 || value.length > 2000 || /[+*}]\)?[+*{]|\([^)]*[+*{|][^)]*\)[+*{]/.test(pattern)) return false;
  try { return !new RegExp(pattern, "u").test(value); } catch { return false; }
}
