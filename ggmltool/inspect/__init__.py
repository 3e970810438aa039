"""What is known after a step: a scenario goes in, the engine does it, inspect finds out what it means.

It answers in records, which views show and which Python gets as they are; it prints nothing and knows no terminal.
"""
