"""Mutated scenarios, records, GGUF headers, logs, sessions: whatever comes in, only documented exceptions come out."""
