"""`trine verify MODEL`: is the parallel run equal to the run on one engine?"""

from trine.cli.verb import Verb

VERB = Verb(
    about="Compares outputs, loss, every gradient by name and the weights after steps with those of one engine, "
    "in float64, and says what differs, where and by how much; in float32, step 1 may be no farther from float64 than "
    "4 x one engine's is.",
    examples=(
        "trine verify torchvision:resnet18 --tensor 2",
        "trine verify torchvision:mobilenet_v2 --stages 2 --micro-batches 4 --on processes",
        "trine verify torchvision:resnet18 --tensor 3 --shares 3:2:1 --integer",
        "trine verify --plan resnet18.plan.json",
    ),
    takes=(
        "model",
        "engines.engines",
        "plan",
        "scenario.scenario",
        "scenario.batch",
        "how.on",
        "how.integer",
        "output.json",
        "output.quiet",
        "output.verbose",
    ),
    work="trine.report.verify:run",
)
