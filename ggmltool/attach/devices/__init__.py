"""What a program's backends, devices and buffer types say of themselves and of a graph."""
