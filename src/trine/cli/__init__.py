"""The command line: `trine VERB MODEL [options]`, one file a verb, loaded when it is called."""

import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trine import __version__
from trine._load import load
from trine.errors import TrineError, UnknownName

if TYPE_CHECKING:  # only a verb needs the options, and the help without one must be there at once
    from trine.cli.verb import Verb

VERBS = {
    "engines": "What this machine has to compute with, and how fast it is.",
    "inspect": "What a model is made of and what can be cut.",
    "compare": "One engine, data, model, tensor and the best mix, side by side.",
    "verify": "Is the parallel run equal to the run on one engine?",
    "plan": "The best way to split a model over engines, and why.",
    "simulate": "The timeline of a plan on a cluster that you need not own.",
    "validate": "Predictions beside measurements that others published, or your own.",
}
_ABOUT = "Run one PyTorch model on many compute engines: plan the split, predict it, run it, prove it equal."
STATUS = {
    0: "done and yes",
    1: "done, and the answer is no (not equal, nothing fits)",
    2: "bad input",
    3: "an engine or trine itself failed",
    130: "interrupted",
}
_NO_MEMORY = "This process needs more memory than it may use. Give it more, or a smaller --batch or --size."
_INTERRUPTED = 130
_FAILED = 3


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line `words` (those of the process if None) and return the exit status."""
    if words is None and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _ended)  # so that engines and their folders are removed
    try:
        status = _run(list(sys.argv[1:] if words is None else words))
        if status == _INTERRUPTED:
            print("trine: interrupted", file=sys.stderr)
        return status
    except TrineError as error:
        print(f"trine: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("trine: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  a defect must not end as 1, which means "the answer is no"
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            print(f"trine: {_NO_MEMORY} ({str(error).strip() or 'MemoryError'})", file=sys.stderr)
        else:
            traceback.print_exc()
        return _FAILED


def _ended(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _run(words: list[str]) -> int:
    called = next((word for word in words if not word.startswith("-")), None)
    try:
        _app(called, words)(args=words, prog_name="trine")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _app(called: str | None, words: Sequence[str]) -> typer.Typer:
    """Return the typer application, in which only the verb that is called has its options."""
    if called is not None and called not in VERBS:
        raise UnknownName("verb", called, VERBS, change="`trine --help` lists the verbs.")
    app = typer.Typer(
        help=_ABOUT,
        epilog=f"Exit status: {' · '.join(f'{number} {words}' for number, words in STATUS.items())}",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_top)
    for name, line in VERBS.items():
        if name == called:
            verb = _verb(name)
            foreign = {word.partition("=")[0] for word in words if word.startswith("-")} - verb.flags()
            if foreign - {"--help", "-h"}:
                load("trine.cli.verb:refuse_foreign")(name, foreign, {other: _verb(other) for other in VERBS})
            examples = "\n\n".join(f"[bold]{example}[/bold]" for example in verb.examples)
            made = load("trine.cli.verb:command")(verb)
            app.command(name, help=f"{line}\n\n{verb.about}", epilog=examples)(made)
        else:
            app.command(name, help=line)(_top)
    return app


def _verb(name: str) -> "Verb":
    verb: Verb = load(f"trine.cli.{name}:VERB")
    return verb


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"trine {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before any verb."""
