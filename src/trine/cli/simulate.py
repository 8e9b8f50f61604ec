"""`trine simulate MODEL`: the timeline of a plan on a cluster that one need not own."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Executes the plan's instructions on a simulated clock: time, memory, bytes sent, who waits for whom.",
    examples=(
        "trine simulate hf:gpt2 --cluster a100-80gbx8 --stages 4 --data 2 --micro-batches 8 --trace gpt2.json",
        "trine simulate --plan gpt2.plan.json --cluster a100-80gbx1024",
    ),
    takes=("model", "engines.engines", "engines.cluster", "plan", "scenario", "output"),
    work="trine.report.simulate:run",
)
