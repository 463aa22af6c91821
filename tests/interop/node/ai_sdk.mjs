// Use a server through the AI SDK, on stdio, over HTTP and with a token; print what it said.
import { createMCPClient } from "@ai-sdk/mcp";
import { StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";

const place = (target) => {
  if (Array.isArray(target)) {
    return new StdioMCPTransport({ command: target[0], args: target.slice(1) });
  }
  const headers = target.token ? { Authorization: `Bearer ${target.token}` } : {};
  return { type: "http", url: target.url, headers };
};

const met = [];
for (const target of JSON.parse(process.argv[2])) {
  const client = await createMCPClient({ transport: place(target) });
  try {
    const tools = await client.tools();
    const call = async (name, input) => {
      const result = await tools[name].execute(input, { toolCallId: name, messages: [] });
      return result.content[0].text;
    };
    met.push({
      tools: Object.keys(tools),
      add: await call("add", { a: 2, b: 3 }),
      greet: await call("greet", { name: "Ada" }),
      fail: await call("fail", {}),
    });
  } finally {
    await client.close();
  }
}
console.log(JSON.stringify(met));
