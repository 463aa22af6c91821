// Calls tools of the scene with a client of the TypeScript SDK until time is up; prints each outcome as a line, and at the
// end how many calls there were.
// node scene_client.mjs <v1|v2> <legacy|2026-07-28> <url> <name> <seconds>

const [sdk, mode, url, own, seconds] = process.argv.slice(2);
const INFO = { name: own, version: '1.0.0' };
const CAPABILITIES = { elicitation: { form: {} }, sampling: {} };
const TOOLS = ['record', 'count', 'ask', 'sample', 'leave'];
let asked = 0; // questions of the call under way that were answered

/** The key that a question ends with. */
function keyIn(text) {
    asked += 1;
    return text.trim().split(/\s+/).pop();
}

async function load() {
    if (sdk === 'v1') {
        const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
        const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const types = await import('@modelcontextprotocol/sdk/types.js');
        const names = {
            'elicitation/create': types.ElicitRequestSchema,
            'sampling/createMessage': types.CreateMessageRequestSchema
        };
        const client = new Client(INFO, { capabilities: CAPABILITIES });
        return { client, transport: new StreamableHTTPClientTransport(new URL(url)), name: method => names[method] };
    }
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const versionNegotiation = { mode: mode === 'legacy' ? mode : { pin: mode } };
    const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation });
    return { client, transport: new StreamableHTTPClientTransport(new URL(url)), name: method => method };
}

/** A worker may be killed while the client connects: then it is another one that connects. */
async function connected() {
    for (;;) {
        const { client, transport, name } = await load();
        client.onerror = () => {};
        client.setRequestHandler(name('elicitation/create'), async request => ({
            action: 'accept',
            content: { a: keyIn(request.params.message) }
        }));
        client.setRequestHandler(name('sampling/createMessage'), async request => ({
            role: 'assistant',
            content: { type: 'text', text: keyIn([request.params.messages[0].content].flat()[0].text) },
            model: 'parrot-1'
        }));
        try {
            await client.connect(transport);
            return client;
        } catch {
            await new Promise(resolve => setTimeout(resolve, 200));
        }
    }
}

const client = await connected();
const until = Date.now() + 1000 * Number(seconds);
let total = 0;
while (Date.now() < until) {
    total += 1;
    asked = 0;
    const key = `${own}-${total}`;
    const tool = TOOLS[total % TOOLS.length];
    const params = { name: tool, arguments: { key } };
    const progress = [];
    const options = { timeout: 20_000, onprogress: told => progress.push(told.progress) };
    let outcome;
    try {
        const result = await (sdk === 'v1' ? client.callTool(params, undefined, options) : client.callTool(params, options));
        outcome = result.isError ? 'failed' : 'answered';
    } catch (error) {
        outcome = `refused: ${error.message}`;
    }
    console.log(JSON.stringify({ key, tool, outcome, progress, asked }));
    await new Promise(resolve => setTimeout(resolve, 20));
}
console.log(JSON.stringify({ total }));
await client.close().catch(() => {});
process.exit(0);
