"""What a scheduler holds, whoever reads it: of a program's memory, and at every point of a run."""
