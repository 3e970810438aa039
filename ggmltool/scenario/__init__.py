"""The file format: reading a scenario, short forms, data, and building the engine's objects from it.

A `ScenarioSpec` is a file with every name resolved; a `Scenario` can be planned and run.
"""
