"""Authenticates clients by their TLS certificate alone, without tokens."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from mcpearl.auth.principal import Principal
from mcpearl.auth.server.known import KnownTokens
from mcpearl.auth.server.refusal_log import RefusalLog
from mcpearl.auth.server.tls import thumbprint
from mcpearl.net.http_server.request import RequestInfo
from mcpearl.runtime import clock
from mcpearl.transports.http_server.gate import Gate, Refused

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_RECHECK = 60.0  # seconds


class ClientCertificates(Gate):
    """Accepts clients that presented a certificate the server trusts.

    The subject is the certificate's first URI (as in SPIFFE), or else its name in the form
    `CN=worker,O=Example`.

    Args:
        scopes: The scopes of each subject. Other subjects can use only what needs no scopes.

    >>> certificates = ClientCertificates(scopes={"CN=worker": ["notes:write"]})
    >>> app.run("http", auth=certificates, certificate=…, key=…, client_ca="clients.pem")
    """

    def __init__(self, scopes: Mapping[str, Iterable[str]] | None = None) -> None:
        self._scopes = {name: frozenset(given) for name, given in (scopes or {}).items()}
        self._known: KnownTokens[Principal] = KnownTokens(10_000)
        self._log = RefusalLog()

    def known(self, request: RequestInfo) -> Principal | None:
        pem = request.peer.certificate
        return None if pem is None else self._known.get(sha256(pem.encode()).digest())

    async def admit(self, request: RequestInfo) -> Principal:
        pem = request.peer.certificate
        if pem is None:
            self._log.note("no client certificate", request)
            raise Refused(401, "This server needs a client certificate")
        from cryptography import x509

        principal = self._read(x509.load_pem_x509_certificate(pem.encode()))
        left = principal.time_left
        if not left:
            self._log.note("the client certificate has expired", request)
            raise Refused(401, "The client certificate has expired")
        until = clock.monotonic() + min(left, _RECHECK)
        self._known.put(sha256(pem.encode()).digest(), principal, until)
        return principal

    def _read(self, certificate: "Certificate") -> Principal:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            uris, names = [], []
        else:
            uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
            names = extension.value.get_values_for_type(x509.DNSName)
        subject = uris[0] if uris else certificate.subject.rfc4514_string()
        return Principal(
            subject,
            issuer=certificate.issuer.rfc4514_string(),
            scopes=self._scopes.get(subject, ()),
            claims={
                "x5t#S256": thumbprint(certificate.public_bytes(Encoding.DER)),
                "name": certificate.subject.rfc4514_string(),
                "uris": uris,
                "dns": names,
            },
            expires=certificate.not_valid_after_utc.timestamp(),
        )

    def insufficient(self, request: RequestInfo, needed: Iterable[str]) -> Refused:
        self._log.note("the client has too few scopes", request)
        return Refused(403, f"This needs the scopes: {' '.join(sorted(needed))}")

    def document(self, request: RequestInfo) -> bytes | None:
        return None  # certificates need no metadata
