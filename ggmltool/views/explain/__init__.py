"""Explanations: why a node, a split, a reallocation, a message; limits; what devices support."""
