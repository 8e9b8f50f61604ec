"""Errors that a person can act on: each says what was given, what is possible and what to change.

A special child builds its paragraph itself from named values, so that the text of one mistake is written once;
`BadInput` takes the sentences:

    raise DoesNotDivide(axis="tensor", degree=3, dim="heads", size=32)
    raise BadInput("--size 0 was given.", "A size is 1 or more.", "For example: --size 224")

`exit_status` is what the command line ends with: 2 bad input, 3 an engine failed, 1 the answer is no.
Errors travel between processes, so each can be pickled.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

_LISTED = 12  # how many possible values a message lists


class TrineError(Exception):
    """The parent of all errors that trine raises on purpose."""

    exit_status: ClassVar[int] = 2

    def __init__(self, *sentences: str) -> None:
        """Join the sentences: what was given, what is possible, what to change; empty ones are left out."""
        super().__init__(" ".join(sentence for sentence in sentences if sentence))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[TrineError], words: tuple[str, ...], fields: Mapping[str, Any]) -> TrineError:
    """Return the pickled error without running its constructor, whose message is in `words` already."""
    error = kind.__new__(kind, *words)
    error.__dict__.update(fields)
    return error


def alike(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names of `known` that look like `name`, the most alike first."""
    by_lower = {word.lower(): word for word in known}
    return [by_lower[word] for word in get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]


def listing(names: Iterable[object]) -> str:
    """Return "a, b, c", cut after a dozen with the number of those left out."""
    words = [str(name) for name in names]
    if len(words) > _LISTED:
        return f"{', '.join(words[:_LISTED])} and {len(words) - _LISTED} more"
    return ", ".join(words)


class BadInput(TrineError):
    """An input that fits none of the more special children."""


class UnknownName(TrineError):
    """A name of `kind` ("model", "preset", "operator") that does not exist."""

    def __init__(self, kind: str, name: str, nearest: Iterable[str] = (), *, change: str = "") -> None:
        """`nearest` are the names to choose from: those near, or all there are, of which the most alike are shown."""
        self.kind, self.name, self.nearest = kind, name, tuple(nearest)
        close = alike(name, self.nearest)
        if close:
            possible = f"The nearest: {listing(close)}."
        elif self.nearest:
            possible = f"Possible: {listing(self.nearest)}."
        else:
            possible = ""
        super().__init__(f"There is no {kind} named {name!r}.", possible, change)


class UnknownKey(TrineError):
    """A key in a file or a `--set` that nobody reads."""

    def __init__(self, *, where: str, key: str, known: Iterable[str]) -> None:
        """`where` is the file or table, `known` are all keys that it may have."""
        self.where, self.key, self.known = where, key, tuple(known)
        close = alike(key, self.known)
        change = f"Did you mean {close[0]!r}?" if close else f"Take {key!r} out."
        possible = f"Possible keys: {listing(self.known)}." if self.known else "No keys are possible there."
        super().__init__(f"{where} has the key {key!r}, which is unknown.", possible, change)


class CannotCut(TrineError):
    """A cut of dimension `dim` into `degree` parts over mesh axis `axis` that is not possible."""

    def __init__(
        self, *, axis: str, degree: int, dim: str, size: int, possible: Sequence[int] = (), why: str = ""
    ) -> None:
        """`possible` are the degrees that would do; `why` is a sentence, if the sizes alone do not tell."""
        self.axis, self.degree, self.dim, self.size, self.possible = axis, degree, dim, size, tuple(possible)
        given = f"The {axis} axis cuts {dim} (size {size}) into {degree} parts, which cannot be done."
        if any(option != 1 for option in possible):
            can = f"Possible degrees: {listing(possible)}."
            change = f"Choose one of these, or cut another dimension than {dim}."
        else:
            can = f"{dim} of this size cannot be cut at all."
            change = f"Cut another dimension than {dim}."
        super().__init__(given, why, can, change)


class DoesNotDivide(CannotCut):
    """A cut that must be even, of a size that the degree does not divide."""

    def __init__(self, *, axis: str, degree: int, dim: str, size: int, possible: Sequence[int] | None = None) -> None:
        """`possible` defaults to the divisors of `size`."""
        if possible is None:
            possible = [count for count in range(1, size + 1) if size % count == 0]
        why = f"{degree} does not divide {size}, and {dim} is cut evenly or not at all."
        super().__init__(axis=axis, degree=degree, dim=dim, size=size, possible=possible, why=why)


