"""ggml 0.20.2, of August 2026: the shared engine as it is. What another release's folder lacks is taken from here."""
