"""The debugger on a whole screen of a terminal."""
