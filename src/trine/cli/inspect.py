"""`trine inspect MODEL`: what a model is made of and what can be cut."""

from trine.cli.verb import Verb

VERB = Verb(
    about="Shows layers, shapes, parameters, FLOPs and activation bytes, which dimensions can be cut, and the "
    "sequential points: operators that need all of a cut dimension.",
    examples=("trine inspect torchvision:resnet18", "trine inspect hf:bert --seq 128 --batch 8 --scenario training"),
    takes=("model", "scenario.scenario", "scenario.batch", "output.json", "output.quiet", "output.verbose"),
    work="trine.report.inspect:run",
)
