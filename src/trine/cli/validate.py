"""`trine validate [TABLE.csv ...]`: predictions against published or own measurements."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Predicts every row of tables of measurements (training, inference latency, collectives, memory) and shows "
    "the errors by table and group, and for rows that cannot be predicted the reason. Without a table: those in "
    "bench/validate/ below this folder. docs/validate.md lists the columns; anyone can give their own.",
    examples=("trine validate", "trine validate measured.csv --json errors.json", "trine validate measured.csv -v"),
    takes=("tables", "output.json", "output.quiet", "output.verbose"),
    work="trine.report.validate:run",
)
