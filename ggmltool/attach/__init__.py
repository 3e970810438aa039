"""A running program that uses ggml, or its core dump, looked at through gdb.

`inside.py` is loaded into gdb and answers simple questions: bytes, symbols, calls, breakpoints. All that is known of
ggml stays on this side of the `link`.
"""
