"""Values of tensors, read while a program computes."""
