"""Reference: devices, ops, types, samples, the manual."""
