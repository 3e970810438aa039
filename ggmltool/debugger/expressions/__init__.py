"""Expressions in C over the state of a run, as a debugger of C takes them: parsed, never run as Python."""
