// Runs tools of a server as tasks with the client of the first TypeScript SDK, and prints what it met as
// one JSON object: node tasks_client.mjs <url | command [argument...]>

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'tester', version: '1' }, { capabilities: { elicitation: { form: {} } } });
const met = { errors: [], asked: [] };
client.onerror = error => void met.errors.push(error.message);
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    met.asked.push(params.message);
    return { action: 'accept', content: { name: 'Ada' } };
});
await client.connect(
    command.startsWith('http')
        ? new StreamableHTTPClientTransport(new URL(command))
        : new StdioClientTransport({ command, args, env: process.env })
);
const tasks = client.experimental.tasks;

/** All that is said of one call. */
async function stream(name, given = {}) {
    const said = [];
    for await (const message of tasks.callToolStream({ name, arguments: given }, CallToolResultSchema, { task: {} })) {
        if (message.type === 'result') said.push(message.result.content[0]?.text ?? '');
        else if (message.type === 'error') said.push(message.error.message);
        else said.push(`${message.type} ${message.task.status}`);
    }
    return said;
}

met.support = Object.fromEntries((await client.listTools()).tools.map(tool => [tool.name, tool.execution?.taskSupport]));
met.double = await stream('double', { number: 5 });
met.greet = await stream('greet');
met.broken = await stream('broken');
for await (const message of tasks.callToolStream({ name: 'endless', arguments: {} }, CallToolResultSchema, { task: {} })) {
    if (message.type !== 'taskCreated') continue;
    const { taskId } = message.task;
    // Where anyone may call, tasks are not listed.
    const listed = await tasks.listTasks().catch(() => ({ tasks: [] }));
    met.listed = listed.tasks.some(task => task.taskId === taskId);
    met.cancelled = (await tasks.cancelTask(taskId)).status;
    met.after = (await tasks.getTask(taskId)).status;
    break;
}
await client.close();
console.log(JSON.stringify(met));
