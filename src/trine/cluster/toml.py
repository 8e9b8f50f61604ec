"""Clusters as TOML, in and out.

    name = "two boxes"

    [[engines]]                       # or: preset = "a100-80gb" and count: of its units, as in --cluster
    name = "a100-80gb"
    kind = "gpu"
    count = 16
    peak = { float32 = "19.5 TFLOP/s", bfloat16 = "312 TFLOP/s" }
    memory = "80 GiB"
    memory_bandwidth = "2039 GB/s"
    launch = "5.2 us"                 # may be left out: 0

    [[tiers]]                         # innermost first
    name = "box"
    size = 8
    latency = "3.4 us"
    bandwidth = "300 GB/s"            # of one engine, in each direction

    [[shared]]                        # may be left out
    name = "memory"
    size = 4
    bandwidth = "17.1 GB/s"
    memory = "8 GiB"                  # may be left out

Every fault is a BadInput or UnknownKey that names the file, the key, what was given and what is possible.
"""

import json
import tomllib
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from trine.cluster.cluster import Cluster, Engine, Link, Shared, Tier
from trine.cluster.presets import preset
from trine.errors import BadInput, TrineError, UnknownKey
from trine.units import BANDWIDTH, BYTES, FLOPS_PER_S, TIME, Quantity

_TOP = ("name", "engines", "tiers", "shared")
_ENGINE = ("name", "kind", "count", "peak", "memory", "memory_bandwidth", "launch")
_PRESET = ("preset", "count")
_TIER = ("name", "size", "latency", "bandwidth")
_SHARED = ("name", "size", "bandwidth", "memory")


