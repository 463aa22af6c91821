"""Whatever sequence of calls a recorder is told of, the log has it: compared with a simple model.

The recorder, the process that writes and the verifier are the real ones.
"""

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpearl.auth import Principal
from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.versions import VERSIONS
from mcpearl.receipts.receipts import Receipts
from mcpearl.receipts.recorder import Recorder
from mcpearl.receipts.records import Salts
from mcpearl.receipts.verifier import Log, load_keys
from mcpearl.runtime import clock
from mcpearl.types.capabilities import ClientCapabilities
from tests.receipts.logs import KEY, records

IDS = st.integers() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=300)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
PRINCIPALS = st.none() | st.builds(
    Principal, NAMES, client_id=st.none() | NAMES, issuer=st.none() | NAMES
)
SIZES = st.sampled_from([0, 10, 2000, 4000, 4090, 5000, 20_000])
WHICH = st.integers(0, 1000)
STEPS = st.one_of(
    st.tuples(st.just("begin"), IDS, NAMES, PRINCIPALS, SIZES),
    st.tuples(st.just("begin"), IDS, NAMES, st.none(), st.just(0)),
    st.tuples(
        st.just("answer"),
        WHICH,
        st.sampled_from(["result", "tool_error", "input_required", "task", "error"]),
        SIZES,
    ),
    st.tuples(st.just("answer"), st.just(-1), st.just("result"), st.just(0)),
    st.tuples(st.just("end"), WHICH, st.sampled_from(["cancelled", "timeout", "lost"])),
    st.tuples(st.just("begin again"), WHICH),
    st.tuples(st.just("end again"), WHICH),
    st.tuples(st.just("refuse a message"), IDS),
    st.tuples(st.just("hand over")),
    st.tuples(st.just("turn"), st.integers(1, 3)),
    st.tuples(st.just("fill")),
    st.tuples(st.just("empty")),
    st.tuples(st.just("set the clock"), st.floats(-1e6, 1e6)),
    st.tuples(st.just("restart")),
)


class SetClock:
    """The clock of the system, with a time of day that can be set."""

    monotonic = staticmethod(time.monotonic)
    random_bytes = staticmethod(clock.SystemSource.random_bytes)

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


