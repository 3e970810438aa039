"""`verify`: the same scenario on the real library, and what differs."""
