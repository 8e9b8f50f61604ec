"""Profile: what was measured on one machine, as a value that goes to JSON and back.

It holds rates for one core alone and for all cores busy at once (cores share memory bandwidth and clock), the cost of
starting operators, the median times of single operators, and the times of exchanges between threads and processes.
"""

import bisect
import math
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from trine.errors import BadInput, TrineError, UnknownName

FORMAT = 1


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """FLOP/s by data type and bytes/s, of ONE core while ``concurrency`` cores do the same at once."""

    concurrency: int
    matmul_flops_per_s: dict[str, float]
    conv_flops_per_s: dict[str, float]
    depthwise_flops_per_s: dict[str, float]
    stream_bytes_per_s: float


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that starting costs, however small the work: of an operator's forward and backward, and of one more
    segment (forward and backward together), while ``concurrency`` threads do the same at once."""

    concurrency: int
    forward_s: float
    backward_s: float
    segment_s: float


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Median seconds of one operator on one core while ``concurrency`` cores are busy; bytes kept for its backward."""

    concurrency: int
    forward_s: float
    backward_s: float
    saved_bytes: int


class LinkTable(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by size in bytes (of the full tensor), measured between ``num_ranks`` engines.

    ``p2p`` is an exchange: both engines send and receive that many bytes at once.
    """

    num_ranks: int
    sizes_bytes: tuple[int, ...]
    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes, times = self.sizes_bytes, self.times_s
        if len(sizes) != len(times) or not sizes:
            raise _bad_table(f"{len(sizes)} sizes and {len(times)} times", "It needs equally many, at least one.")
        if list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or not all(0 < t < math.inf for t in times):
            raise _bad_table(f"sizes {sizes} and times {times}", "Sizes rise from 1 byte or more; times are above 0.")
        if list(times) != sorted(times):
            raise _bad_table(f"times {times}", "They must not fall as sizes rise: LinkTable.measured takes care of it.")
        if self.num_ranks < 2:
            raise _bad_table(f"{self.num_ranks} rank", "A link joins 2 or more.")

    @classmethod
    def measured(cls, num_ranks: int, times: dict[int, float]) -> "LinkTable":
        """The table of measured ``{size in bytes: seconds}``.  Noise only adds time, so each time is at most that of
        any larger message."""
        sizes = sorted(times)
        lowest, values = math.inf, []
        for size in reversed(sizes):
            lowest = min(lowest, times[size])
            values.append(lowest)
        return cls(num_ranks=num_ranks, sizes_bytes=tuple(sizes), times_s=tuple(reversed(values)))

    def time_s(self, num_bytes: float) -> float:
        """Seconds for that size: straight lines between the points in log-log; below the table its first time
        (latency); above it the last two points' bandwidth (alpha-beta)."""
        if num_bytes < 0:
            raise BadInput(f"A message of {num_bytes:g} bytes.", "It has 0 bytes or more.")
        sizes, times = self.sizes_bytes, self.times_s
        if num_bytes <= sizes[0]:
            return times[0]
        if num_bytes >= sizes[-1]:
            return times[-1] + (num_bytes - sizes[-1]) * self._seconds_per_byte()
        high = bisect.bisect_left(sizes, num_bytes)
        low = high - 1
        share = math.log(num_bytes / sizes[low]) / math.log(sizes[high] / sizes[low])
        return math.exp(math.log(times[low]) + share * math.log(times[high] / times[low]))

    def _seconds_per_byte(self) -> float:
        if len(self.sizes_bytes) == 1:
            return 0.0
        return (self.times_s[-1] - self.times_s[-2]) / (self.sizes_bytes[-1] - self.sizes_bytes[-2])


class ProcessSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a process weighs that has used its libraries once, and how many bytes it grows by for each byte of tensors
    that come and go: the allocator reuses a freed block only where the next one fits into it, and oneDNN copies what it
    convolves.  The growth was measured on single operators."""

    base_bytes: int
    growth: float
    engine_base_bytes: int | None = None

    def resident_bytes(self, peak_bytes: int, resting_bytes: int, *, own_process: bool = False) -> int | None:
        """The predicted resident size: ``resting_bytes`` of the peak of tensors stay where they are from step to step
        (weights, optimizer, inputs).  ``own_process``: of an engine that is a process; None where that is not known."""
        base = self.engine_base_bytes if own_process else self.base_bytes
        return None if base is None else round(base + resting_bytes + self.growth * (peak_bytes - resting_bytes))


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured on one machine.  ``links`` is ``["threads" | "processes"][operation]``;
    ``disturbance`` the share of the cores' time that went to others meanwhile (above 0.1: measure again)."""

    fingerprint: str
    machine: str
    date: str
    torch_version: str
    num_threads: int
    rates: tuple[Rates, ...]
    launches: tuple[Launch, ...]
    links: dict[str, dict[str, LinkTable]]
    operators: dict[str, Timing] = {}
    disturbance: float = 0.0
    process: ProcessSize | None = None
    format: int = FORMAT

    def rate(self, work: str, dtype: str, concurrency: int = 1) -> float:
        """FLOP/s ("matmul", "conv", "depthwise") or bytes/s ("stream") of one of ``concurrency`` busy cores.

        Between two measured concurrencies the rate is a straight line in their logarithms; beyond the largest, the
        cores there are share what all of them gave.  Raises UnknownName for work or a data type that was not measured.
        """
        points = sorted((rates.concurrency, _rate(rates, work, dtype)) for rates in self.rates)
        if concurrency > points[-1][0]:
            return points[-1][1] * points[-1][0] / concurrency
        return _between(points, concurrency)

    def launch(self, concurrency: int = 1) -> Launch:
        """The launch costs measured at the concurrency that is nearest."""
        return min(self.launches, key=lambda launch: (abs(launch.concurrency - concurrency), launch.concurrency))

    def table(self, kind: str, operation: str) -> LinkTable:
        """The exchange times of ``kind`` ("threads", "processes") and operation.  Raises UnknownName."""
        if kind not in self.links:
            raise UnknownName("kind of link", kind, sorted(self.links))
        if operation not in self.links[kind]:
            raise UnknownName(f"operation measured between {kind}", operation, sorted(self.links[kind]))
        return self.links[kind][operation]

    def timing(self, key: str, concurrency: int = 1) -> Timing | None:
        """The measured times of one operator at that concurrency, or None."""
        return self.operators.get(operator_key(key, concurrency))

    def with_timings(self, timings: dict[str, Timing]) -> "Profile":
        """This profile with more operators: ``timings`` maps an operator's key (without concurrency) to its times."""
        more = {operator_key(key, timing.concurrency): timing for key, timing in timings.items()}
        return msgspec.structs.replace(self, operators={**self.operators, **more})


def operator_key(key: str, concurrency: int) -> str:
    """Under which name an operator's times at that concurrency are kept."""
    return f"{key} @{concurrency}"


def _bad_table(given: str, possible: str) -> BadInput:
    return BadInput(f"A link table of {given}.", possible)


def _rate(rates: Rates, work: str, dtype: str) -> float:
    if work == "stream":
        return rates.stream_bytes_per_s
    tables = {
        "matmul": rates.matmul_flops_per_s,
        "conv": rates.conv_flops_per_s,
        "depthwise": rates.depthwise_flops_per_s,
    }
    if work not in tables:
        raise UnknownName("measured work", work, [*tables, "stream"])
    if dtype not in tables[work]:
        raise UnknownName(f"data type measured for {work}", dtype, sorted(tables[work]))
    return tables[work][dtype]


def _between(points: list[tuple[int, float]], concurrency: int) -> float:
    if concurrency <= points[0][0]:
        return points[0][1]
    high = next(i for i, (count, _) in enumerate(points) if count >= concurrency)
    (low_count, low_rate), (high_count, high_rate) = points[high - 1], points[high]
    if concurrency == high_count:
        return high_rate
    share = math.log(concurrency / low_count) / math.log(high_count / low_count)
    return math.exp(math.log(low_rate) + share * math.log(high_rate / low_rate))


def profile_path(directory: Path, fingerprint: str) -> Path:
    """The file in the cache directory that holds the profile of the machine with that fingerprint."""
    return directory / f"profile-{fingerprint}.json"


def check_directory(directory: Path) -> None:
    """Make the cache directory if it is missing.  Raises TrineError unless a file can be written there."""
    probe = directory / ".writable"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _unwritable(directory, error) from error


def save_profile(profile: Profile, directory: Path) -> Path:
    """Write the profile into the cache directory, made if missing, and return the file.  Raises TrineError."""
    path = profile_path(directory, profile.fingerprint)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1))
        part.replace(path)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return path


