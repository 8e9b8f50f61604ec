"""Memory of this process: what it had at most, and whether it failed for lack of it, how much it wanted and how much it
has (Linux; elsewhere neither sizes nor limits are told)."""

import re
import resource
from dataclasses import dataclass
from pathlib import Path

import torch

_WORDS = ("DefaultCPUAllocator", "not enough memory", "Cannot allocate memory", "can't allocate memory")


@dataclass(frozen=True)
class Usage:
    """Bytes; resident includes the libraries, and is None where the system does not tell it."""

    tensors: int
    resident: int | None


def forget_highest() -> None:
    """Let the highest resident size start again from the present one, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def highest_bytes() -> int | None:
    """The highest resident size of this process."""
    return _status_bytes("VmHWM")


def is_memory_error(error: BaseException) -> bool:
    """Whether an allocation failed."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, (RuntimeError, OSError)) and any(word in str(error) for word in _WORDS)


def asked_bytes(error: BaseException) -> int:
    """What the allocation that failed asked for; 0 if the error does not say."""
    found = re.search(r"allocate (\d+) bytes", str(error))
    return int(found[1]) if found else 0


def used_bytes() -> int:
    """What this process has taken: address space where that is limited, else resident memory."""
    return _status_bytes("VmSize" if _address_limit() is not None else "VmRSS") or 0


def limit_bytes() -> int | None:
    """The smaller of this process's address-space limit and its cgroup's memory limit."""
    limits = [_address_limit(), _number(_cgroup("memory.max")), _number(_cgroup("memory.limit_in_bytes"))]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def kills_file() -> str:
    """The file in which the kernel counts processes of this cgroup that it killed for memory; empty if none."""
    for name in ("memory.events", "memory.oom_control"):
        path = _cgroup(name)
        if path is not None and path.exists():
            return str(path)
    return ""


def kills(path: str) -> int:
    """How many there were."""
    file = Path(path)
    found = re.search(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE) if path and file.exists() else None
    return int(found[1]) if found else 0


def _status_bytes(field: str) -> int | None:
    """What the system says of this process; None where it says nothing."""
    status = Path("/proc/self/status")
    found = re.search(rf"{field}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else None


def _address_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _cgroup(name: str) -> Path | None:
    """A file of the memory controller: version 2 has one tree, version 1 one for each controller."""
    own = Path("/proc/self/cgroup")
    for line in own.read_text().splitlines() if own.exists() else ():
        number, controllers, path = line.split(":", 2)
        root = "/sys/fs/cgroup" if number == "0" else "/sys/fs/cgroup/memory"
        if number == "0" or "memory" in controllers.split(","):
            for place in (Path(root + path), Path(root)):  # inside a container the path may not be visible
                if (place / name).exists():
                    return place / name
    return None


def _number(path: Path | None) -> int | None:
    """A limit; None where it is none (version 1 writes an absurdly large number for that)."""
    text = path.read_text().strip() if path is not None else "max"
    return None if text == "max" or int(text) > 1 << 60 else int(text)
