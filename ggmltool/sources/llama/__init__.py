"""Graphs from llama.cpp: its library, bound through ctypes in a child process, builds the graph of a model."""
