// Walks through a server with a client of the TypeScript SDK and prints what it met, as one JSON object.
// node client.mjs <v1|v2> <legacy|auto|2026-07-28> <url | command [argument...]>

import { z } from 'zod';

const [sdk, mode, command, ...args] = process.argv.slice(2);
const NOTE = 'demo://note';
const INFO = { name: 'tester', version: '1.0.0' };
const CAPABILITIES = {
    elicitation: { form: {}, url: {} },
    sampling: {},
    roots: {},
    extensions: { 'com.example/audit': {} }
};
const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** Both SDKs by the same words: the first names methods by their schemas, the second by themselves. */
async function load() {
    if (sdk === 'v1') {
        const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
        const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
        const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const { SSEClientTransport } = await import('@modelcontextprotocol/sdk/client/sse.js');
        const types = await import('@modelcontextprotocol/sdk/types.js');
        const names = {
            'elicitation/create': types.ElicitRequestSchema,
            'sampling/createMessage': types.CreateMessageRequestSchema,
            'roots/list': types.ListRootsRequestSchema,
            'notifications/message': types.LoggingMessageNotificationSchema,
            'notifications/resources/updated': types.ResourceUpdatedNotificationSchema,
            'notifications/tools/list_changed': types.ToolListChangedNotificationSchema
        };
        const client = new Client(INFO, { capabilities: CAPABILITIES });
        const transports = { StdioClientTransport, StreamableHTTPClientTransport, SSEClientTransport };
        return { client, transports, name: method => names[method] };
    }
    const { Client, StreamableHTTPClientTransport, SSEClientTransport } = await import('@modelcontextprotocol/client');
    const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
    const versionNegotiation = { mode: mode === 'legacy' || mode === 'auto' ? mode : { pin: mode } };
    const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation });
    const transports = { StdioClientTransport, StreamableHTTPClientTransport, SSEClientTransport };
    return { client, transports, name: method => method };
}

const { client, transports, name } = await load();
const legacy = mode === 'legacy';
const met = { errors: [], asked: [], logs: [], progress: [], notices: [] };

client.onerror = error => void met.errors.push(error.message);
client.setRequestHandler(name('elicitation/create'), async ({ params }) => {
    met.asked.push(params.message);
    if (params.mode === 'url') return { action: 'accept' };
    return { action: 'accept', content: params.message === 'Where to?' ? { city: 'Oslo', insured: true } : {} };
});
client.setRequestHandler(name('sampling/createMessage'), async ({ params }) => {
    met.asked.push(params.messages[0].content.text);
    return { role: 'assistant', content: { type: 'text', text: 'Yes.' }, model: 'parrot-1' };
});
client.setRequestHandler(name('roots/list'), async () => ({ roots: [{ uri: 'file:///srv/demo' }] }));
client.setNotificationHandler(name('notifications/message'), ({ params }) => void met.logs.push(params.data));

/** Resolves when the server has sent this notification once more. */
function notified(method) {
    return new Promise(resolve =>
        client.setNotificationHandler(name(method), ({ params }) => {
            met.notices.push(params?.uri ?? method);
            resolve();
        })
    );
}

async function pages(list, member) {
    const found = [];
    let cursor;
    do {
        const page = await list(cursor === undefined ? {} : { cursor });
        found.push(...page[member]);
        cursor = page.nextCursor;
    } while (cursor !== undefined);
    return found;
}

async function refused(promise) {
    try {
        return { result: await promise };
    } catch (error) {
        return { code: error.code };
    }
}

/** The first SDK takes a result schema before the options. */
function call(tool, given = {}, ...options) {
    const params = { name: tool, arguments: given };
    return sdk === 'v1' ? client.callTool(params, undefined, ...options) : client.callTool(params, ...options);
}

const meta = legacy ? {} : { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } };

/** Where a URL leads to, its path says. */
function open() {
    if (!command.startsWith('http://')) return new transports.StdioClientTransport({ command, args, stderr: 'ignore' });
    const url = new URL(command);
    return url.pathname === '/sse' ? new transports.SSEClientTransport(url) : new transports.StreamableHTTPClientTransport(url);
}

const transport = open();
const heed = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = version => {
    met.version = version; // how the client tells what was agreed
    heed?.(version);
};
await client.connect(transport);
try {
    met.server = client.getServerVersion();
    met.instructions = client.getInstructions();
    met.tools = (await pages(params => client.listTools(params), 'tools')).map(tool => tool.name);
    met.add = await call('add', { a: 2, b: 3 });
    met.forecast = await call('forecast', { city: 'Lisbon' });
    met.show = (await call('show')).content.map(block => block.type);
    met.fail = await call('fail', { reason: 'why not' });
    met.unknown = await refused(call('nothing'));

    met.resources = (await pages(params => client.listResources(params), 'resources')).map(resource => resource.uri);
    met.templates = (await pages(params => client.listResourceTemplates(params), 'resourceTemplates')).map(one => one.uriTemplate);
    met.note = (await client.readResource({ uri: NOTE })).contents[0];
    met.pixel = (await client.readResource({ uri: 'demo://pixel' })).contents[0];
    met.weather = (await client.readResource({ uri: 'demo://Oslo/weather' })).contents[0];
    met.missing = await refused(client.readResource({ uri: 'demo://nothing' }));

    met.prompts = (await pages(params => client.listPrompts(params), 'prompts')).map(prompt => prompt.name);
    met.brief = await client.getPrompt({ name: 'brief', arguments: { city: 'Oslo' } });
    met.completion = (
        await client.complete({
            ref: { type: 'ref/prompt', name: 'visit' },
            argument: { name: 'street', value: 'K' },
            context: { arguments: { city: 'Oslo' } }
        })
    ).completion;

    // It forgets who wants progress when the result arrives, even if progress came in the same read. So the tool
    // goes on when it is told that the progress was seen.
    const told = [];
    const onprogress = ({ progress, total }) => {
        met.progress.push([progress, total]);
        told.push(call('count', { to: 0 }));
    };
    await call('count', { to: 3, in_step: true }, { onprogress });
    await Promise.all(told);
    if (legacy) await client.setLoggingLevel('info');
    await client.callTool({ name: 'chatter', arguments: {}, ...meta });

    met.book = await call('book');
    met.pay = await call('pay');
    met.consult = await call('consult', { question: 'Nice?' });
    met.workplace = await call('workplace');
    met.survey = await call('survey');

    const traced = { traceparent: TRACE, 'example.com/more': [1] };
    const reflected = await client.callTool({ name: 'reflect', arguments: {}, _meta: traced });
    met.reflect = reflected.structuredContent.result;
    met.tag = reflected._meta['example.com/tag'];
    met.audit = await client.request({ method: 'audit/read', params: { since: 3, _meta: traced } }, z.looseObject({}));

    const control = new AbortController();
    const sleeping = call('sleep', { seconds: 60 }, { signal: control.signal }).catch(() => 'given up');
    setTimeout(() => control.abort('enough'), 2000);
    met.cancelled = await sleeping;
    while ((await call('interrupted')).content[0].text === '0') await new Promise(resolve => setTimeout(resolve, 50));

    const updated = notified('notifications/resources/updated');
    const grown = notified('notifications/tools/list_changed');
    if (legacy) await client.subscribeResource({ uri: NOTE });
    else met.honored = (await client.listen({ toolsListChanged: true, resourceSubscriptions: [NOTE] })).honoredFilter;
    await call('write', { text: 'second' });
    await updated;
    await call('grow');
    await grown;
} finally {
    await transport.terminateSession?.();
    await client.close();
}
console.log(JSON.stringify(met));
