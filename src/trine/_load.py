"""By-name loading: the one function behind the command line's verbs, `trine.NAME` and the optional backends."""

from importlib import import_module
from typing import Any


def load(target: str) -> Any:
    """Return the attribute named by "package.module:attribute", importing the module if need be.

    Raises ImportError if there is no such module and AttributeError if it has no such attribute.
    """
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
