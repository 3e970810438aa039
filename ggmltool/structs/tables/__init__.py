"""The structs, enums and type names of ggml: a file for each ggml whose structs differ.

`like` is the ggml that a file's differs from, `since` the first version (or day, before there were versions) that has
these structs, `exports` the functions that a library of that version must have for it. `tests/structs/record.py`
records what gdb says of a source.
"""
