"""The real library of a release as judge: runs a scenario on ggml itself and gives back the same plans."""

from __future__ import annotations

from ggmltool.oracle.fork import ChildError
from ggmltool.oracle.lib import OracleUnavailable, load
from ggmltool.oracle.worker import OracleRun, run, run_many, run_on

__all__ = ["ChildError", "OracleRun", "OracleUnavailable", "load", "run", "run_many", "run_on"]
