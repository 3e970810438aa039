"""How a program ended: its message, the tensors that it is about, the graph that it was at."""
