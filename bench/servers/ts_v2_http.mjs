// The HTTP server under measure, on the TypeScript SDK v2: `node ts_v2_http.mjs <port>`.
// Its handler serves both eras, without sessions.
import { serve } from "@hono/node-server";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";

const handler = createMcpHandler(() => {
  const server = new McpServer({ name: "bench", version: "1.0.0" });
  server.registerTool(
    "add",
    {
      description: "Add two numbers.",
      inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
      outputSchema: z.object({ result: z.number().int() }),
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
      inputSchema: z.object({ count: z.number().int() }),
      outputSchema: z.object({ result: z.number().int() }),
    },
    async ({ count }, { mcpReq }) => {
      const progressToken = mcpReq._meta.progressToken;
      for (let progress = 1; progress <= count; progress++)
        await mcpReq.notify({
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
});

serve({ fetch: handler.fetch, port: Number(process.argv[2]), hostname: "127.0.0.1" });
