"""A history that is walked through, forward and back, as gdb walks through a program."""
