"""`trine plan MODEL`: the best way to split a model over engines, and why."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Predicts each way to use up to 4 engines by data, stages and tensors (one dimension cut, equal parts, 1, 2, "
    "4 or 8 micro-batches, 1f1b) for the scenario, and for the two fastest with halos also borders first and runs "
    "that recompute them; shows the best and the runners-up, with -v all and what ruled out the rest. With --data, "
    "--stages, --tensor, --micro-batches or --plan, that one plan is predicted instead.",
    examples=(
        "trine plan torchvision:resnet50 --engines 2 --scenario training --batch 64",
        "trine plan hf:gpt2 --cluster a100-80gbx4 --save-plan gpt2.plan.json",
    ),
    takes=(
        "model",
        "engines.engines",
        "engines.cluster",
        "plan",
        "scenario",
        "output.json",
        "output.save_plan",
        "output.quiet",
        "output.verbose",
    ),
    work="trine.report.plan:run",
)
