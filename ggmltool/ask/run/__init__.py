"""`run`: the steps of a scenario, and the values that come out."""
