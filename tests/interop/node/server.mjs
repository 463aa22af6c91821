// A server of either TypeScript SDK with what the demo server has: node server.mjs <v1|v2>
// On stdio, or over HTTP with sessions at the port that `PORT` in the environment names.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { z } from 'zod';

const [sdk] = process.argv.slice(2);
const NOTE = 'demo://note';
const AUDIT = 'com.example/audit';
const STREETS = ['Karl Johans gate', 'Kirkeveien'];
const PIXEL = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex').toString('base64');
const CAPABILITIES = {
    tools: { listChanged: true },
    resources: { listChanged: true, subscribe: true },
    prompts: { listChanged: true },
    logging: {},
    extensions: { [AUDIT]: {} }
};
const TRIP = {
    type: 'object',
    properties: { city: { type: 'string' }, insured: { type: 'boolean', default: false } },
    required: ['city']
};

const first = sdk === 'v1';
const [mcp, completing, http, types] = first
    ? await Promise.all([
          import('@modelcontextprotocol/sdk/server/mcp.js'),
          import('@modelcontextprotocol/sdk/server/completable.js'),
          import('@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js'),
          import('@modelcontextprotocol/sdk/types.js')
      ])
    : Array(4).fill(await import('@modelcontextprotocol/server'));
const { inputRequired } = mcp; // of the second SDK
const ANSWERS = {
    'elicitation/create': types.ElicitResultSchema,
    'sampling/createMessage': types.CreateMessageResultSchema,
    'roots/list': types.ListRootsResultSchema
};

// All sessions share these.
const state = { note: 'first', interrupted: 0, booked: 0, grown: false, goOn: () => {} };
const servers = new Set();

const text = said => ({ content: [{ type: 'text', text: String(said) }] });
const value = result => ({ ...text(JSON.stringify(result)), structuredContent: { result } });
const elicit = (message, requestedSchema) => ({ method: 'elicitation/create', params: { message, requestedSchema } });
const sample = question => ({
    method: 'sampling/createMessage',
    params: { messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens: 50, systemPrompt: 'Be brief.' }
});
const ROOTS = { method: 'roots/list' };

/** What a handler may use of its call, in the same words for both SDKs. */
function about(server, context) {
    if (first) {
        return {
            meta: context._meta ?? {},
            signal: context.signal,
            notify: notification => context.sendNotification(notification),
            // On the stream of the call: over HTTP, what is sent on the standing stream may come after the answer.
            log: (level, data) =>
                server.server.isMessageIgnored(level, context.sessionId) ||
                context.sendNotification({ method: 'notifications/message', params: { level, data, logger: 'demo' } })
        };
    }
    const { _meta, signal, notify, log } = context.mcpReq;
    return { meta: _meta ?? {}, signal, notify, log: (level, data) => log(level, data, 'demo') };
}

/** Puts questions, and ends with their answers: the first SDK waits, the second calls its handler again. */
async function ask(context, questions, end) {
    if (!first) {
        const { inputResponses } = context.mcpReq;
        return inputResponses === undefined ? inputRequired({ inputRequests: questions }) : end(inputResponses);
    }
    const asked = Object.entries(questions).map(async ([key, question]) => {
        return [key, await context.sendRequest(question, ANSWERS[question.method])];
    });
    return end(Object.fromEntries(await Promise.all(asked)));
}

/** Two questions, the second of which depends on the first answer. */
async function book(context) {
    const where = elicit('Where to?', TRIP);
    const sure = ({ city }) => elicit(`3 days in ${city}. Sure?`, { type: 'object', properties: {} });
    const booked = (trip, { action }) => {
        if (action !== 'accept') return text(`dropped: ${action}`);
        state.booked += 1;
        return text(`booked ${state.booked}: second class, insured ${trip.insured ? 'True' : 'False'}`);
    };
    const told = answer => (answer.action === 'accept' ? undefined : text(`not booked: ${answer.action}`));
    if (first) {
        const answer = await context.sendRequest(where, ANSWERS[where.method]);
        return told(answer) ?? booked(answer.content, await context.sendRequest(sure(answer.content), ANSWERS[where.method]));
    }
    const { inputResponses: answers, requestState } = context.mcpReq;
    if (answers === undefined) return inputRequired({ inputRequests: { where } });
    const trip = requestState();
    if (trip !== undefined) return booked(JSON.parse(trip), answers.sure);
    const { content } = answers.where;
    return told(answers.where) ?? inputRequired({ inputRequests: { sure: sure(content) }, requestState: JSON.stringify(content) });
}

