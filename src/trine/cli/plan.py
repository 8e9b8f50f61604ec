"""`trine plan MODEL`: the best way to split a model over engines, and why."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Searches meshes, stages, layouts and schedules for the scenario's best plan; shows the runners-up and what "
    "ruled out the rest. Options of the plan that you give are kept.",
    examples=(
        "trine plan torchvision:resnet50 --engines 2 --scenario training --batch 64",
        "trine plan hf:gpt2 --cluster a100-80gbx64 --save-plan gpt2.plan.json",
    ),
    takes=("model", "engines.engines", "engines.cluster", "plan", "scenario", "how", "output"),
    work="trine.report.plan:run",
)
