"""Receipts: a tamper-evident record of every call, written by servers and clients."""