function make() {
    const server = new mcp.McpServer(
        { name: 'demo', version: '1.2.3', title: 'Demo' },
        { capabilities: CAPABILITIES, instructions: 'Try everything.' }
    );
    const subscribed = new Set();
    const tool = (name, shape, handler) => server.registerTool(name, { inputSchema: z.object(shape) }, handler);
    const grow = () => tool('grown', {}, async () => text('new'));

    tool('add', { a: z.number(), b: z.number() }, async ({ a, b }) => ({ ...text(a + b), structuredContent: { result: a + b } }));
    tool('forecast', { city: z.string() }, async ({ city }) => {
        const weather = { city, days: ['sun', 'sun'], warm: true };
        return { ...text(JSON.stringify(weather)), structuredContent: weather };
    });
    tool('show', {}, async () => ({
        content: [
            { type: 'text', text: 'look' },
            { type: 'image', data: PIXEL, mimeType: 'image/png' },
            { type: 'audio', data: PIXEL, mimeType: 'audio/wav' },
            { type: 'resource_link', uri: NOTE, name: 'note' },
            { type: 'resource', resource: { uri: 'demo://inside', text: 'inside' } }
        ]
    }));
    tool('fail', { reason: z.string() }, async ({ reason }) => {
        throw new Error(`failed: ${reason}`);
    });
    const counting = { to: z.number(), pause: z.number().default(0), in_step: z.boolean().default(false) };
    // In step, it goes on when the client has called it with 0.
    tool('count', counting, async ({ to, pause, in_step: inStep }, context) => {
        const { meta, notify } = about(server, context);
        if (to === 0) state.goOn();
        for (let progress = 1; progress <= to; progress += 1) {
            const params = { progressToken: meta.progressToken, progress, total: to };
            const seen = new Promise(resolve => (inStep ? (state.goOn = resolve) : setTimeout(resolve, 1000 * pause)));
            if (meta.progressToken !== undefined) await notify({ method: 'notifications/progress', params });
            await seen;
        }
        return text(`counted to ${to}`);
    });
    tool('chatter', {}, async (_, context) => {
        const { log } = about(server, context);
        await log('debug', 'a detail');
        await log('info', { what: 'news' });
        await log('error', 'a problem');
        return text('said');
    });
    tool('sleep', { seconds: z.number() }, async ({ seconds }, context) => {
        const { signal } = about(server, context);
        await new Promise(resolve => {
            const timer = setTimeout(resolve, 1000 * seconds);
            signal.addEventListener('abort', () => {
                clearTimeout(timer);
                state.interrupted += 1;
                resolve();
            });
        });
        return text('slept');
    });
    tool('interrupted', {}, async () => ({ ...text(state.interrupted), structuredContent: { result: state.interrupted } }));
    tool('reflect', {}, async (_, context) => {
        const { meta } = about(server, context);
        const own = Object.entries(meta).filter(([key]) => key !== 'progressToken' && !key.startsWith('io.modelcontextprotocol/'));
        return { ...value(Object.fromEntries(own)), _meta: { 'example.com/tag': [1] } };
    });

    tool('book', {}, (_, context) => book(context));
    const page = { mode: 'url', message: 'Please pay.', url: 'https://pay.example/42', ...(first && { elicitationId: 'pay-42' }) };
    const pay = { method: 'elicitation/create', params: page };
    tool('pay', {}, (_, context) => ask(context, { pay }, answers => text(answers.pay.action)));
    tool('consult', { question: z.string() }, ({ question }, context) =>
        ask(context, { model: sample(question) }, ({ model }) => text(`${model.model}: ${model.content.text}`))
    );
    tool('workplace', {}, (_, context) => ask(context, { roots: ROOTS }, ({ roots }) => value(roots.roots.map(root => root.uri))));
    const survey = { roots: ROOTS, where: elicit('Where to?', TRIP), model: sample('Is it nice there?') };
    tool('survey', {}, (_, context) =>
        ask(context, survey, ({ roots, where, model }) => text(`${roots.roots.length} roots, ${where.content.city}, ${model.content.text}`))
    );
    tool('write', { text: z.string() }, async ({ text: note }) => {
        state.note = note;
        for (const each of servers) each.updated(NOTE);
        return text('written');
    });
    tool('grow', {}, async () => {
        state.grown = true;
        for (const each of servers) each.grow();
        return text('grown');
    });
    if (state.grown) grow();

    const contents = (uri, rest) => ({ contents: [{ uri: uri.href ?? uri, ...rest }] });
    const plain = { mimeType: 'text/plain' };
    server.registerResource('note', NOTE, plain, async uri => contents(uri, { ...plain, text: state.note }));
    server.registerResource('pixel', 'demo://pixel', { mimeType: 'image/png' }, async uri => contents(uri, { blob: PIXEL }));
    const weather = new mcp.ResourceTemplate('demo://{city}/weather', { list: undefined });
    server.registerResource('weather', weather, { mimeType: 'application/json' }, async (uri, { city }) =>
        contents(uri, { text: JSON.stringify({ city, sky: 'snow' }) })
    );
    const prompt = (name, shape, said) => {
        const messages = given => ({ messages: [{ role: 'user', content: { type: 'text', text: said(given) } }] });
        server.registerPrompt(name, { argsSchema: first ? shape : z.object(shape) }, messages);
    };
    prompt('brief', { city: z.string() }, ({ city }) => `Give me a short weather briefing for ${city}.`);
    const street = completing.completable(z.string(), (typed, context) =>
        context?.arguments?.city === 'Oslo' ? STREETS.filter(each => each.startsWith(typed)) : []
    );
    prompt('visit', { city: z.string(), street }, given => `How do I get to ${given.street} in ${given.city}?`);

    // Pages, subscriptions in a session and methods of extensions: the layer below.
    const below = server.server;
    const listed = [
        { uri: NOTE, name: 'note', ...plain },
        { uri: 'demo://pixel', name: 'pixel', mimeType: 'image/png' }
    ];
    const answer = (method, schema, handler) => below.setRequestHandler(first ? schema : method, handler);
    answer('resources/list', types.ListResourcesRequestSchema, async ({ params }) => {
        const at = Number(params?.cursor ?? 0);
        return { resources: [listed[at]], ...(at + 1 < listed.length && { nextCursor: String(at + 1) }) };
    });
    answer('resources/subscribe', types.SubscribeRequestSchema, async ({ params }) => {
        subscribed.add(params.uri);
        return {};
    });
    answer('resources/unsubscribe', types.UnsubscribeRequestSchema, async ({ params }) => {
        subscribed.delete(params.uri);
        return {};
    });
    const since = z.looseObject({ since: z.number() });
    if (first) {
        const request = z.object({ method: z.literal('audit/read'), params: since });
        below.setRequestHandler(request, async ({ params }) => ({ since: params.since, trace: params._meta?.traceparent }));
    } else {
        below.setRequestHandler('audit/read', { params: since }, async (params, { mcpReq }) => ({
            since: params.since,
            trace: mcpReq._meta?.traceparent
        }));
    }

    const entry = {
        grow,
        updated(uri) {
            // In the modern era the SDK knows which streams follow the resource.
            const modern = !first && below.getNegotiatedProtocolVersion() >= '2026';
            if (modern || subscribed.has(uri)) below.sendResourceUpdated({ uri }).catch(() => {});
        }
    };
    servers.add(entry);
    below.onclose = () => servers.delete(entry);
    return server;
}

