"""What `--cluster` accepts: a preset, a preset times a count, or a TOML file."""

import re
from pathlib import Path

from trine.cluster.cluster import Cluster
from trine.cluster.presets import PRESETS, preset
from trine.cluster.toml import read_cluster

_TIMES = re.compile(r"(.+)x(\d+)")


def choose_cluster(text: str) -> Cluster:
    """The cluster that ``text`` names: ``"a100-80gbx1024"``, ``"l4"`` or a path that ends in ``.toml``.

    Raises UnknownName for an unknown preset, with the nearest; BadInput or UnknownKey for a faulty file.
    """
    if text.endswith(".toml"):
        return read_cluster(Path(text))
    found = None if text in PRESETS else _TIMES.fullmatch(text)
    name, count = (found[1], int(found[2])) if found else (text, 1)
    return preset(name).times(count)
