"""The search of `fit`: the best of all ways to put a model on devices, each planned exactly or ruled out by a bound."""
