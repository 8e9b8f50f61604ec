"""`trine compare MODEL`: one engine, data, model, tensor and the best mix, side by side."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Predicts and measures every way to use the engines, in every scenario, and says which is best and why. "
    "Without options: this machine, all three scenarios.",
    examples=(
        "trine compare torchvision:resnet18",
        "trine compare torchvision:mobilenet_v2 --scenario device --engines 2",
        "trine compare hf:gpt2 --cluster a100-80gbx8 --no-measure",
    ),
    takes=("model", "engines.engines", "engines.cluster", "plan", "scenario", "how", "output"),
    work="trine.report.compare:run",
)
