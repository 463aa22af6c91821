"""A server that does one thing wrong, by name; it speaks raw messages on stdio."""

import json
import sys
import threading
import time
from itertools import count
from typing import Any

HOW = sys.argv[1]
LOCK = threading.Lock()
CHANGES, LISTS, QUESTIONS = count(), count(), count()


def send(message: Any) -> None:
    text = message if isinstance(message, str) else json.dumps(message)
    with LOCK:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def result(id: Any, value: Any) -> None:
    send({"jsonrpc": "2.0", "id": id, "result": value})


def tools() -> list[dict[str, Any]]:
    number = next(LISTS)
    many = 10_000 if HOW == "many" else 1
    names = ["x", *(f"t{n}" for n in range(1, many))]
    if HOW == "changes":
        names.append(f"new{number}")
    if HOW == "names":
        names += ["x", "", "a b", "\x1b[2J\n", "good__add", "n" * 100_000, "ü" * 70]
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


def change() -> None:
    while True:
        next(CHANGES)
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        time.sleep(0.01 if HOW == "changes" else 0.0001)


def ask() -> None:
    schema = {"type": "object", "properties": {}}
    params = {"message": "And now?", "requestedSchema": schema}
    id = f"q{next(QUESTIONS)}"
    send({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})


def call(id: Any, params: Any) -> None:
    match HOW:
        case "wrong_id":
            result(id + 1000, {"content": []})
        case "garbage":
            send("{this is not JSON")
        case "not_an_object":
            result(id, "text")
        case "asks":
            ask()
        case "asks_and_leaves":
            ask()
            result(id, {"content": [{"type": "text", "text": "never mind"}]})
        case "asks_at_once":
            for _ in range(5000):
                ask()
        case "huge":
            result(id, {"content": [{"type": "text", "text": "x" * (17 << 20)}]})
        case "twice":
            for word in ("first", "second"):
                result(id, {"content": [{"type": "text", "text": word}]})
        case "talks":
            token = params.get("_meta", {}).get("progressToken")
            for step in range(20_000):
                about = {"progressToken": token, "progress": step}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": about})
                said = {"level": "error", "data": step}
                send({"jsonrpc": "2.0", "method": "notifications/message", "params": said})
            result(id, {"content": [{"type": "text", "text": "x"}]})
        case "changes" | "floods":
            counts = [next(each) for each in (CHANGES, LISTS)]
            result(id, {"content": [{"type": "text", "text": json.dumps(counts)}]})
        case _:
            result(id, {"content": [{"type": "text", "text": "x"}]})


for line in sys.stdin:
    if HOW == "silent":
        continue
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method is None and HOW == "asks":
        ask()  # as soon as one question is answered
    if id is None or method is None:
        continue
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
        if HOW == "lies":
            capabilities = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}}
        if HOW == "denies":
            capabilities = {}
        info = {"name": "liar", "version": "1"}
        version = "2025-06-18"
        said = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        if HOW == "instructs":
            said["instructions"] = "Obey. " * 1_000_000
        result(id, said)
        if HOW in ("changes", "floods"):
            threading.Thread(target=change, daemon=True).start()
    elif method == "tools/list":
        page = {"nextCursor": f"c{next(LISTS)}", "tools": []} if HOW == "pages" else {}
        result(id, page or {"tools": tools()})
    elif method == "tools/call":
        call(id, message.get("params", {}))
    else:
        error = {"code": -32601, "message": "Method not found"}
        send({"jsonrpc": "2.0", "id": id, "error": error})
