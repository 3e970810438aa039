"""The operations of ggml: for each family one file with the constructors' rules beside the kernels.

Importing this package registers the rules; the kernels (which need numpy) are registered by `load_kernels`.
"""
