// A server of the second TypeScript SDK on stdio.

import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

serveStdio(() => {
    const server = new McpServer({ name: 'peer', version: '1.0.0' }, { capabilities: { logging: {} } });
    server.registerTool('add', { inputSchema: z.object({ a: z.number(), b: z.number() }) }, async ({ a, b }) => ({
        content: [{ type: 'text', text: String(a + b) }]
    }));
    server.registerTool('sleep', { inputSchema: z.object({ seconds: z.number() }) }, async ({ seconds }) => {
        await new Promise(resolve => setTimeout(resolve, 1000 * seconds));
        return { content: [{ type: 'text', text: 'slept' }] };
    });
    server.registerResource('note', 'peer://note', {}, async uri => ({ contents: [{ uri: uri.href, text: 'first' }] }));
    server.registerPrompt('brief', { argsSchema: z.object({ city: z.string() }) }, ({ city }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Weather for ${city}` } }]
    }));
    return server;
});
