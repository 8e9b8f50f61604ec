"""Files that a verb writes, other than plans (``plan/file.py``): a full disk or a forbidden place is one message."""

from pathlib import Path

from trine.errors import BadInput


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole.  Raises BadInput where that is not possible."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise BadInput(
            f"{path} could not be written: {error.strerror}.", "It takes a file in a folder that can be written.",
            "Give another path.",
        ) from error  # fmt: skip
