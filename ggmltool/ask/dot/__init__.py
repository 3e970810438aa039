"""Pictures of a graph for Graphviz: as ggml writes them, by splits, with repeated layers folded."""