@dataclass
class Run:
    """What the log must have of one run: what happened, in order."""

    happened: list[tuple[Any, ...]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


class Model:
    """Does each step to the recorder, and notes what has to be recorded."""

    def __init__(self, recorder: Recorder, source: SetClock) -> None:
        self.recorder = recorder
        self.source = source
        self.runs = [Run()]
        self.open: dict[Call, int] = {}  # calls that are recorded in this run, by their number
        self.unrecorded: list[Call] = []  # calls that began while nothing could be recorded
        self.ended: list[Call] = []
        self.lost = 0
        self.finished: list[bytes] = []
        self._begun = recorder.beginning(lambda call, ctx: None)
        self._watched = recorder.watching(lambda call, message: self.finished.append(message))

    async def do(self, step: tuple[Any, ...]) -> None:
        what, *details = step
        method = getattr(self, what.replace(" ", "_"))
        if asyncio.iscoroutine(done := method(*details)):
            await done

    def begin(self, id: Any, name: str, principal: Any, size: int) -> None:
        params = json.dumps({"name": name, "arguments": {"text": "x" * size}}).encode()
        caller = Caller(VERSIONS["2025-11-25"], None, ClientCapabilities(), principal=principal)
        call = Call(id, "tools/call", None, params, caller)
        self._begun(call, None)
        if self.recorder._full:
            self.lost += 1
            self.unrecorded.append(call)
            return
        run = self.runs[-1]
        run.calls.append(call)
        self.open[call] = len(run.calls)
        run.happened.append(("begin", len(run.calls), call))

    def _chosen(self, which: int) -> Call | None:
        calls = [*self.open, *self.unrecorded]
        return calls[which % len(calls)] if calls else None

    def _ends(self, call: Call, outcome: str, contents: bytes, task: str | None = None) -> None:
        if call in self.open:
            number = self.open.pop(call)
            self.runs[-1].happened.append(("end", number, outcome, contents, task))
        else:
            self.unrecorded.remove(call)
        self.ended.append(call)

    def answer(self, which: int, kind: str, size: int) -> None:
        call = self._chosen(which)
        if call is None:
            return
        text = "y" * size
        contents: Any = {"content": [{"type": "text", "text": text}]}
        task, outcome = None, kind
        if kind == "tool_error":
            contents["isError"] = True
        elif kind == "input_required":
            contents["resultType"] = "input_required"
        elif kind == "task":
            contents, task, outcome = {"task": {"taskId": "t1"}, "text": text}, "t1", "result"
        body = json.dumps(contents, separators=(",", ":")).encode()
        message = codec.encode_result(call.id, body)
        if kind == "error":
            message = codec.encode_error(call.id, McpError(-32000, text))
            body = message[message.index(b',"error":{"code"') + len(b',"error":') : -1]
        self._watched(call, message)
        assert self.finished.pop() == message
        self._ends(call, outcome, body, task)

    def end(self, which: int, outcome: str) -> None:
        if call := self._chosen(which):
            self.recorder.ended(call, outcome)
            self._ends(call, outcome, b"")

    def begin_again(self, which: int) -> None:
        if self.open:
            self._begun(list(self.open)[which % len(self.open)], None)

    def end_again(self, which: int) -> None:
        if self.ended:
            call = self.ended[which % len(self.ended)]
            self._watched(call, codec.encode_result(call.id, b"{}"))
            self.recorder.ended(call, "cancelled")

    def refuse_a_message(self, id: Any) -> None:
        full = self.recorder._full
        self.recorder.answered_itself(
            "refused", codec.encode_error(id, McpError(-32601, "s3cret")), "stdio"
        )
        if full:
            self.lost += 1
        else:
            self.runs[-1].happened.append(("refused", str(id)[:256]))

    def hand_over(self) -> None:
        self.recorder._hand_over()

    async def turn(self, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    def fill(self) -> None:
        self.recorder._fill("a test", "a test")

    def empty(self) -> None:
        if self.recorder._full:
            self.recorder._empty()
            self._note_gap()

    def _note_gap(self) -> None:
        if self.lost:
            self.runs[-1].happened.append(("gap", self.lost))
            self.lost = 0

    def set_the_clock(self, seconds: float) -> None:
        self.source.ahead += seconds

    async def restart(self) -> None:
        await self.recorder.stop()
        self.unrecorded += self.open
        self.open.clear()
        self.begin(0, "closed", None, 0)
        self.refuse_a_message("closed")
        if call := self._chosen(0):
            self.end(0, "cancelled")
            assert call in self.ended
        self.runs.append(Run())
        await self.recorder.start()
        self._note_gap()


async def drive(folder: Path, steps: list[tuple[Any, ...]]) -> list[Run]:
    source = SetClock()
    clock.use(source)
    try:
        receipts = Receipts(
            folder, key=str(KEY), on_full="continue", sign_every=0.01, rotate=30_000
        )
        recorder = receipts.recorder("server", "model")
        await recorder.start()
        model = Model(recorder, source)
        for step in steps:
            await model.do(step)
        await recorder.stop()
    finally:
        clock.use(clock.SystemSource)
    assert not recorder._notes
    return model.runs


def compare(folder: Path, runs: list[Run]) -> None:
    log = Log(folder, load_keys([KEY.vkey]))
    log.verify()
    assert (log.signed, log.torn) == (log.size, 0)
    held = records(folder)
    starts = [record["run"] for record in held if record["kind"] == "start"]
    assert len(starts) == len(runs)
    for name, run in zip(starts, runs, strict=True):
        salts = Salts(KEY.salts(), name)
        of_run = [
            record
            for record in held
            if record.get("run") == name or record.get("call", "").startswith(f"{name}-")
        ]
        assert (of_run[0]["kind"], of_run[-1]["kind"]) == ("start", "stop")
        for record, happened in zip(of_run[1:-1], run.happened, strict=True):
            compare_record(record, happened, salts, name)


def compare_record(
    record: dict[str, Any], happened: tuple[Any, ...], salts: Salts, run: str
) -> None:
    kind, *details = happened
    assert record["kind"] == kind
    if kind == "gap":
        assert [record["calls"]] == details
    elif kind == "refused":
        assert [record["request"], record["code"]] == [*details, -32601]
    elif kind == "begin":
        number, call = details
        assert record["call"] == f"{run}-{number}"
        digest = sha256(salts.of(number)[0] + call.raw).hexdigest()
        assert record["arguments"] == digest
        fits = isinstance(call.id, int) and -(1 << 63) <= call.id < 1 << 64
        assert record["request"] == (call.id if fits else str(call.id)[:256])
        assert record["name"] == json.loads(call.raw)["name"][:256]
        principal = call.caller.principal
        expected = [None] * 3
        if principal is not None:
            expected = [principal.subject, principal.client_id, principal.issuer]
        assert [record.get(each) for each in ("principal", "client", "issuer")] == [
            None if each is None else each[:256] for each in expected
        ]
    else:
        number, outcome, contents, task = details
        assert record["call"] == f"{run}-{number}"
        assert (record["outcome"], record.get("task")) == (outcome, task)
        digest = sha256(salts.of(number)[1] + contents).hexdigest() if contents else None
        assert record.get("result") == digest
        assert 0 <= record["duration"] < 600


@settings(max_examples=20)
@given(st.lists(STEPS, max_size=150))
def test_the_log_has_what_happened(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "receipts"
        compare(folder, asyncio.run(drive(folder, steps)))
