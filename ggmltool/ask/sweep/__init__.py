"""`sweep`: a captured model placed in many ways."""
