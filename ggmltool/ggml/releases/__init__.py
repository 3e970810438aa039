"""What differs in a ggml that is not the newest: a folder for each, over the shared parts."""
