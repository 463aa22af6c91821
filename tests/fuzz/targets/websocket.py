"""WebSocket frames, also compressed, as a server and as a client read them.

The same messages however the bytes are cut; none over the bound; an error ends the connection with a
close frame and raises nothing.
"""

from websockets.client import ClientProtocol
from websockets.exceptions import PayloadTooBig
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from mcpearl.protocol.framing import FrameError
from mcpearl.transports.websocket.deflate import FREE, MAX_RATIO, ClientDeflate, ServerDeflate
from mcpearl.transports.websocket.frames import MessageFramer
from tests.fuzz.target import Target, cuts, require

MAX = 4096


def _server() -> MessageFramer:
    core = ServerProtocol(extensions=[ServerDeflate()], max_size=MAX, state=State.OPEN)
    _, deflate = ServerDeflate().process_request_params([], [])
    core.extensions = [deflate]
    return MessageFramer(core)


def _client() -> MessageFramer:
    core = ClientProtocol(parse_uri("ws://127.0.0.1/"), max_size=MAX, state=State.OPEN)
    agreed = [("server_no_context_takeover", None), ("client_no_context_takeover", None)]
    core.extensions = [ClientDeflate().process_response_params(agreed, [])]
    framer = MessageFramer()
    framer.core = core
    return framer


def check(data: bytes) -> None:
    for make in (_server, _client):
        expected = None
        for parts in cuts(data):
            framer = make()
            messages = []
            for part in parts:
                if framer.core.state is not State.OPEN:
                    break  # the rest is not read
                messages += framer.feed(part)
            for message in messages:
                within = isinstance(message, FrameError) or len(message) <= MAX
                require(within, "a message is over the bound")
            sent = framer.core.data_to_send()
            error = framer.core.parser_exc
            require(error is None or sent, "an error without a close frame")
            if isinstance(error, PayloadTooBig):
                error = None  # which of two bounds is named depends on the cut
            seen = (messages, type(error), framer.core.close_rcvd)
            expected = seen if expected is None else expected
            require(seen == expected, "a cut changes the messages")
    require(max(FREE, MAX_RATIO) > 0, "there is no bound")


def read(data: bytes) -> None:
    for make in (_server, _client):
        make().feed(data)


WORDS = (
    b"\x81\x80\0\0\0\0",
    b"\xc1\x83\0\0\0\0",
    b"\x01\x81\0\0\0\0a",
    b"\x80\x81\0\0\0\0b",
    b"\x82\x02ab",
    b"\x81\x02{}",
    b"\xc1\x05\xab\x56\x4a\x04\x00",
    b"\x88\x02\x03\xe8",
    b"\x89\x00",
    b"\x8a\x80\0\0\0\0",
    b"\x81\x7e\x01\x00",
    b"\x81\x7f\0\0\0\0\0\0\x10\0",
)
TARGET = Target("websocket", check, WORDS, read)
