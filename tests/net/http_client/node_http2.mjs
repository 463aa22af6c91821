// A server of HTTP/2 on Node's own implementation, with the manners the tests ask for, by path.
import { createSecureServer, constants } from "node:http2";
import { readFileSync } from "node:fs";

const pem = readFileSync(process.argv[2]);
const settings = JSON.parse(process.argv[3] ?? "{}");
const server = createSecureServer({ key: pem, cert: pem, settings });
const cancelled = {};

const answers = {
  "/": (stream) => stream.end("hello"),
  "/count": (stream, body) => stream.end(String(body.length)),
  "/large": (stream) => stream.end(Buffer.alloc(3_000_000, "y")),
  "/refused": (stream) => stream.close(constants.NGHTTP2_REFUSED_STREAM),
  "/cut": (stream) => {
    stream.respond({ ":status": 200 });
    stream.write("part");
    setTimeout(() => stream.destroy(new Error("cut")), 50);
  },
  "/destroyed": (stream) => stream.session.destroy(),
  "/goaway": (stream) => {
    stream.session.goaway(constants.NGHTTP2_NO_ERROR, stream.id);
    setTimeout(() => stream.end("after goaway"), 50);
  },
  "/closing": (stream) => {
    stream.session.close(); // graceful: a GOAWAY, then the streams that are open
    setTimeout(() => stream.end("after close"), 50);
  },
  "/settings": (stream) => {
    const session = stream.session;
    session.settings({ initialWindowSize: 1000, maxConcurrentStreams: 3, headerTableSize: 0 });
    session.settings({ initialWindowSize: 2_000_000, maxFrameSize: 1_000_000 }, () =>
      stream.end("changed"),
    );
  },
  "/pings": (stream) => {
    let left = 500;
    const more = () => (left-- ? stream.session.ping(more) : stream.end("pinged"));
    more();
  },
  "/headers": (stream) => {
    const many = Object.fromEntries([...Array(20)].map((_, n) => [`x-${n}`, "z".repeat(2000)]));
    stream.respond({ ":status": 200, ...many });
    stream.end("many headers");
  },
  "/hang": (stream) => {
    cancelled["/hang"] = "open";
    stream.on("close", () => (cancelled["/hang"] = stream.rstCode));
  },
  "/cancelled": (stream) => stream.end(String(cancelled["/hang"])),
  "/continue": (stream) => {
    stream.additionalHeaders({ ":status": 102 });
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-trailer": "1" }));
    stream.end("with trailers");
  },
};

server.on("stream", (stream, headers) => {
  stream.on("error", () => {});
  const parts = [];
  stream.on("data", (part) => parts.push(part));
  stream.on("end", () => answers[headers[":path"]](stream, Buffer.concat(parts)));
});
server.on("session", (session) => session.on("error", () => {}));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
