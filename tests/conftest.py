"""What all tests share: a certificate, the event loop, and a clock that can be moved."""

import asyncio
import datetime
import gc
import ipaddress
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import settings

from mcpearl.testing.clock import MovableClock
from tests.redis_server import remove_shared

# Signs certificates and handshakes. A strict verifier, as from Python 3.13, asks for it in a root.
_SIGNS = x509.KeyUsage(True, False, False, False, False, True, True, False, False)

# How long an example takes says more about the machine than about the code.
settings.register_profile("mcpearl", deadline=None)
settings.load_profile("mcpearl")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep captured output that is not valid text from breaking the report itself."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_configure() -> None:
    """Let signals be what they are on a terminal, also in a run that a shell has put into the background.

    Such a shell ignores them for its children, and so would the processes that tests start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection() -> None:
    """Look for no garbage while tests are collected: nearly all that is made then stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """End the servers that tests shared."""
    remove_shared()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcpearl test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_SIGNS, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


Loops = dict[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Loops:
    """Run the tests of a file on asyncio's loop, or on those its `LOOPS` names.

    A test that moves the clock runs on the one loop whose time can be moved.
    """
    if "mcp_clock" in getattr(item, "fixturenames", ()):
        return {"asyncio": asyncio.SelectorEventLoop}
    return getattr(item.module, "LOOPS", {"asyncio": asyncio.SelectorEventLoop})


@pytest.fixture
def clock(mcp_clock: MovableClock) -> MovableClock:
    """Time that stands under the test's control: `await clock.advance(60)`."""
    return mcp_clock
