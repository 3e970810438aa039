"""Two plans: which tensor is which, what differs, and which rule of ggml makes the difference."""
