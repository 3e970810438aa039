"""Plans: splits, assignments, copies, pictures of the graph."""