async function serveHttp(port) {
    const sessions = new Map();

    async function answer(incoming, body) {
        const id = incoming.headers['mcp-session-id'];
        let transport = sessions.get(id);
        if (transport === undefined) {
            if (id !== undefined) return new Response(null, { status: 404 });
            transport = new http.WebStandardStreamableHTTPServerTransport({
                sessionIdGenerator: randomUUID,
                onsessioninitialized: given => void sessions.set(given, transport),
                onsessionclosed: given => void sessions.delete(given)
            });
            await make().connect(transport);
        }
        const { method, headers, url } = incoming;
        return transport.handleRequest(new Request(`http://127.0.0.1:${port}${url}`, { method, headers, body }));
    }

    createServer(async (incoming, outgoing) => {
        const parts = [];
        for await (const part of incoming) parts.push(part);
        const response = await answer(incoming, parts.length ? Buffer.concat(parts) : undefined);
        outgoing.writeHead(response.status, Object.fromEntries(response.headers));
        outgoing.flushHeaders();
        if (response.body !== null) {
            const reader = response.body.getReader();
            outgoing.on('close', () => void reader.cancel().catch(() => {}));
            for (let part = await reader.read(); !part.done; part = await reader.read()) outgoing.write(part.value);
        }
        outgoing.end();
    }).listen(port, '127.0.0.1');
}

if (process.env.PORT !== undefined) {
    await serveHttp(Number(process.env.PORT));
} else if (first) {
    const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
    await make().connect(new StdioServerTransport());
} else {
    const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
    serveStdio(make);
}
