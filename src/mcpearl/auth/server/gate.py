"""The gate of a protected endpoint: turns the headers of a request into a principal, or refuses.

A verified token is known by its hash until it expires, for at most `recheck` seconds, so most requests
cost one lookup. All others are read and verified. Refusals are logged without the token, and at a
limited rate.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlsplit

from mcpearl.auth.principal import Principal
from mcpearl.auth.server.dpop_proof import NonceNeeded, ProofChecker
from mcpearl.auth.server.jose import MAX_TOKEN
from mcpearl.auth.server.known import KnownTokens
from mcpearl.auth.server.proof_memory import OwnProofs, used_before
from mcpearl.auth.server.refusal_log import RefusalLog
from mcpearl.auth.server.resource_server import METADATA_PATH, ResourceServer
from mcpearl.auth.server.tls import certificate_digest
from mcpearl.auth.server.verifier import TokenRefused, VerifierUnavailable
from mcpearl.auth.server.www_authenticate import Challenges, unavailable
from mcpearl.net.http_server.request import RequestInfo
from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.proofs import ProofStore
from mcpearl.transports.http_server.gate import Refused

_CREDENTIALS = re.compile(rb"(bearer|dpop) +([A-Za-z0-9\-._~+/]+=*)", re.IGNORECASE)
_REFUSED_FOR = 2.0  # seconds during which a refused token is refused again without a check
_SKEW = 60.0  # seconds by which the clocks of machines may differ
_HTTP = {"ws": "http", "wss": "https"}
_HOST = re.compile(rb"[A-Za-z0-9.\-:\[\]_]+")


class TokenGate:
    """Accepts requests with a valid access token. `Server` creates it from its `auth`.

    Args:
        settings: How the server is protected.
        path: Path of the endpoint.
        known_scopes: Returns the scopes that tools, resources and prompts need.
        also: Paths that the gate guards besides the endpoint.
        proof_store: Remembers used proofs for all machines, if there are several.
        nonce_keys: Returns keys that all machines share; the first is used for new nonces.
    """

    def __init__(
        self,
        settings: ResourceServer,
        path: str,
        known_scopes: Callable[[], Iterable[str]] = tuple,
        also: Iterable[str] = (),
        proof_store: ProofStore | None = None,
        nonce_keys: Callable[[], Sequence[bytes]] | None = None,
    ) -> None:
        self._settings = settings
        self._proof_store = proof_store
        self._path = path.rstrip("/")
        # All guarded paths: a WebSocket beside the endpoint is a resource too, unless one was set.
        self._paths = [self._path, *(each.rstrip("/") for each in also)]
        self._known_scopes = known_scopes
        # By the hash of the whole header. Requests with a `_free` token need no further check.
        self._free: KnownTokens[Principal] = KnownTokens(settings.max_known)
        self._verified: KnownTokens[Principal] = KnownTokens(settings.max_known)
        self._refused: KnownTokens[str] = KnownTokens(settings.max_known)
        self._proofs = ProofChecker(
            max_age=settings.dpop_max_age,
            nonces=(nonce_keys or settings.nonce_secrets) if settings.dpop_nonces else None,
            memory=settings.proofs or OwnProofs(settings.dpop_max_remembered),
        )
        self._log = RefusalLog()

    # Called by the endpoint

    def known(self, request: RequestInfo) -> Principal | None:
        """Return the principal of a bearer token that was verified before, or None."""
        given = request.headers.get(b"authorization")
        if given is None or request.query:
            return None
        return self._free.get(sha256(given).digest())

    async def admit(self, request: RequestInfo) -> Principal:
        """Return the principal of a valid token. Raises `Refused`."""
        challenge = self._challenge(request)
        if _has_token(request.query):
            self._log.note("a token in the query string", request)
            raise challenge.malformed("An access token must not be in the URL")
        given = request.headers.get(b"authorization")
        if given is None:
            raise challenge.missing()
        scheme, token = self._credentials(given, challenge)
        key = sha256(given).digest()
        try:
            principal = await self._verify(key, token)
            self._check_certificate(principal, request)
            if scheme == b"dpop":
                await self._check_proof(principal, token, request, challenge)
            elif "jkt" in _bindings(principal):
                raise TokenRefused("it is bound to a key: send it as DPoP, with a proof")
        except TokenRefused as error:
            reason = str(error).replace(token, "…")
            self._log.note(f"the token: {reason}", request)
            raise challenge.invalid(reason) from None
        except VerifierUnavailable as error:
            self._log.note(str(error).replace(token, "…"), request)
            raise unavailable() from None
        if not self._settings.scopes <= principal.scopes:
            self._log.note("the token has too few scopes", request)
            raise challenge.insufficient(self._settings.scopes)
        if not _bindings(principal):
            self._free.put(key, principal, self._good_until(principal))
        return principal

    def insufficient(self, request: RequestInfo, needed: Iterable[str]) -> Refused:
        """Return the refusal of a call that needs more scopes than the token has."""
        self._log.note("the token has too few scopes", request)
        return self._challenge(request).insufficient(self._settings.scopes.union(needed))

    def document(self, request: RequestInfo) -> bytes | None:
        """Return the metadata document if the request is for one of its well-known paths."""
        path, root = request.path, request.root
        if not path.startswith(METADATA_PATH) or not self._published:
            return None
        # A proxy may have removed the root path, or an enclosing application kept it.
        rest = path.removeprefix(METADATA_PATH).rstrip("/")
        for guarded in self._paths:
            if rest in ("", guarded, root + guarded):
                resource = self._resource(request, guarded)
                return self._settings.metadata(resource, self._known_scopes())
        return None

    # URLs

    def _guarded(self, request: RequestInfo) -> str:
        """Return the guarded path of a request; paths of HTTP+SSE belong to the endpoint."""
        path = request.path.rstrip("/")
        return path if path in self._paths else self._path

    def _resource(self, request: RequestInfo, path: str) -> str:
        """Return the URL of the resource at a path: as set, or as the request names it."""
        if self._settings.resource is not None:
            return self._settings.resource
        return f"{_host_of(request)}{quote(request.root + path)}"

    def _address(self, request: RequestInfo) -> str:
        """Return the URL of a request, which may be beside the resource (HTTP+SSE or `/ws`)."""
        path = request.path
        guarded, resource = path.rstrip("/"), self._settings.resource
        if guarded == self._path or (resource is None and guarded in self._paths):
            return self._resource(request, guarded)
        if resource is None:
            return f"{_host_of(request)}{quote(request.root + path)}"
        # Beside the resource that was set, which a proxy may have moved.
        parts = urlsplit(resource)
        return f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix(self._path)}{quote(path)}"

    @property
    def _published(self) -> bool:
        """Whether there is a metadata document, which is useless without authorization servers."""
        return bool(self._settings.authorization_servers)

    def _metadata_url(self, request: RequestInfo) -> str:
        if not self._published:
            return ""
        root = request.root
        if self._settings.resource is not None and not root:
            parts = urlsplit(self._settings.resource)
            return f"{parts.scheme}://{parts.netloc}{METADATA_PATH}{parts.path.rstrip('/')}"
        # If the application is mounted in another one, the root of the host belongs to that one.
        return f"{_host_of(request)}{quote(root)}{METADATA_PATH}{quote(self._guarded(request))}"

    def _challenge(self, request: RequestInfo) -> Challenges:
        tried = request.headers.get(b"authorization", b"")[:5].lower() == b"dpop "
        dpop = tried or self._settings.dpop_required
        return Challenges(self._metadata_url(request), self._settings.scopes, dpop=dpop)

    # Tokens

    def _credentials(self, given: bytes, challenge: Challenges) -> tuple[bytes, str]:
        found = _CREDENTIALS.fullmatch(given)
        if found is None:
            scheme = given.partition(b" ")[0].lower()
            if scheme in (b"bearer", b"dpop"):
                raise challenge.malformed("The Authorization header does not carry one token")
            raise challenge.missing()
        scheme = found[1].lower()
        if len(found[2]) > MAX_TOKEN:
            raise challenge.malformed(f"The access token is longer than {MAX_TOKEN} characters")
        if scheme == b"bearer" and self._settings.dpop_required:
            raise challenge.missing()
        return scheme, found[2].decode("ascii")

    async def _verify(self, key: bytes, token: str) -> Principal:
        """Ask the verifier, unless it has decided about this token recently."""
        known = self._verified.get(key)
        if known is not None:
            return known
        reason = self._refused.get(key)
        if reason is not None:
            raise TokenRefused(reason)
        try:
            principal = await self._ask(token)
        except TokenRefused as error:
            self._refused.put(key, str(error), clock.monotonic() + _REFUSED_FOR)
            raise
        principal = principal.with_scopes(self._settings.widened(principal.scopes))
        self._verified.put(key, principal, self._good_until(principal))
        return principal

    async def _ask(self, token: str) -> Principal:
        verifier = self._settings.verifier
        try:
            principal: object = await verifier.verify(token)
        except (TokenRefused, VerifierUnavailable):
            raise
        except Exception as error:
            # Without its message and traceback, which may contain the token.
            said = f"raised {type(error).__name__} in {_place(error)}"
        else:
            if principal is None:
                raise TokenRefused("it is not known")
            if isinstance(principal, Principal) and principal.subject:
                return principal
            said = f"returned a {type(principal).__name__}, not a `Principal` with a subject"
        raise VerifierUnavailable(f"`{type(verifier).__name__}.verify` {said}")

    def _good_until(self, principal: Principal) -> float:
        left, longest = principal.time_left, self._settings.recheck
        return clock.monotonic() + (longest if left is None else min(left, longest))

    def _check_certificate(self, principal: Principal, request: RequestInfo) -> None:
        """Refuse a token that is bound to another certificate (RFC 8705)."""
        bound = _bindings(principal).get("x5t#S256")
        if bound is not None and bound != certificate_digest(request.peer.certificate):
            raise TokenRefused("it is bound to a client certificate that was not shown")

    async def _check_proof(
        self,
        principal: Principal,
        token: str,
        request: RequestInfo,
        challenge: Challenges,
    ) -> None:
        """Refuse a token bound to a key unless the request proves possession of the key."""
        bound = _bindings(principal).get("jkt")
        if not isinstance(bound, str):
            raise TokenRefused("it is not bound to a key: send it as Bearer")
        if request.peer.passed_on:
            return  # the worker that received the request has checked the proof, which is valid once
        proof, url = request.headers.get(b"dpop"), self._address(request)
        try:
            id, until = self._proofs.check(proof, request.method, url, token, bound)
            await self._note_everywhere(bound, id, until)
        except NonceNeeded as error:
            raise challenge.needs_nonce(str(error), self._proofs.nonce()) from None
        except TokenRefused as error:
            self._log.note(str(error), request)
            raise challenge.bad_proof(str(error)) from None

    async def _note_everywhere(self, thumbprint: str, id: str, until: float) -> None:
        """Remember a proof for all machines, if there are several. Raises `TokenRefused`."""
        store = self._proof_store
        if store is None:
            return
        try:
            seconds = max(0.0, until - clock.now()) + _SKEW
            if not await store.note(thumbprint, id, seconds):
                raise used_before()
        except StoreUnavailable as error:
            raise VerifierUnavailable(f"used proofs cannot be looked up: {error}") from None


def _place(error: Exception) -> str:
    """Return the name of the function that raised."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return "?" if place is None else place.tb_frame.f_code.co_qualname


def _bindings(principal: Principal) -> Mapping[str, object]:
    """Return what a token is bound to (RFC 7800): a key, a certificate, usually nothing."""
    bound = principal.claims.get("cnf")
    return bound if isinstance(bound, dict) else {}


def _has_token(query: bytes) -> bool:
    if not query:
        return False
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=None)
    return any(name.strip().lower() == "access_token" for name, _ in pairs)


def _host_of(request: RequestInfo) -> str:
    """Return scheme and host of a request; an invalid host is replaced, never echoed.

    A WebSocket begins as an HTTP request, so its URL is the HTTP one (RFC 9449, `htu`).
    """
    named = request.headers.get(b"host", b"")
    host = named.decode("ascii") if _HOST.fullmatch(named) else "localhost"
    scheme = request.peer.scheme
    return f"{_HTTP.get(scheme, scheme)}://{host}"
