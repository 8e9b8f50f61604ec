"""`trine plan MODEL`: the best way to split a model over engines, and why."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Finds the best plan for the scenario: data, stages and tensors (one dimension cut), micro-batches, 1f1b, "
    "and where the axes lie on the tiers of the cluster. Up to 4 engines every combination is simulated, and for the "
    "two fastest with halos also borders first and runs that recompute them. On more, up to thousands, all are "
    "estimated operator by operator, and the best few simulated where their Programs are soon made. Shows the best "
    "and the runners-up, with -v all and what ruled out the rest. With --data, --stages, --tensor, --micro-batches or "
    "--plan, that one plan is predicted instead.",
    examples=(
        "trine plan torchvision:resnet50 --engines 2 --scenario training --batch 64",
        "trine plan hf:gpt2 --cluster a100-80gbx4 --save-plan gpt2.plan.json",
        "trine plan torchvision:resnet152 --cluster a100-80gbx64 --batch 512 --what-if link=2x",
    ),
    takes=(
        "model",
        "engines.engines",
        "engines.cluster",
        "plan",
        "scenario",
        "how.budget_s",
        "search",
        "output.json",
        "output.save_plan",
        "output.quiet",
        "output.verbose",
    ),
    work="trine.report.plan:run",
)
