"""Fuzzing of everything that reads what strangers send.

A target is a function that takes bytes and raises when a promise is broken; `targets` holds them. The
tests run each on its corpus and on some hundred mutations of it, the same every time. `make fuzz` looks
for new inputs, guided by coverage. An input that breaks a promise is made small and saved; once the cause
is repaired, it becomes part of the corpus.
"""
