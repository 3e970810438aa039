"""Scenarios as files: their bytes, YAML, JSON, records, and the places in them."""
