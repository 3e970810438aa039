"""`plan`: devices, splits, copies and buffers on one screen, and the whole plan as JSON."""
