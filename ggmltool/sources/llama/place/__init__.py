"""Where llama.cpp would put a captured model on other devices, and what it would take there."""
