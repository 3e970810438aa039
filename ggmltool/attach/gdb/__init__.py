"""gdb: started by us or by the user, what runs inside, and the way to it."""
