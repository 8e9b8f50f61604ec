"""`trine simulate MODEL`: the timeline of a plan on a cluster that one need not own."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Executes the plan's instructions on a simulated clock: the time of a step, and for each engine "
    "how long it works, talks and waits, its memory and the bytes that it sends.",
    examples=(
        "trine simulate hf:gpt2 --cluster a100-80gbx8 --stages 4 --data 2 --batch 16 --micro-batches 8 --trace t.json",
        "trine simulate --plan gpt2.plan.json --cluster a100-80gbx1024",
    ),
    takes=(
        "model",
        "engines.engines",
        "engines.cluster",
        "plan",
        "scenario",
        "output.json",
        "output.trace",
        "output.quiet",
        "output.verbose",
    ),
    work="trine.report.simulate:run",
)