class _Table:
    """One table of the file, which knows where it is so that its errors can say so."""

    def __init__(self, where: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in values:
            if key not in known:
                raise UnknownKey(where=where, key=key, known=known)
        self.where, self.values = where, values

    def _given(self, key: str, kind: type, possible: str, example: str) -> Any:
        if key not in self.values:
            raise BadInput(f"{self.where} has no key {key!r}.", f"It is {possible}.", f"For example: {key} = {example}")
        value = self.values[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            given = f"{self.where}: {key} = {value!r} was given."
            raise BadInput(given, f"It is {possible}.", f"For example: {key} = {example}")
        return value

    def text(self, key: str, example: str) -> str:
        return str(self._given(key, str, "a text", f'"{example}"'))

    def whole(self, key: str, example: int) -> int:
        return int(self._given(key, int, "a whole number", str(example)))

    def quantity(self, key: str, quantity: Quantity) -> float:
        text = self._given(key, str, f"{quantity.name} with its unit, in quotes", f'"{quantity.example}"')
        try:
            return quantity.parse(text)
        except BadInput as error:
            raise BadInput(f"{self.where}: {key} = {text!r} was given.", str(error)) from None

    def whole_quantity(self, key: str, quantity: Quantity) -> int:
        return round(self.quantity(key, quantity))

    def table(self, key: str, known: tuple[str, ...] | None = None) -> "_Table":
        value = self._given(key, dict, "a table", '{ float32 = "19.5 TFLOP/s" }')
        return _Table(f"{self.where}, {key}", value, tuple(value) if known is None else known)

    def tables(self, key: str) -> list[tuple[str, Mapping[str, Any]]]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise BadInput(
                f"{self.where}: {key} = {value!r} was given.", f"It is a list of tables, each under [[{key}]]."
            )
        return [(f"{self.where}, {key}[{i}]", item) for i, item in enumerate(value)]


def read_cluster(path: Path) -> Cluster:
    """The cluster in a TOML file.  Raises BadInput or UnknownKey, which name the file and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"The cluster file {path} cannot be read: {error.strerror}.", "", "Give a TOML file.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"The cluster file {path} is no text: {error.reason}.", "", "Give a TOML file.") from error
    return parse_cluster(text, where=str(path))


def parse_cluster(text: str, where: str = "the cluster") -> Cluster:
    """The cluster in a TOML text; ``where`` is what errors call it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where} is no TOML: {error}.", "", "Correct that line.") from error
    top = _Table(where, values, _TOP)
    engines: list[Engine] = []
    for place, item in top.tables("engines"):
        engines += _engines(place, item)
    try:
        return Cluster(
            name=top.text("name", "two boxes"),
            engines=tuple(engines),
            tiers=tuple(_tier(_Table(place, item, _TIER)) for place, item in top.tables("tiers")),
            shared=tuple(_shared(_Table(place, item, _SHARED)) for place, item in top.tables("shared")),
        )
    except TrineError as error:
        if where in str(error):
            raise
        raise BadInput(f"{where}: {error}") from None


def _engines(where: str, values: Mapping[str, Any]) -> list[Engine]:
    table = _Table(where, values, _PRESET if "preset" in values else _ENGINE)
    count = table.whole("count", 8) if "count" in values else 1
    if count < 1:
        raise BadInput(f"{where}: count = {count} was given.", "It is 1 or more.", "Leave it out for 1.")
    if "preset" in values:
        try:
            found = preset(table.text("preset", "a100-80gb"))
            return [found.engine] * (count * found.per_unit)
        except TrineError as error:
            raise BadInput(f"{where}: {error}") from None
    peak = table.table("peak")
    engine = Engine(
        name=table.text("name", "a100-80gb"),
        kind=table.text("kind", "gpu"),
        peak_flops_per_s={dtype: peak.quantity(dtype, FLOPS_PER_S) for dtype in peak.values},
        memory_bytes=table.whole_quantity("memory", BYTES),
        memory_bandwidth_bytes_per_s=table.quantity("memory_bandwidth", BANDWIDTH),
        launch_s=table.quantity("launch", TIME) if "launch" in values else 0.0,
    )
    return [engine] * count


def _tier(table: _Table) -> Tier:
    link = Link(latency_s=table.quantity("latency", TIME), bandwidth_bytes_per_s=table.quantity("bandwidth", BANDWIDTH))
    return Tier(name=table.text("name", "box"), size=table.whole("size", 8), link=link)


def _shared(table: _Table) -> Shared:
    return Shared(
        name=table.text("name", "memory"),
        size=table.whole("size", 4),
        bandwidth_bytes_per_s=table.quantity("bandwidth", BANDWIDTH),
        memory_bytes=table.whole_quantity("memory", BYTES) if "memory" in table.values else None,
    )


def print_cluster(cluster: Cluster) -> str:
    """The cluster as TOML; ``parse_cluster`` gives the same cluster again."""
    blocks = [f"name = {_quoted(cluster.name)}"]
    for engine, same in groupby(cluster.engines):
        blocks.append(_engine_block(engine, len(list(same))))
    for tier in cluster.tiers:
        latency, bandwidth = TIME.exact(tier.link.latency_s), BANDWIDTH.exact(tier.link.bandwidth_bytes_per_s)
        blocks.append(
            f"[[tiers]]\nname = {_quoted(tier.name)}\nsize = {tier.size}\n"
            f"latency = {_quoted(latency)}\nbandwidth = {_quoted(bandwidth)}"
        )
    for shared in cluster.shared:
        memory = "" if shared.memory_bytes is None else f"\nmemory = {_quoted(BYTES.exact(shared.memory_bytes))}"
        bandwidth = BANDWIDTH.exact(shared.bandwidth_bytes_per_s)
        blocks.append(
            f"[[shared]]\nname = {_quoted(shared.name)}\nsize = {shared.size}\nbandwidth = {_quoted(bandwidth)}{memory}"
        )
    return "\n\n".join(blocks) + "\n"


def _engine_block(engine: Engine, count: int) -> str:
    peaks = ", ".join(
        f"{dtype} = {_quoted(FLOPS_PER_S.exact(rate))}" for dtype, rate in engine.peak_flops_per_s.items()
    )
    return (
        f"[[engines]]\nname = {_quoted(engine.name)}\nkind = {_quoted(engine.kind)}\ncount = {count}\n"
        f"peak = {{ {peaks} }}\nmemory = {_quoted(BYTES.exact(engine.memory_bytes))}\n"
        f"memory_bandwidth = {_quoted(BANDWIDTH.exact(engine.memory_bandwidth_bytes_per_s))}\n"
        f"launch = {_quoted(TIME.exact(engine.launch_s))}"
    )


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
