"""What a verified token costs: the same calls with a JWT and without one, in alternating rounds.

The issuer is a server in this process that has one key. The token is verified against it once and
remembered from then on, as for any client that calls more than once.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from bench import wrk
from bench.environments import SERVERS
from bench.http import MODERN_CALLS, Options, calls_per_second
from bench.http_messages import Request
from bench.http_probe import Probe
from bench.http_server import serving
from bench.peers import MCPEARL, interpreter
from bench.progress import say
from bench.results import Results, WrongAnswer

AUDIENCE = "https://bench.example/mcp"
LIFETIME_SECONDS = 3600
ALGORITHM = "ES256"


def run(results: Results, *, quick: bool) -> None:
    """Measure with and without a token, a round each."""
    if not wrk.is_there():
        results.missing.append(f"calls with a token: {wrk.MISSING}")
        return
    rounds, seconds = (1, 1) if quick else (5, 3)
    command = [interpreter(MCPEARL), str(SERVERS / "mcpearl_auth.py")]
    with issuing() as (issuer, token):
        options = (f"issuer={issuer}", f"audience={AUDIENCE}")
        calls = replace(
            MODERN_CALLS,
            request=lambda _, number: signed(MODERN_CALLS.request(None, number), token),
        )
        for number in range(1, rounds + 1):
            say(f"auth: calls with and without a token, round {number} of {rounds}")
            with results.noting("auth"):
                check_closed(command, options)
                with_token = calls_per_second(calls, command, options, seconds)
                results.add_round("http_jwt", "mcpearl", with_token)
                without = calls_per_second(MODERN_CALLS, command, (), seconds)
                results.add_round("http_jwt", "open", without)


def signed(request: Request, token: str) -> Request:
    """The request with a token."""
    return Request(request.headers | {"Authorization": f"Bearer {token}"}, request.body)


def check_closed(command: list[str], options: Options) -> None:
    """Raise unless the server refuses a call without a token."""
    with serving(command, *options) as server, Probe(server.port) as probe:
        try:
            probe.ask(MODERN_CALLS.request(None, 1))
        except WrongAnswer as refusal:
            if "status 401" in str(refusal):
                return
            raise
    raise WrongAnswer("a call without a token was answered")


@contextmanager
def issuing() -> Iterator[tuple[str, str]]:
    """Run an issuer that publishes its key; yield its address and a token it has issued."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    keys = json.dumps(
        {"keys": [public | {"kid": "bench", "alg": ALGORITHM, "use": "sig"}]}
    ).encode()

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(keys)))
            self.end_headers()
            self.wfile.write(keys)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        issuer = f"http://127.0.0.1:{front.server_port}"
        now = int(time.time())
        claims = {
            "iss": issuer,
            "aud": AUDIENCE,
            "sub": "bench",
            "iat": now,
            "exp": now + LIFETIME_SECONDS,
        }
        yield issuer, jwt.encode(claims, key, ALGORITHM, headers={"kid": "bench", "typ": "at+jwt"})
        front.shutdown()
