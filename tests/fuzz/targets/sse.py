"""Server-sent events: the same events however the bytes are cut, none over the bound."""

from mcpearl.net.sse import EventReader, OversizedEvent, ServerSentEvent, format_event
from tests.fuzz.target import Target, cuts, require

MAX = 48


def check(data: bytes) -> None:
    expected = None
    for parts in cuts(data):
        reader = EventReader(MAX)
        events = [event for part in parts for event in reader.feed(part)]
        seen = (events, reader.last_id, reader.retry)
        expected = seen if expected is None else expected
        require(seen == expected, "a cut changes the events")
        for event in events:
            within = isinstance(event, OversizedEvent) or len(event.data) <= MAX
            require(within, "an event is over the bound")
        require(reader.retry is None or 0 <= reader.retry < 10**9, "`retry` is over the bound")
        reader.restart()
        again = reader.feed(b"\xef\xbb\xbf" + format_event(b"1", "7", "x"))
        require(again == [ServerSentEvent(b"1", "x", "7")], "the next stream is not read")


def read(data: bytes) -> None:
    EventReader(1024 * 1024).feed(data)


TARGET = Target(
    "sse", check, (b"data: ", b"id: ", b"event: ", b"retry: ", b": ", b"\r", b"\xef\xbb\xbf"), read
)
