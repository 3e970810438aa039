"""What was seen in a running program: with names, and beside the plan of the same scenario."""
