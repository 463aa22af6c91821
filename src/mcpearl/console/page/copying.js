// A request as something to run elsewhere: Python, the `mcpearl` command, or curl.

function python(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) return `[${value.map((each) => python(each, indent)).join(", ")}]`;
  return `{${Object.entries(value).map(([name, each]) => `${quoted(name)}: ${python(each, indent)}`).join(", ")}}`;
}

// JSON's strings are Python's, except for escapes of halves of characters.
const quoted = (text) => JSON.stringify(text).replace(/[\u007f-\uffff]/g, (each) => "\\u" + each.charCodeAt(0).toString(16).padStart(4, "0"))
  .replace(/\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/g, (_, high, low) =>
    "\\U" + ((parseInt(high, 16) - 0xd800) * 0x400 + parseInt(low, 16) - 0xdc00 + 0x10000).toString(16).padStart(8, "0"));

const shell = (text) => /^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

const CALLS = {
  "tools/call": ({ name, arguments: given }) => `client.call_tool(${quoted(name)}, ${python(given ?? {})})`,
  "resources/read": ({ uri }) => `client.read_resource(${quoted(uri)})`,
  "prompts/get": ({ name, arguments: given }) => `client.get_prompt(${quoted(name)}, ${python(given ?? {})})`,
};

// Clients speak the newest version by themselves: an older one that was tried has to be named.
const only = ({ era, protocol }, written) => era === "modern" ? "" : written(protocol);

export function asPython(place, method, params, session) {
  const call = CALLS[method]?.(params) ?? `client.request(${quoted(method)}, ${python(params)})`;
  return `import asyncio\n\nfrom mcpearl import Client\n\n\nasync def main() -> None:\n    async with Client(${quoted(place.shown)}${only(session, (version) => `, protocol=${quoted(version)}`)}) as client:\n        print(await ${call})\n\n\nasyncio.run(main())\n`;
}

const word = (name, value) => shell(typeof value === "string" ? `${name}=${value}` : `${name}:=${JSON.stringify(value)}`);
const words = (given) => Object.entries(given ?? {}).map(([name, value]) => " " + word(name, value)).join("");

export function asCommand(place, method, params, session) {
  const target = shell(place.shown) + only(session, (version) => ` --protocol ${shell(version)}`);
  if (method === "tools/call") return `mcpearl call ${target} ${shell(params.name)}${words(params.arguments)}`;
  if (method === "resources/read") return `mcpearl read ${target} ${shell(params.uri)}`;
  if (method === "prompts/get") return `mcpearl prompt ${target} ${shell(params.name)}${words(params.arguments)}`;
  return null;
}

export function asCurl(place, method, params, { protocol, era }, schema) {
  if (!place.url) return null;
  const accept = "-H 'Accept: application/json, text/event-stream' -H 'Content-Type: application/json'";
  const version = `-H 'MCP-Protocol-Version: ${protocol}'`;
  const post = (more, message) => `curl -sS ${shell(place.url)} ${accept}${more} \\\n  -d ${shell(JSON.stringify(message))}`;
  if (era === "modern") {
    const meta = {
      "io.modelcontextprotocol/protocolVersion": protocol,
      "io.modelcontextprotocol/clientInfo": { name: "curl", version: "0" },
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const name = params.name ?? params.uri;
    const headers = [` ${version} -H ${shell(`Mcp-Method: ${method}`)}`, name ? ` -H ${shell(`Mcp-Name: ${header(name)}`)}` : "", ...mirrored(params, schema)].join("");
    return post(headers, { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: meta } });
  }
  const hello = { protocolVersion: protocol, capabilities: {}, clientInfo: { name: "curl", version: "0" } };
  return [
    `SESSION=$(${post(" -D - -o /dev/null", { jsonrpc: "2.0", id: 0, method: "initialize", params: hello })} | sed -n 's/\\r$//; s/^[Mm]cp-[Ss]ession-[Ii]d: //p')`,
    post(` ${version} -H "Mcp-Session-Id: $SESSION"`, { jsonrpc: "2.0", method: "notifications/initialized" }),
    post(` ${version} -H "Mcp-Session-Id: $SESSION"`, { jsonrpc: "2.0", id: 1, method, params }),
  ].join("\n");
}

// Text that is not plain travels in a header as base64.
const header = (text) => /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !/^=\?base64\?.*\?=$/.test(text) ? text
  : `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;

function mirrored(params, schema) {
  return Object.entries(schema?.properties ?? {}).flatMap(([name, each]) => {
    const value = params.arguments?.[name];
    const named = each?.["x-mcp-header"];
    return named && ["string", "number", "boolean"].includes(typeof value) ? [` -H ${shell(`Mcp-Param-${named}: ${header(String(value))}`)}`] : [];
  });
}
