"""A running program or its core dump: what its memory holds, beside the plan of its graph, and why it died."""
