"""`python -m ggmltool`."""

from __future__ import annotations

from ggmltool.cli.main import main

if __name__ == "__main__":
    main()
