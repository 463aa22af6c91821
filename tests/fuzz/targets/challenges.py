"""`WWW-Authenticate`: nothing raises, and what our server writes is read as it was meant."""

from mcpearl.auth.client.challenge import parse_challenges, read_demand
from mcpearl.auth.server.www_authenticate import Challenges
from tests.fuzz.target import Target, require


def check(data: bytes) -> None:
    header = data.decode("latin-1")
    for challenge in parse_challenges(header):
        require(challenge.scheme and challenge.scheme == challenge.scheme.lower(), "a scheme")
        require(all(name and name == name.lower() for name in challenge.parameters), "a parameter")
    demand = read_demand({"www-authenticate": header})
    require(len(demand.scopes) <= 200, "more scopes than allowed")
    require(len(set(demand.scopes)) == len(demand.scopes), "a scope twice")
    for scope in demand.scopes:
        require(scope.isascii() and not set(scope) & set(' "\\'), "what is not a scope")
    _round_trip(header)


def _round_trip(text: str) -> None:
    """What a server writes about a reason of a stranger's choice, a client reads."""
    refused = Challenges("https://x.example/m", ["a", "b"], dpop=False).invalid(text)
    headers = {name.decode(): value.decode("ascii") for name, value in refused.headers}
    require(
        all(0x20 <= ord(each) < 0x7F for each in headers["www-authenticate"]), "a header breaks"
    )
    demand = read_demand(headers)
    require(demand.error == "invalid_token", "the reason changed the error")
    require(demand.scopes == ("a", "b"), "the reason changed the scopes")
    require(demand.resource_metadata == "https://x.example/m", "the reason changed the address")


def read(data: bytes) -> None:
    read_demand({"www-authenticate": data.decode("latin-1")})


WORDS = (b"Bearer ", b"DPoP ", b'scope="', b'error="', b"resource_metadata=", b'\\"', b", ", b"=")
TARGET = Target("challenges", check, WORDS, read)
