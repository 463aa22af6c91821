"""Parses `WWW-Authenticate`: what a server demands after it refused a request.

The header is a list of challenges, each a scheme with parameters (RFC 9110, section 11.6.1). Parsing
never fails; text that is not a challenge is skipped.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))')
_SCHEME = re.compile(rf"({_TOKEN})(?=[ \t,]|$)")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3
_GAP = re.compile(r"[ \t,]+")
_MAX_SCOPES = 200


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
    """Split a header into its challenges."""
    challenges: list[Challenge] = []
    position = 0
    while position < len(header):
        if gap := _GAP.match(header, position):
            position = gap.end()
        elif (parameter := _PARAMETER.match(header, position)) and challenges:
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            challenges[-1].parameters.setdefault(name.lower(), value)
            position = parameter.end()
        elif scheme := _SCHEME.match(header, position):
            challenges.append(Challenge(scheme[1].lower(), {}))
            position = scheme.end()
        else:
            position += 1
    return challenges


def scopes_in(text: str | None) -> tuple[str, ...]:
    """Split a list of scopes, without duplicates and invalid ones."""
    found = dict.fromkeys(_SCOPE.findall(text or ""))
    return tuple(found)[:_MAX_SCOPES]
