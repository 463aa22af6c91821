// The HTTP server under measure, on the TypeScript SDK v1: `node ts_v1_http.mjs <port> [stateless=true]`.
// As its documentation has it: a transport per session, or a server and transport per request.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const stateless = process.argv[3] === "stateless=true";
const sessions = new Map();

function makeServer() {
  const server = new McpServer({ name: "bench", version: "1.0.0" });
  server.registerTool(
    "add",
    {
      description: "Add two numbers.",
      inputSchema: { a: z.number().int(), b: z.number().int() },
      outputSchema: { result: z.number().int() },
    },
    async ({ a, b }) => ({
      content: [{ type: "text", text: String(a + b) }],
      structuredContent: { result: a + b },
    }),
  );
  server.registerTool(
    "steps",
    {
      description: "Report every step.",
      inputSchema: { count: z.number().int() },
      outputSchema: { result: z.number().int() },
    },
    async ({ count }, { _meta, sendNotification }) => {
      const progressToken = _meta.progressToken;
      for (let progress = 1; progress <= count; progress++)
        await sendNotification({
          method: "notifications/progress",
          params: { progressToken, progress, total: count },
        });
      return {
        content: [{ type: "text", text: String(count) }],
        structuredContent: { result: count },
      };
    },
  );
  return server;
}

async function open() {
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: stateless ? undefined : randomUUID,
    enableJsonResponse: process.argv.includes("json_response=true"),
    onsessioninitialized: (id) => void sessions.set(id, transport),
  });
  await makeServer().connect(transport);
  return transport;
}

createServer(async (request, response) => {
  const known = sessions.get(request.headers["mcp-session-id"]);
  const transport = known ?? (await open());
  if (stateless) response.on("close", () => void transport.close());
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), "127.0.0.1");
