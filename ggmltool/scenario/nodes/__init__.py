"""Tensors and nodes of a scenario, in short form, in long form, and as they were captured."""
