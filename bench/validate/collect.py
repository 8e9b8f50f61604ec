"""Copy the tables that `trine validate` is held against from a folder of published measurements, and mark rows.

    python -m bench.validate.collect FOLDER

Rows under other licences than MIT, Apache-2.0 and BSD stay out, but for facts that a paper states.  A column ``use`` is
added: ``constants`` for the rows from which constants in trine's code come (360 of vTrain's, drawn by seed 0; the
all-reduces of the links' fit; the 175B rows of DeepSpeed's ZeRO-3), ``scale`` for those that give their group constants
at run time (ten of each engine of llm-foundry, drawn by seed 0; the one-GPU rows of the image nets; three nets on each
device).  No other row has any part in a prediction.
"""

import csv
import random
import sys
from collections.abc import Callable
from pathlib import Path

from trine.cost.nets import FITTED_NETS, FITTED_NETS_INT8

HERE = Path(__file__).parent
SEED = 0
FREE = ("MIT", "Apache-2.0", "BSD")
Row = dict[str, str]


def main(folder: Path) -> None:
    """Write every table beside this file."""
    for name, mark in TABLES.items():
        with (folder / name).open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        kept = [row for row in rows if row["licence"].startswith(FREE) or row["licence"] == "paper facts"]
        mark(kept)
        with (HERE / name).open("w", newline="", encoding="utf-8") as stream:
            columns = list(dict.fromkeys([*rows[0], *(name for row in kept for name in row)]))
            writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
            writer.writeheader()
            writer.writerows(kept)
        used = sum(bool(row.get("use")) for row in kept)
        print(f"{name}: {len(kept)} of {len(rows)} rows, {used} of them marked")


def nothing(rows: list[Row]) -> None:
    """All are scored."""
    for row in rows:
        row["use"] = ""


def megatron(rows: list[Row]) -> None:
    """The rows of ZeRO-3 with 175 billion parameters; those with 530 are scored."""
    for row in rows:
        row["use"] = "constants" if row["zero_stage"] == "3" and row["hidden"] == "12288" else ""


def vtrain(rows: list[Row]) -> None:
    """360 rows for the launch floor."""
    nothing(rows)
    for row in random.Random(SEED).sample(rows, 360):
        row["use"] = "constants"


def llm_foundry(rows: list[Row]) -> None:
    """Ten rows of each engine for one scalar."""
    nothing(rows)
    for hardware in dict.fromkeys(row["hardware"] for row in rows):
        for row in random.Random(SEED).sample([row for row in rows if row["hardware"] == hardware], 10):
            row["use"] = "scale"


def image_nets(rows: list[Row]) -> None:
    """The time of one GPU, where gradients are combined in a way that is predicted."""
    for row in rows:
        row["use"] = "scale" if row["gpus"] == "1" and "replicated" in row["notes"] else ""


def devices(rows: list[Row]) -> None:
    """Three nets on each device, and three of the int8 nets."""
    for row in rows:
        row["use"] = "scale" if row["model"] in FITTED_NETS + FITTED_NETS_INT8 else ""


def collectives(rows: list[Row]) -> None:
    """The rows of the links' fit; and what joined the A100 nodes, which the bandwidths show to be no adapter a GPU."""
    for row in rows:
        slow = row["hardware"] == "a100_dgx" and row["nodes"] != "1"
        row["interconnect"] = "Ethernet, rate not stated" if slow else ""
        row["use"] = "constants" if "vTrain" in row["source_ref"] else ""


TABLES: dict[str, Callable[[list[Row]], None]] = {
    "train_megatron_a100_v100_papers.csv": megatron,
    "train_vtrain_singlenode_a100.csv": vtrain,
    "train_llmfoundry_mpt_a100_h100.csv": llm_foundry,
    "train_cnn_dataparallel.csv": image_nets,
    "edge_latency_ncnn.csv": devices,
    "collectives_measured.csv": collectives,
    "memory_activation_korthikanti.csv": nothing,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
