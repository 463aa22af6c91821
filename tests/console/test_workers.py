"""One console for all workers of a machine: it shows them together, and reaches each of them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from mcpearl import Client, McpError
from mcpearl.console.actions import Follow
from mcpearl.console.outbox import PageEvents
from mcpearl.console.workers import FellowWorkers, WorkerLink
from tests.console.browser import Browser
from tests.console.page import KEY, Page, open_page
from tests.console.worker_app import TOKEN
from tests.ports import free_port
from tests.readiness import ServiceManager
from tests.waiting import at_rest, eventually

APP = Path(__file__).with_name("worker_app.py")
WORKERS = 3
OWN = """
new Promise((done) => import("./link.js").then((m) => m.on("sessions", (event) => {
  if (event.rows.some((row) => row.wire === "memory")) done(event.worker);
})))
"""
MERGING = """
import("./merging.js").then((m) => {
  const quiet = {
    cpu: 0, memory: 1, held: 0, lag: 0.5, errors: 0, in_flight: 1, sessions: 1, connections: 1,
  };
  const busy = { ...quiet, rate: 900, calls: 900, times: [1000], totals: { calls: 900 } };
  const idle = { ...quiet, rate: 100, calls: 100, lag: 0.1, times: [2000, 3000], totals: { calls: 100 } };
  const bounds = [
    { worker: 0, rows: [{ name: "a", used: 1, limit: 10, reached: 2 }, { name: "b", reached: 1 }] },
    { worker: 1, rows: [{ name: "a", used: 9, limit: 10, reached: 3 }] },
  ];
  return {
    ...m.mergePulses([busy, idle]), none: m.mergePulses([]), bounds: m.mergeBounds(bounds),
  };
})
"""


class Machine:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process = process
        self.base = f"http://127.0.0.1:{port}/console"
        self.url = f"http://127.0.0.1:{port}/mcp"

    @property
    def pids(self) -> set[int]:
        return {each.pid for each in psutil.Process(self.process.pid).children()}


@asynccontextmanager
async def machine(*more: str) -> AsyncIterator[Machine]:
    port, manager = free_port(), ServiceManager()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.console.worker_app", str(port), str(WORKERS), KEY, *more],
        env={**os.environ, **manager.environment},
    )
    found = Machine(process, port)
    try:
        await manager.ready(process)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@asynccontextmanager
async def clients_everywhere(url: str) -> AsyncIterator[dict[int, Client]]:
    """Open clients with a session until there is one at each worker; yield them by its process."""
    async with AsyncExitStack() as stack:
        found: dict[int, Client] = {}
        for _ in range(200):
            client = await stack.enter_async_context(
                Client(url, protocol="2025-11-25", reconnect=False)  # what was ended stays ended
            )
            found.setdefault((await client.call_tool("where")).data, client)
            if len(found) == WORKERS:
                yield found
                return
        raise AssertionError(f"only {len(found)} workers were reached")


def of_worker(number: int, where: Callable[[Any], Any] = lambda event: True) -> Any:
    return lambda event: event["worker"] == number and where(event)


def waits(event: Any) -> bool:
    """Whether a call of `wait` is in flight; others, which end by themselves, may be shown too."""
    return any(row["name"] == "wait" for row in event["rows"])


async def processes(page: Page) -> dict[int, int]:
    """Return the process of each worker, as the page was told."""
    found = {}
    for number in range(WORKERS):
        event = await page.event("worker", of_worker(number, lambda event: event["up"]))
        found[number] = event["pid"]
    return found


async def test_a_page_shows_all_workers():
    async with machine() as crew, open_page(crew.base) as page:
        pids = await processes(page)
        assert set(pids.values()) == crew.pids
        assert page.events[0]["workers"] == WORKERS
        async with clients_everywhere(crew.url) as clients:
            for number, pid in pids.items():
                client = clients[pid]
                assert (await client.call_tool("say", {"text": f"said by {number}"})).data == pid
                await client.call_tool("broken")

                def said(event: Any, text: str = f"said by {number}") -> bool:
                    return any(row["text"] == text for row in event["rows"])

                def noted(event: Any, text: str = f"said by {number}") -> bool:
                    return any(text in (row["arguments"] or "") for row in event["rows"])

                await page.event("logs", of_worker(number, said))
                await page.event("calls", of_worker(number, noted))
                await page.event(
                    "pulse", of_worker(number, lambda event: event["totals"]["tool_error"] == 1)
                )
                await page.event(
                    "sessions",
                    of_worker(number, lambda e: any(row.get("is_session") for row in e["rows"])),
                )
                for kind in ("tree", "running", "bounds", "tasks"):
                    await page.event(kind, of_worker(number))


async def test_what_a_page_asks_reaches_the_worker_that_has_it():
    async with machine() as crew, open_page(crew.base) as page:
        pids = await processes(page)
        async with clients_everywhere(crew.url) as clients:
            for number, pid in pids.items():
                client = clients[pid]
                waiting = asyncio.create_task(client.call_tool("wait"))
                running = await page.event("running", of_worker(number, waits))
                row = next(each for each in running["rows"] if each["name"] == "wait")
                await page.do(do="stop_call", number=row["number"], worker=number)
                with pytest.raises(McpError, match="stopped by the server's operator"):
                    await waiting
                await page.do(do="restart_child", path=["background", "refresh"], worker=number)
                await page.event(
                    "tree",
                    of_worker(number, lambda event: "'restarts': 1" in str(event["root"])),
                )
                rows = page.events[::-1]
                sessions = next(
                    e for e in rows if e["type"] == "sessions" and e["worker"] == number
                )
                shown = [each for each in sessions["rows"] if each.get("is_session")]
                for each in shown:
                    await page.do(do="end_session", number=each["number"], worker=number)

                def ended(event: Any, known: int = len(page.events)) -> bool:
                    fresh = any(event is each for each in page.events[known:])
                    return fresh and not any(row.get("is_session") for row in event["rows"])

                await page.event("sessions", of_worker(number, ended))
        for action in (
            {"do": "stop_call", "number": 999_999},
            {"do": "end_session", "number": 999_999},
            {"do": "restart_child", "path": ["nothing"]},
        ):
            for worker in (*pids, 99):
                response = await page.post(**action, worker=worker)
                assert response.status_code == 422, response.text


async def test_requests_of_a_page_may_land_at_any_worker():
    """Each request has a connection of its own, which any worker may accept."""
    async with machine() as crew, open_page(crew.base) as page:
        headers = {**page.headers, "x-console-page": page.events[0]["page"]}
        action = {"do": "follow", "by": "name", "value": "where"}
        for _ in range(30):
            async with httpx2.AsyncClient() as http:
                response = await http.post(f"{crew.base}/do", json=action, headers=headers)
            assert response.status_code == 200, response.text
        for gone in ("0.nothing", "1.nothing", "2.nothing", "3.nothing", "x", "²."):
            async with httpx2.AsyncClient() as http:
                sent = {**headers, "x-console-page": gone.encode()}
                response = await http.post(f"{crew.base}/do", json=action, headers=sent)
            assert response.status_code == 409, response.text


async def test_a_worker_that_dies_and_its_replacement_are_shown():
    async with machine() as crew, open_page(crew.base) as page:
        pids = await processes(page)
        own = page.events[0]["worker"]
        victim = next(number for number in pids if number != own)
        os.kill(pids[victim], signal.SIGKILL)
        await page.event("worker", of_worker(victim, lambda event: not event["up"]))
        await page.event("logs", of_worker(victim, lambda e: "has ended" in str(e["rows"])))
        again = await page.event(
            "worker", of_worker(victim, lambda event: event["up"] and event["restarts"] == 1)
        )
        assert again["pid"] not in pids.values() and again["pid"] in crew.pids
        # One that is asked to restart is replaced as well.
        other = next(number for number in pids if number not in (own, victim))
        await page.do(do="restart_child", path=[], worker=other)
        again = await page.event(
            "worker", of_worker(other, lambda event: event["up"] and event["restarts"] == 1)
        )
        assert again["pid"] != pids[other]


async def test_a_page_of_a_protected_machine_needs_its_token_and_key():
    async with machine("--auth") as crew, httpx2.AsyncClient() as http:
        for _ in range(10):
            headers = {"x-console-key": KEY}
            assert (await http.get(f"{crew.base}/events", headers=headers)).status_code == 401
        page = Page(http, crew.base, KEY)
        page.headers["authorization"] = f"Bearer {TOKEN}"
        reading = asyncio.create_task(page.read())
        try:
            await page.event("hello")
            assert set((await processes(page)).values()) == crew.pids
            for _ in range(10):
                await page.do(do="follow", by="name", value="where")
        finally:
            reading.cancel()
            await asyncio.wait([reading])


async def test_nothing_is_measured_when_no_page_is_open():
    """The connections between the workers exist while a page is open, and end with it."""

    def descriptors(crew: Machine) -> int:
        return sum(psutil.Process(pid).num_fds() for pid in crew.pids)

    async with machine() as crew:
        async with open_page(crew.base) as first:
            await processes(first)  # all workers have begun
        before = await at_rest(lambda: descriptors(crew), still=1.0)
        async with open_page(crew.base) as page, open_page(crew.base) as second:
            await processes(page)
            await processes(second)
            assert descriptors(crew) > before
        await eventually(lambda: descriptors(crew) <= before)


async def test_a_worker_that_sends_too_much_at_once_is_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A link that cannot read an event gives it up, says so, and goes on with a new connection."""
    monkeypatch.setattr("mcpearl.console.workers._MAX_EVENT", 1000)
    monkeypatch.setattr("mcpearl.console.workers._RETRY", 0.01)
    path = tmp_path / "0.console"
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        size = 5000 if len(heard) == 1 else 10
        writer.write(b"data: " + b"x" * size + b"\r\n\r\n")
        await reader.read()
        writer.close()

    outbox = PageEvents()
    async with await asyncio.start_unix_server(serve, str(path)):
        link = WorkerLink(0, path, outbox)
        link.follow(Follow(by="name", value="where"))
        sent = b""
        while b"data: xxxxxxxxxx\r\n" not in sent:
            sent += await outbox.take()
        await link.close()
    assert len(heard) == 2 and b'"where"' in heard[1]
    assert b'"up":false' in sent


