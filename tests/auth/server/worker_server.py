"""A protected server with several workers, run as a process.

`worker_server.py PORT ISSUER` for tokens, `worker_server.py PORT CERTIFICATE KEY CA` for certificates.
"""

import os
import sys

from mcpearl.auth import ClientCertificates, JWTVerifier, ResourceServer
from tests.auth.server.issuer import AUDIENCE
from tests.auth.server.protected import make_app

if __name__ == "__main__":
    port, *given = sys.argv[1:]
    if len(given) == 1:
        (issuer,) = given
        verifier = JWTVerifier(issuer=issuer, audience=AUDIENCE, jwks_url=f"{issuer}/keys")
        auth, options = ResourceServer(verifier, dpop_nonces=True), {}
    else:
        auth = ClientCertificates(scopes={"CN=worker": ["notes:write"]})
        options = dict(zip(("certificate", "key", "client_ca"), given, strict=True))
    app = make_app(auth=auth)

    @app.tool
    def process() -> int:
        """Say which worker this is."""
        return os.getpid()

    app.run("http", port=int(port), workers=3, **options)
