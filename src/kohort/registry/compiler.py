"""Protobuf schemas from their text, by protobuf's own compiler in a process of its own. Asks no registry."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kohort.registry.errors import RegistryError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

SECONDS = 60


def compile_text(files: Mapping[str, str], main: str) -> list[FileDescriptorProto]:
    """`main` and all that it imports, from `files` by name; google/protobuf/*.proto are the compiler's own."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if importlib.util.find_spec("grpc_tools") is None:
        raise RegistryError(
            f"{main}: the registry gives Protobuf schemas as text only; to compile them: pip install 'kohort[protobuf]'"
        )
    with tempfile.TemporaryDirectory(prefix="kohort-proto-") as folder:
        for name, text in files.items():
            path = _within(Path(folder), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(folder, "descriptors")
        _run([f"--proto_path={folder}", "--include_imports", f"--descriptor_set_out={out}", main], folder)
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _within(folder: Path, name: str) -> Path:
    """Names are those of a registry, whose users are not to write elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".proto" or "\\" in name:
        raise RegistryError(f"a schema is imported as {name!r}, which is not the name of a .proto file")
    return folder / path


def _run(arguments: list[str], folder: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryError(f"the Protobuf compiler does not run: {error}") from None
    if done.returncode:
        said = done.stderr.replace(f"{folder}/", "").strip()
        raise RegistryError(f"a Protobuf schema cannot be compiled: {said or f'exit {done.returncode}'}")
