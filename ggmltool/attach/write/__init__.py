"""A program's graph as a scenario, and what was decided of it as a plan."""
