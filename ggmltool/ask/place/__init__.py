"""`place`: where llama.cpp puts a captured model, and whether it fits."""