def _unwritable(directory: Path, error: OSError) -> TrineError:
    return TrineError(
        f"The measured profile cannot be kept in {directory}: {error.strerror}.",
        "It is kept in trine's folder in the cache directory.",
        "Make that directory writable, or set XDG_CACHE_HOME to one that is.",
    )


def load_profile(directory: Path, fingerprint: str) -> Profile | None:
    """The cached profile of the machine with that fingerprint, or None if there is none or its format is older.

    Raises TrineError for a file that cannot be read or is no profile.
    """
    path = profile_path(directory, fingerprint)
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TrineError(
            f"The measured profile {path} cannot be read: {error.strerror}.",
            "Make it readable, or delete it and calibrate again.",
        ) from error
    try:
        if msgspec.json.decode(text, type=_Header).format != FORMAT:
            return None
        return msgspec.json.decode(text, type=Profile)
    except msgspec.MsgspecError as error:
        raise TrineError(f"{path} is no measured profile: {error}.", "Delete it and calibrate again.") from error


class _Header(msgspec.Struct):
    format: int


def cache_directory(environment: Mapping[str, str], home: Path) -> Path:
    """Where profiles are kept: trine's folder in the XDG cache directory, which is ignored unless absolute."""
    given = environment.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else home / ".cache"
    return base / "trine"
