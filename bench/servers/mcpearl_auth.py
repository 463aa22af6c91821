"""The HTTP server under measure, with authorization or without.

``python mcpearl_auth.py <port> [issuer=… audience=…]``
"""

import sys

from mcpearl_server import app

from mcpearl import auth

if __name__ == "__main__":
    given = dict(option.split("=", 1) for option in sys.argv[2:])
    options = {}
    if given:
        options["auth"] = auth.JWTVerifier(**given, jwks_url=f"{given['issuer']}/jwks")
    app.run("http", port=int(sys.argv[1]), **options)
