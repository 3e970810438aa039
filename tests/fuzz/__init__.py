"""Mutated scenarios, GGUF headers and logs: whatever comes in, only documented exceptions come out."""
