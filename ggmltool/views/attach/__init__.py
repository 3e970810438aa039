"""What was seen in a running program, as text."""
