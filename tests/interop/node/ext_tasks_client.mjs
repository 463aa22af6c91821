// Runs tools of a server as tasks with the client of the second TypeScript SDK and its package for tasks, and
// prints what it met as one JSON object: node ext_tasks_client.mjs <legacy|2026-07-28> <command> [argument...]

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { createTaskSessionFromClient, toolDeclarationFromMcpTool } from '@modelcontextprotocol/ext-tasks/client';

const [mode, command, ...args] = process.argv.slice(2);
const INFO = { name: 'tester', version: '1' };
const CAPABILITIES = { elicitation: { form: {} } };
const EXTENSIONS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const legacy = mode === 'legacy';
const met = { errors: [], asked: [] };

const client = new Client(INFO, {
    capabilities: legacy ? CAPABILITIES : { ...CAPABILITIES, ...EXTENSIONS },
    versionNegotiation: { mode: legacy ? 'legacy' : { pin: mode } }
});
client.onerror = error => void met.errors.push(error.message);
const transport = new StdioClientTransport({ command, args, env: process.env });
await client.connect(transport);

// The SDK refuses results and methods of tasks in the modern era; its package leaves it to the program to send them.
const pending = new Map();
const pass = transport.onmessage;
transport.onmessage = (message, extra) => {
    const settle = pending.get(message.id);
    if (settle === undefined) return pass(message, extra);
    pending.delete(message.id);
    settle(message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result });
};
function rawDispatch(request) {
    const id = `raw-${pending.size}-${Math.random()}`;
    return new Promise((resolve, reject) => {
        pending.set(id, resolve);
        transport.send({ jsonrpc: '2.0', id, ...request }).catch(reject);
    });
}
const framing = { protocolVersion: mode, clientInfo: INFO, clientCapabilities: CAPABILITIES };

const { tools } = await client.listTools();
const declared = Object.fromEntries(tools.map(tool => [tool.name, toolDeclarationFromMcpTool(tool)]));
met.support = Object.fromEntries(tools.map(tool => [tool.name, tool.execution?.taskSupport]));
const session = createTaskSessionFromClient(client, {
    endpointId: 'tests',
    tools: { currentTool: name => declared[name] },
    onInputRequest: async ({ params }) => {
        met.asked.push(params.message);
        return { action: 'accept', content: { name: 'Ada' } };
    },
    ...(legacy ? {} : { rawDispatch, v2RequestFraming: framing })
});

async function run(tool, given = {}, task = { preference: 'prefer' }) {
    const execution = await session.callTool(tool, given, { task });
    const { outcome } = await execution.settle();
    const said = outcome.status === 'completed' ? outcome.result.content[0].text : (outcome.error?.message ?? '');
    return [execution.kind, outcome.status, said];
}

met.double = await run('double', { number: 5 });
// In a session the package polls a task, and never asks for its result, on which questions would come.
if (!legacy) met.greet = await run('greet');
met.broken = await run('broken');
const endless = await session.callTool('endless', {}, { task: { preference: 'prefer' } });
met.kind = endless.kind;
await endless.cancel();
met.cancelled = (await endless.settle()).outcome.status;
await session.close();
await client.close();
console.log(JSON.stringify(met));