@pytest.mark.parametrize(
    ("page", "owner"),
    [
        ("0.a", None),
        ("1.a", 1),
        ("2.a", 2),
        ("3.a", None),
        ("1", None),
        ("-1.a", None),
        ("².", None),
    ],
)
def test_which_worker_has_a_page(page: str, owner: int | None):
    assert FellowWorkers(0, [Path("0"), Path("1"), Path("2")]).owner_of(page) == owner


@pytest.mark.parametrize("dark", [False, True])
async def test_workers_in_a_browser(browser: Browser, dark: bool, tmp_path: Path):
    async with machine() as crew:
        await browser.open(f"{crew.base}#key={KEY}", dark=dark)
        await browser.wait("#phase.good")
        await browser.wait("[aria-label=Workers] >> text=/worker 2: process/")
        async with clients_everywhere(crew.url) as clients:
            for client in clients.values():
                await client.call_tool("where")
            for number in range(WORKERS):
                await browser.wait(f"[aria-label='Supervision tree'] >> text=worker {number}")
            await eventually(lambda: shows(browser, "Last calls", 2, {"0", "1", "2"}))
            # One worker alone
            await browser.select("#worker", "1")
            await browser.wait("[aria-label='Supervision tree'] >> text=worker 0", "detached")
            await eventually(lambda: shows(browser, "Clients and sessions", 1, {"1"}))
            await eventually(lambda: shows(browser, "Last calls", 2, {"1"}))
            await browser.select("#worker", "")
            await browser.wait("[aria-label='Supervision tree'] >> text=worker 0")
            # A call, stopped in the worker that has it
            for client in clients.values():
                waiting = asyncio.create_task(client.call_tool("wait"))
                await browser.click("[aria-label='Calls in flight'] >> text=stop")
                with pytest.raises(McpError, match="stopped by the server's operator"):
                    await waiting
                await browser.wait("text=No call is in flight")
            await browser.screenshot(tmp_path / f"workers-{dark}.png", whole=True)
        # A worker that is restarted: it may be the one that has the page, which then comes back.
        await browser.click("[aria-label='Restart worker 1']")
        await browser.click("dialog >> text=Yes")
        await browser.wait("[aria-label=Workers] >> text=/worker 1: process .* replaced 1/")
        await browser.click("#tab-logs")
        await browser.wait("[role=log] >> text=/worker 1/")
        allowed = (
            "ERR_INCOMPLETE_CHUNKED_ENCODING",
            "ERR_CONNECTION",
        )  # the page's worker was replaced
        assert [
            each for each in await browser.problems() if not any(a in each for a in allowed)
        ] == []


