"""Letting in: verifiers, keys, proofs and the gate."""
