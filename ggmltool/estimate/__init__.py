"""How long a plan takes: the work of its nodes, the rates of devices, and the seconds that come of both."""
