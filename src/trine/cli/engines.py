"""`trine engines`: what this machine has to compute with, and how fast it is."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Lists cores, devices, memory and links. --calibrate measures them once; every prediction then uses that.",
    examples=("trine engines", "trine engines --calibrate", "trine engines --calibrate --fresh --json engines.json"),
    takes=("engines.calibrate", "engines.fresh", "output.json", "output.quiet"),
    work="trine.report.engines:run",
)
