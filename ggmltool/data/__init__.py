"""Reference data as TOML, read when it is first asked for."""
