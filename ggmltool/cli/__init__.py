"""The command line: `main`, the frame that commands share (options, output, errors), and one file per command.

A command reads its arguments, asks inspect, and gives the answer to a view; it knows no rule of ggml's.
"""
