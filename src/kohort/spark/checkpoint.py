"""What a query's checkpoint says is finished: Spark's commit log, read where the user has said where it is.

Spark tells a source that a batch is durable only when it plans the next one. The commit log has it at once.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from kohort.spark.offsets import StreamOffset

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_OFFSETS, _COMMITS, _DELIVERY = "offsets", "commits", "kohort-delivery"
_NOTICES, _PLANNED, _METADATA = "kohort-sources", "kohort-planned", "metadata"


def last_finished(location: str, query: str) -> StreamOffset | None:
    """Where the last finished batch ended in the source that is `query`; None where no batch has finished yet."""
    files, root = _place(location)
    number = _last_number(files, f"{root}/{_COMMITS}")
    return None if number is None else batch_end(location, number, query)


def batch_end(location: str, number: int, query: str) -> StreamOffset | None:
    """Where a batch ends in the source that is `query`; None where it is no source of that batch."""
    files, root = _place(location)
    with files.open_input_stream(f"{root}/{_OFFSETS}/{number}") as stream:
        lines = stream.read().decode().splitlines()
    return next((end for line in lines if (end := _of(line, query)) is not None), None)


def _place(location: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    if location.startswith(("s3a://", "s3n://")):
        location = "s3" + location[3:]
    if "://" in location or location.startswith("file:"):
        uri = location if not location.startswith("file:/") or "://" in location else f"file://{location[5:]}"
        files, root = fs.FileSystem.from_uri(uri)
        return files, root.rstrip("/")
    return fs.LocalFileSystem(), location.rstrip("/")


def _last_number(files: FileSystem, folder: str) -> int | None:
    from pyarrow import fs

    entries = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return max((int(entry.base_name) for entry in entries if entry.base_name.isdigit()), default=None)


def _of(line: str, query: str) -> StreamOffset | None:
    """A batch's file has a line for each source of the query, and some that are no source's."""
    with contextlib.suppress(ValueError):
        value: Any = json.loads(line)
        if isinstance(value, dict) and value.get("query") == query:
            return StreamOffset.from_json(value)
    return None


# -- what sources tell the sink ---------------------------------------------------------------------------------------


def put_notice(location: str, query: str, text: str) -> None:
    """Whole, or not at all."""
    files, root = _place(location)
    files.create_dir(f"{root}/{_NOTICES}", recursive=True)
    with files.open_output_stream(f"{root}/{_NOTICES}/.{query}") as stream:
        stream.write(text.encode())
    files.move(f"{root}/{_NOTICES}/.{query}", f"{root}/{_NOTICES}/{query}")


def notices(location: str) -> list[str]:
    from pyarrow import fs

    files, root = _place(location)
    entries = files.get_file_info(fs.FileSelector(f"{root}/{_NOTICES}", allow_not_found=True))
    found = []
    for entry in entries:
        if not entry.base_name.startswith("."):
            with files.open_input_stream(entry.path) as stream:
                found.append(stream.read().decode())
    return found


# -- the sink's delivery ---------------------------------------------------------------------------------------------


def note_exactly_once(location: str) -> None:
    """Beside Spark's own files: that the query's sink has written exactly once."""
    if not wrote_exactly_once(location):
        files, root = _place(location)
        with files.open_output_stream(f"{root}/{_DELIVERY}") as stream:
            stream.write(b"exactly-once\n")


def wrote_exactly_once(location: str) -> bool:
    from pyarrow import fs

    files, root = _place(location)
    return bool(files.get_file_info(f"{root}/{_DELIVERY}").type is fs.FileType.File)


def query_id(location: str) -> str | None:
    """Spark's id of the query, the same in all of its runs; None before its first."""
    text = _read(*_place(location), _METADATA)
    return None if text is None else str(json.loads(text)["id"])


def is_planned_again(location: str) -> bool:
    """Whether Spark's last batch was planned before, by a run that did not finish it. Notes that it is planned now."""
    files, root = _place(location)
    noted = _read(files, root, _PLANNED)
    last = _last_number(files, f"{root}/{_OFFSETS}")
    if noted is not None and noted == str(last):
        return True
    with files.open_output_stream(f"{root}/{_PLANNED}") as stream:
        stream.write(str(last).encode())
    return noted is None and last is not None and last > 0


def _read(files: FileSystem, root: str, name: str) -> str | None:
    from pyarrow import fs

    if files.get_file_info(f"{root}/{name}").type is not fs.FileType.File:
        return None
    with files.open_input_stream(f"{root}/{name}") as stream:
        return str(stream.read(), "utf-8")
