"""The engine: tensors, graphs, buffers, allocators and the scheduler, decided and named as in ggml.

It knows nothing of files, terminals and formats; numpy only where values are computed.
"""
