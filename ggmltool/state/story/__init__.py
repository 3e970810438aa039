"""What happened in a run, in order: every decision with its reason, and the state at each of them."""
