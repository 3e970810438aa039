"""Expressions of C over a program that is looked at: parsed, evaluated in a scope, printed as gdb prints them."""
