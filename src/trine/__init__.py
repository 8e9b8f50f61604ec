"""trine: one PyTorch model on many compute engines.

What is promised is listed below; each name is loaded when it is first used, so that `import trine` needs no torch.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trine._load import load

if TYPE_CHECKING:
    from trine.report.compare import compare as compare
    from trine.report.inspect import inspect as inspect
    from trine.report.plan import plan as plan
    from trine.report.simulate import simulate as simulate
    from trine.report.verify import verify as verify
    from trine.run.parallelize import parallelize as parallelize
    from trine.run.training import train_step as train_step

__version__ = "0.1.0"

_PROMISE = {
    "compare": "trine.report.compare:compare",
    "inspect": "trine.report.inspect:inspect",
    "parallelize": "trine.run.parallelize:parallelize",
    "plan": "trine.report.plan:plan",
    "simulate": "trine.report.simulate:simulate",
    "train_step": "trine.run.training:train_step",
    "verify": "trine.report.verify:verify",
}


class _Front(ModuleType):
    """The module `trine` itself: a promised name is never hidden by the room of the same name.

    Importing `trine.plan.layout` would bind the room to `trine.plan`, and `trine.plan(model)` would stop working.
    Rooms are imported as `from trine.plan.layout import Split`, which does not need the binding.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PROMISE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Front


def __getattr__(name: str) -> Any:
    if name not in _PROMISE:
        raise AttributeError(f"module 'trine' has no attribute {name!r}; it has {', '.join(_PROMISE)}")
    return load(_PROMISE[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *_PROMISE})
