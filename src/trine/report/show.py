"""A comparison on the terminal: one block a scenario, best row first, each reason on its own line."""

import sys
import time
from math import inf

from rich.console import Console
from rich.table import Table

from trine.report.rows import Comparison, Figures, Row
from trine.units import BYTES, TIME

WIDE = 92  # columns; a narrower terminal goes without the last column, which the sentences name too


class Screen:
    """Progress while it works (on a terminal: one line that changes), and the table at the end."""

    def __init__(self, quiet: bool) -> None:
        self.console = Console(highlight=False)
        self.status = Console(stderr=True, highlight=False)
        self.quiet, self.last, self.since = quiet, "", time.monotonic()

    def start(self, title: str, budget_s: float, predicted_only: bool) -> None:
        """The header, and how long it will take."""
        self.console.print(title, soft_wrap=True)
        long = f"about {TIME.format(0.4 * budget_s)}" if predicted_only else f"at most about {TIME.format(budget_s)}"
        what = (
            "predicts only"
            if predicted_only
            else "times operators, predicts every row, then measures the likely winners"
        )
        self.console.print(f"This {what}: {long} (--budget changes it).", soft_wrap=True)

    def say(self, text: str) -> None:
        """What is done right now."""
        if self.quiet:
            return
        if sys.stderr.isatty():
            self.status.print(f"\r\x1b[2K{text[: self.status.width - 1]}", end="", soft_wrap=True)
        elif text.partition(":")[0].split(" ")[0] != self.last:
            self.last = text.partition(":")[0].split(" ")[0]
            self.status.print(f"[{time.monotonic() - self.since:.0f} s] {text}", soft_wrap=True)

    def show(self, result: Comparison, verbose: bool) -> None:
        """The whole answer."""
        if sys.stderr.isatty() and not self.quiet:
            self.status.print("\r\x1b[2K", end="")
        self.console.print(f"\n{result.engines} engines: {result.machine} · {result.date}", soft_wrap=True)
        for scenario in dict.fromkeys(row.scenario for row in result.rows):
            self.block(result, scenario, verbose)
        self.batching(result)
        for note in result.notes:
            self.console.print(note, soft_wrap=True)

    def batching(self, result: Comparison) -> None:
        """Batches beside replicas: two different ways to answer more requests."""
        if not result.batching:
            return
        self.console.print("\n[bold]batching and replicas[/bold] (cloud inference, plain module)")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("batch", "one engine", "rate", f"{result.engines} replicas", "rate"):
            table.add_column(name, justify="right", no_wrap=True)
        for b in result.batching:
            table.add_row(
                str(b.batch), TIME.format(b.latency_s), f"{b.throughput_per_s:.3g}/s",
                TIME.format(b.replicas_latency_s), f"{b.replicas_throughput_per_s:.3g}/s",
            )  # fmt: skip
        self.console.print(table)
        rate = result.second_replica_from_per_s
        if rate is not None:
            self.console.print(
                f"One engine is measured, replicas are predicted. A second replica shortens the mean wait "
                f"{from_rate(rate)} "
                "(Poisson arrivals, answered one by one).",
                style="dim",
            )

    def block(self, result: Comparison, scenario: str, verbose: bool) -> None:
        """One scenario."""
        rows = sorted(
            (r for r in result.rows if r.scenario == scenario),
            key=lambda r: (r.predicted is None and r.measured is None, r.time_s),
        )
        one = next((r for r in rows if r.row == "one engine"), None)
        self.console.print(f"\n[bold]{scenario}[/bold]")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        names = ["", "predicted", "measured", "rate", "speed-up", "memory", "equal", "sent"]
        shown = len(names) if self.console.width >= WIDE else len(names) - 1
        for name in names[:shown]:
            table.add_column(name, justify="left" if not name else "right", no_wrap=True)
        for row in rows:
            cells = self.cells(row, one)
            table.add_row(*cells[:shown])
        self.console.print(table)
        self.memory(rows, "of the fullest" if result.on == "processes" else "of all")
        for row in rows:
            note = f" {row.note}" if row.note and verbose else ""
            twin = next((r for r in rows if r.row != "best mix" and r.plan is not None and r.plan == row.plan), None)
            if row.row == "best mix" and twin is not None:
                self.console.print(f"  best mix: the plan of the row {twin.row}.{note}", style="dim")
                continue
            self.console.print(f"  {row.row}: {row.describes}. {row.reason}{note}", style="dim")
        open_ = [row.row for row in rows if row.measured is None and row.predicted is not None]
        if open_ and len(open_) < len([row for row in rows if row.predicted is not None]):
            why = "" if result.interrupted else ", for the budget was over"
            self.console.print(f"  Predicted only{why}: {', '.join(open_)}.", style="dim")
        rough = [row.row for row in rows if "not timed" in row.note]
        if rough:
            self.console.print(
                f"  Predicted partly from general rates (-v says how much): {', '.join(rough)}.", style="dim"
            )
        shaken = [row.row for row in rows if "speed changed" in row.note]
        if shaken:
            self.console.print(f"  The machine's speed changed while these ran: {', '.join(shaken)}.", style="dim")
        self.console.print(verdict(result, scenario), soft_wrap=False)
        if verbose:
            for row in rows:
                if row.error is not None and row.corrected_error is not None:
                    self.console.print(
                        f"  {row.row}: predicted {row.predicted_at}, error {row.error:+.0%}, corrected by the probes "
                        f"{row.corrected_error:+.0%}"
                    )

    def memory(self, rows: list[Row], whose: str) -> None:
        """Predicted beside measured memory of the rows in which it was measured."""
        known = [(row.row, row.memory) for row in rows if row.memory is not None and row.memory.tensors_measured]
        if not known:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in (f"  memory {whose}", "tensors", "measured", "resident", "measured"):
            table.add_column(name, justify="left" if name.startswith(" ") else "right", no_wrap=True)
        for name, memory in known:
            numbers = (
                memory.tensors_predicted, memory.tensors_measured, memory.resident_predicted, memory.resident_measured,
            )  # fmt: skip
            table.add_row(f"  {name}", *("–" if n is None else BYTES.format(n) for n in numbers))
        self.console.print(table)

    def cells(self, row: Row, one: Row | None) -> list[str]:
        """A line of the table."""

        def shown(f: Figures | None) -> str:
            return "–" if f is None else TIME.format(f.time_s)

        speed = "–"
        if one is not None and row.time_s < float("inf"):
            base = one.measured if row.measured is not None and one.measured is not None else one.predicted
            mine = row.measured if row.measured is not None and one.measured is not None else row.predicted
            if base is not None and mine is not None:
                speed = f"{'' if mine is row.measured else '~'}{base.time_s / mine.time_s:.2f}×"
        figures = row.predicted
        memory = "–"
        if figures is not None and figures.memory_bytes is not None:
            memory = f"~{BYTES.format(figures.memory_bytes)}"  # of the fullest engine, predicted
        sent = BYTES.format(figures.bytes_sent) if figures is not None and figures.bytes_sent is not None else "–"
        equal = {True: "yes", False: "NO", None: "–"}[row.verified]
        best = row.measured or row.predicted
        rate = f"{best.throughput_per_s:.3g}/s" if best is not None else "–"
        return [row.row, shown(row.predicted), shown(row.measured), rate, speed, memory, equal, sent]


def from_rate(rate_per_s: float) -> str:
    """From which arrival rate on, in words."""
    if rate_per_s == inf:
        return "never"
    return f"from about {rate_per_s:.3g} requests/s on" if rate_per_s > 0 else "at any rate"


def verdict(result: Comparison, scenario: str) -> str:
    """What to do, in a sentence."""
    rows = [row for row in result.rows if row.scenario == scenario]
    best = result.best(scenario)
    plain = [row for row in rows if row.row in ("one engine", "PyTorch, all cores")]
    measured = best.measured is not None
    known = [row for row in plain if (row.measured is not None) == measured and row.time_s < float("inf")]
    how = "measured" if measured else "predicted"
    if best in plain:
        return f"=> Use {best.row} ({how}): no plan beats it here."
    if not known:
        return f"=> {best.row} is the fastest ({how}): {best.describes}."
    rival = min(known, key=lambda row: row.time_s)
    return f"=> {best.describes} is {rival.time_s / best.time_s:.2f}× as fast as {rival.row} ({how})."
