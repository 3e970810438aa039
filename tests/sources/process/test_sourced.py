"""The file that gdb is to source is nobody else's to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.program import gdb_file


def test_the_file_and_its_folder_are_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = gdb_file()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ggmltool").mkdir()
    (tmp_path / "ggmltool").chmod(0o777)
    with pytest.raises(AttachError, match="others can write there what gdb would run"):
        gdb_file()
    assert not list((tmp_path / "ggmltool").iterdir())


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    theirs = tmp_path / "theirs"
    theirs.write_text("as it was")
    path = gdb_file()
    path.unlink()
    path.symlink_to(theirs)
    assert gdb_file() == path
    assert not path.is_symlink()
    assert theirs.read_text() == "as it was"
