"""What there is without a graph: samples, pages of the manual, schemas."""
