"""A scenario on the engine: its devices, contexts and steps."""
