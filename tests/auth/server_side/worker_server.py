"""A protected server with several workers, run as a process: `worker_server.py PORT ISSUER`."""

import sys

from mcpearl.auth import JWTVerifier, ResourceServer
from tests.auth.server_side.issuer import AUDIENCE
from tests.auth.server_side.protected import make_app

if __name__ == "__main__":
    port, issuer = int(sys.argv[1]), sys.argv[2]
    verifier = JWTVerifier(issuer=issuer, audience=AUDIENCE, jwks_url=f"{issuer}/keys")
    app = make_app(auth=ResourceServer(verifier, dpop_nonces=True))
    app.run("http", port=port, workers=3)
