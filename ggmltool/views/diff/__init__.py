"""Differences: two plans side by side, and a plan beside that of the real library."""
