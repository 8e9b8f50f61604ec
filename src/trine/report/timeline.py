"""The timelines of a comparison's rows: predicted and measured, one below the other in one file."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from trine.report.forecast import Forecast
from trine.report.write import write_file
from trine.trace.perfetto import chrome_json


def write_timeline(path: Path, forecasts: Sequence[Forecast]) -> None:
    """A file for ui.perfetto.dev.  Raises BadInput where it cannot be written."""
    named = (
        msgspec.structs.replace(trace, label=f"{entry.row.scenario}, {entry.row.row}: {entry.row.describes},")
        for forecast in forecasts
        for entry in forecast.entries
        for trace in entry.traces
    )
    write_file(path, chrome_json(*named))