class CaptureFailed(TrineError):
    """The graph of a model could not be captured."""

    def __init__(self, *, model: str, line: str, why: str, change: str = "") -> None:
        """`line` is "file.py:12: source text" of the model's code, or empty where it is not known; `change` is the way
        out of this cause, without its full stop."""
        self.model, self.line, self.why = model, line, why
        self.change = change or ("Change that line" if line else "Change that part of the model")
        where = f" at {line.rstrip(':')}" if line else ""
        super().__init__(
            f"The graph of {model} could not be captured{where}: {why.rstrip('.')}.",
            "Without a graph only data parallelism is possible.",
            f"{self.change}, or use --data.",
        )


class EngineFailed(TrineError):
    """An engine stopped with an error or without a word; the first failure, not its echoes."""

    exit_status: ClassVar[int] = 3

    def __init__(self, *, rank: int, trace: str, others: str = "") -> None:
        """`trace` is the engine's own error, `others` a sentence on what became of the other engines."""
        self.rank, self.trace, self.others = rank, trace, others
        super().__init__(
            f"Engine {rank} failed first. {others}".strip(),
            "",
            f"Its own error was:\n{trace.rstrip() or '(it left no trace: killed, or out of memory)'}",
        )


class OutOfMemory(TrineError):
    """An engine needs more memory than it has."""

    exit_status: ClassVar[int] = 3

    def __init__(
        self, *, rank: int, needed: str, limit: str, fits: str = "", base_bytes: int = 0, limit_bytes: int = 0
    ) -> None:
        """`needed` and `limit` are printed amounts ("91 GiB"), `fits` a sentence naming what would fit, if known;
        `base_bytes` is what the engine had taken before its first step."""
        self.rank, self.needed, self.limit, self.fits = rank, needed, limit, fits
        self.base_bytes, self.limit_bytes = base_bytes, limit_bytes
        super().__init__(
            f"Engine {rank} needs {needed} and has {limit}.",
            fits or "No plan that fits is known.",
            "" if fits else "Use more engines or a smaller batch.",
        )


class NothingFits(TrineError):
    """No plan has room in the memory of its engines: an answer, not a mistake of the caller."""

    exit_status: ClassVar[int] = 1

    def __init__(self, *, tried: int, plan: str, short: str, nearest: str = "") -> None:
        """`plan` is that of `tried` which needs least, `short` says need and limit, `nearest` is a sentence on what
        fits."""
        self.tried, self.plan, self.short, self.nearest = tried, plan, short, nearest
        several = f"None of {tried} plans fits in memory; of the one that needs least ({plan}), {short}."
        super().__init__(
            several if tried > 1 else f"The plan {plan} does not fit in memory: {short}.",
            nearest or "No smaller batch that fits is known.",
            "" if nearest else "Use engines with more memory, or a smaller model or input.",
        )


class PlanMismatch(TrineError):
    """A plan that was made for another model, other shapes or other engines."""

    def __init__(self, *, plan: str, changed: Sequence[str]) -> None:
        """`plan` is its file, or the plan in words; `changed` one phrase for each change ("the batch was 8, is 4")."""
        self.plan, self.changed = plan, tuple(changed)
        super().__init__(
            f"The plan {plan} was made for something else: {'; '.join(changed)}.",
            "A plan holds for one graph, its input shapes and its engines.",
            "Undo the change, or make a new plan with `trine plan MODEL --save-plan FILE`.",
        )


class NotEqual(TrineError):
    """The parallel run and the run on one engine differ: an answer, not a mistake of the caller."""

    exit_status: ClassVar[int] = 1

    def __init__(self, *, what: str, where: str, difference: float, limit: float) -> None:
        """`what` is the value ("gradient of fc.weight"), `where` its element, the two numbers are relative."""
        self.what, self.where, self.difference, self.limit = what, where, difference, limit
        super().__init__(
            f"{what} differs between this plan and one engine by {difference:.3g} at {where}.",
            f"At most {limit:.3g} is allowed.",
            "Do not use this plan for this model; `trine verify` with another plan shows which part is wrong.",
        )
