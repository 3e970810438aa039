"""The sample graphs that ship with ggmltool."""

from __future__ import annotations

from pathlib import Path

DEFAULT = "matmul.yaml"
"""What commands show when nobody names a scenario."""


def samples_folder() -> Path:
    """Where the samples lie: inside an installed package, or at the root of a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "sample_graphs"
    return installed if installed.is_dir() else package.parent / "sample_graphs"


def samples() -> list[Path]:
    """Every sample, by name."""
    return sorted(p for p in samples_folder().glob("*.*") if p.name.removesuffix(".gz").endswith((".yaml", ".json")))


def find_sample(name: str) -> Path | None:
    """The sample of this name (without endings), None where there is none."""
    return next((path for path in samples() if sample_name(path) == name), None)


def sample_name(path: Path) -> str:
    """What a sample is called: its file's name without the endings.

    >>> sample_name(Path("gemma-3-270m.json.gz"))
    'gemma-3-270m'
    """
    return path.name.removesuffix(".gz").rpartition(".")[0]
