"""Allocators, each in terms of the one before: linear, best fit, virtual buffers of chunks, of graphs."""