async def test_a_worker_that_hangs_is_shown_as_silent(browser: Browser):
    async with machine() as crew:
        await browser.open(f"{crew.base}#key={KEY}")
        await browser.wait("#phase.good")
        own = await browser.evaluate(OWN)
        victim = next(number for number in range(WORKERS) if number != own)
        chip = f"[aria-label=Workers] >> text=/worker {victim}: process [0-9]+$/"
        await browser.wait(chip)
        pid = int((await browser.text(chip)).split()[-1])
        os.kill(pid, signal.SIGSTOP)
        try:
            await browser.wait(f"[aria-label=Workers] >> text=/worker {victim}: process .* silent/")
        finally:
            os.kill(pid, signal.SIGCONT)
        await browser.wait(chip)


async def shows(browser: Browser, table: str, column: int, expected: set[str]) -> bool:
    """Whether a column has these values. It is read at once: rows are replaced as events come."""
    rows = f"document.querySelectorAll(`[aria-label='{table}'] tbody tr`)"
    found = await browser.evaluate(f"[...{rows}].map((row) => row.cells[{column}]?.textContent)")
    return set(found) == expected


async def test_figures_of_workers_are_merged(browser: Browser):
    """Times count by how many calls they stand for; of bounds the nearest is shown."""
    async with machine() as crew:
        await browser.open(f"{crew.base}#key={KEY}")
        await browser.wait("#phase.good")
        merged = await browser.evaluate(MERGING)
    assert merged["rate"] == 1000 and merged["totals"] == {"calls": 1000} and merged["lag"] == 0.5
    assert (merged["p50"], merged["p95"], merged["p99"]) == (0.001, 0.003, 0.003)
    assert merged["none"]["p50"] == 0 and merged["memory"] == 2
    nearest, other = merged["bounds"]
    assert (nearest["worker"], nearest["used"], nearest["reached"]) == (1, 9, 5)
    assert (other["name"], other["reached"]) == ("b", 1)
