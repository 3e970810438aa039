"""ggml 0.20.2, of August 2026: the shared engine as it is. Other releases are like it, or like one that is."""
