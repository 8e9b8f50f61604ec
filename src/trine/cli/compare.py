"""`trine compare MODEL`: one engine, data, model, tensor and the best mix, side by side."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Predicts and measures one engine, PyTorch on all cores, the likeliest plan of each kind and the best mix, "
    "in every scenario, and says which is best and why. "
    "Without options: this machine, all three scenarios.",
    examples=(
        "trine compare torchvision:resnet18",
        "trine compare torchvision:mobilenet_v2 --scenario device --engines 2",
        "trine compare hf:gpt2 --seq 64 --no-measure",
    ),
    takes=(
        "model",
        "engines.engines",
        "plan",
        "scenario",
        "how.on",
        "how.budget_s",
        "how.no_measure",
        "output.json",
        "output.trace",
        "output.quiet",
        "output.verbose",
    ),
    work="trine.report.compare:run",
)
