"""Memory: buffers, the allocator's tables, structs, one tensor and its lifetime."""
