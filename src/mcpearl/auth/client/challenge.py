"""Parses `WWW-Authenticate`: what a server demands after it refused a request.

The header is a list of challenges, each a scheme with parameters (RFC 9110, section 11.6.1). Nothing
a server writes there makes reading fail: everything that is not a challenge is skipped, in time linear
in the header.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

# All quantifiers are possessive: what was matched once is not matched another way.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++")
_VALUE = re.compile(
    r'[ \t]*+=[ \t]*+(?:"((?:[^"\\]++|\\.)*+)"|([!#$%&\'*+\-.^_`|~0-9A-Za-z]++))', re.DOTALL
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3
_GAP = re.compile(r"[ \t,]+")
_MAX_SCOPES = 200
_MAX_HEADER = 8 * 1024  # characters; what follows is not read


class Challenge(NamedTuple):
    """One way of authenticating that the server accepts."""

    scheme: str
    """In lower case."""
    parameters: dict[str, str]


class Demand(NamedTuple):
    """The demands of a refusal that concern OAuth."""

    schemes: frozenset[str] = frozenset()
    error: str | None = None
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None


def read_demand(headers: Mapping[str, str]) -> Demand:
    """Combine the challenges of a response."""
    challenges = parse_challenges(headers.get("www-authenticate", ""))
    said: dict[str, str] = {}
    for challenge in challenges:
        if challenge.scheme in ("bearer", "dpop"):
            said = {**challenge.parameters, **said}
    return Demand(
        frozenset(challenge.scheme for challenge in challenges),
        said.get("error"),
        scopes_in(said.get("scope")),
        said.get("resource_metadata"),
    )


def parse_challenges(header: str) -> list[Challenge]:
    """Read a header into its challenges."""
    header = header[:_MAX_HEADER]
    challenges: list[Challenge] = []
    position = 0
    while position < len(header):
        if gap := _GAP.match(header, position):
            position = gap.end()
        elif token := _TOKEN.match(header, position):
            position = _take(header, token, challenges)
        else:
            position += 1
    return challenges


def _take(header: str, token: re.Match[str], challenges: list[Challenge]) -> int:
    """Read what begins with a token, a parameter or a scheme; return where it ends."""
    name, end = token[0].lower(), token.end()
    value = _VALUE.match(header, end)
    if value is not None and challenges:
        quoted, plain = value.groups()
        text = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        challenges[-1].parameters.setdefault(name, text)
        return value.end()
    if end == len(header) or header[end] in " \t,":
        challenges.append(Challenge(name, {}))
    return end


def scopes_in(text: str | None) -> tuple[str, ...]:
    """Split a list of scopes, without duplicates and invalid ones."""
    found = dict.fromkeys(_SCOPE.findall(text or ""))
    return tuple(found)[:_MAX_SCOPES]
