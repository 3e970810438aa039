"""The releases of ggml whose decisions can be made: table.py lists them, a folder each has what of it differs."""
