"""A verb of the command line as a value, and the typer command that is made from it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from trine._load import load
from trine.cli.options import LATER, Declaration, build, declarations
from trine.cost.profile import cache_directory
from trine.errors import BadInput

MODEL = "model.spec"


@dataclass(frozen=True)
class Verb:
    """One verb: what its help says, which options it takes and where its work is."""

    about: str
    """A paragraph for the help of the verb."""
    examples: tuple[str, ...]
    """Whole command lines."""
    takes: tuple[str, ...]
    """Names of groups ("model") and of single fields ("scenario.batch")."""
    work: str
    """The function behind it, "module:function"; it gets the Options and returns the exit status: 0, 1, or 130 where an
    interrupt left something to show."""

    def declarations(self) -> dict[str, Declaration]:
        """Return the declarations of the options taken, by dotted field name, in the order of the help."""
        return {name: said for name, said in declarations().items() if {name, name.partition(".")[0]} & {*self.takes}}

    def flags(self) -> set[str]:
        """Return every spelling of every option taken."""
        return {flag for declaration in self.declarations().values() for flag in declaration.flags}


def command(verb: Verb) -> Callable[..., None]:
    """Return the function of which typer makes the command: its signature is the verb's options."""
    taken = verb.declarations()
    keys = {name.replace(".", "_"): name for name in taken}

    def call(**said: Any) -> None:
        options = replace(
            build({keys[key]: value for key, value in said.items()}), cache=cache_directory(os.environ, Path.home())
        )
        if MODEL in taken and options.model.spec is None and options.plan.file is None:
            can = "--plan FILE names one too." if "plan.file" in taken else ""
            raise BadInput("MODEL is missing.", can, f"For example: {verb.examples[0]}")
        raise typer.Exit(load(verb.work)(options))

    parameters = [_parameter(key, keys[key], taken[keys[key]]) for key in keys]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def refuse_foreign(name: str, foreign: set[str], others: Mapping[str, Verb]) -> None:
    """Raise BadInput if one of the flags `foreign` to the verb `name` is an option of another verb, naming these, or of
    a later version."""
    for flag in sorted(foreign):
        if flag in LATER:
            raise BadInput(f"{flag} was given, but {LATER[flag]}.", "", f"Leave {flag} out.")
        takers = [other for other, verb in others.items() if flag in verb.flags()]
        if takers:
            raise BadInput(
                f"`trine {name}` does not take {flag}.",
                f"It is an option of {', '.join(takers)}.",
                f"Leave it out; `trine {name} --help` shows what {name} takes.",
            )


def _parameter(key: str, name: str, declaration: Declaration) -> Parameter:
    """Return one option as typer reads it: text, texts or a flag; `options.build` turns text into values."""
    panel = name.partition(".")[0].capitalize()
    kind: Any = list[str] | None if declaration.repeated else str | None if declaration.metavar else bool
    default = None if declaration.metavar else False
    if declaration.flags:
        how: Any = typer.Option(
            *declaration.flags,
            help=declaration.help,
            metavar=declaration.metavar or None,
            rich_help_panel=panel,
            show_default=False,
        )
    else:
        how = typer.Argument(help=declaration.help, metavar=declaration.metavar, show_default=False)
    return Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, how])
