"""Runs: steps, calls, values as they are computed and compared."""
