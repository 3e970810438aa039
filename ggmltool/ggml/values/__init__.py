"""The values of tensors: their memory as arrays, types and blocks, copies between buffers, products."""
