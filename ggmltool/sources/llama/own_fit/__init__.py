"""llama.cpp's own choice of what goes where: its `--fit`, step by step, on what a placement here needs."""
