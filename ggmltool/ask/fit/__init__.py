"""`fit`: the best way to put a model on devices."""
