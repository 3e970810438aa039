"""Placements of a model on devices."""
