"""A model from its header: what a GGUF file or a folder of safetensors says of its weights without having them."""
