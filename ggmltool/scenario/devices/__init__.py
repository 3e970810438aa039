"""Devices as scenarios and command lines name them: backends, known hardware, what they support, how fast they are."""
