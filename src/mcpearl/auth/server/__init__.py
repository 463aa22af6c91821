"""The server's side: verifiers, keys, DPoP proofs, and the gate in front of an endpoint."""
