"""Graphs as llama.cpp builds them: its library is asked in a process of its own."""
