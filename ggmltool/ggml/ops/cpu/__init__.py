"""What ggml's CPU backend does: what its kernels refuse, the memory that they take, their functions and tables."""
