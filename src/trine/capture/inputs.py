"""Example inputs: their leaves, names and batch dimension; slices of a batch and batches of another size."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from trine.errors import BadInput, UnknownKey


@dataclass(frozen=True)
class Inputs:
    """Arguments of the module, and the targets of its loss.

    batch_dims: argument name or ``"targets"`` → its batch dimension, None if it has none.  Else it is 0.
    positional: names of the positional arguments, from the module's signature.
    own_loss: the module computes the loss; ``targets`` are then keyword arguments more.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    targets: Any = None
    batch_dims: dict[str, int | None] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    own_loss: bool = False

    @staticmethod
    def of(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], targets: Any,
        batch_dims: dict[str, int | None], own_loss: bool,
    ) -> "Inputs":  # fmt: skip
        """With the names of the positional arguments from the module's forward."""
        names = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in _POSITIONAL]
        names += [f"arg{i}" for i in range(len(names), len(args))]
        return Inputs(args, kwargs, targets, batch_dims, tuple(names[: len(args)]), own_loss)

    def groups(self, with_targets: bool = True) -> list[tuple[str, Any]]:
        """(name, value) of each argument in order, the targets last."""
        result = [*zip(self.positional, self.args, strict=True), *self.kwargs.items()]
        if with_targets and self.own_loss:
            result += (self.targets or {}).items()
        elif with_targets:
            result.append(("targets", self.targets))
        return result

    def names(self, with_targets: bool = True) -> list[str]:
        """A name for each leaf: of its argument, numbered where an argument has several leaves."""
        result = []
        for name, value in self.groups(with_targets):
            leaves = pytree.tree_leaves(value)
            result += [name] if len(leaves) == 1 else [f"{name}_{i}" for i in range(len(leaves))]
        return result if with_targets else [*result, "targets"]

    def batch_dim(self, name: str, value: Any) -> int | None:
        """Batch dimension of a leaf of the argument."""
        dim = self.batch_dims.get(name, 0)
        return None if dim is None or not isinstance(value, torch.Tensor) or value.dim() == 0 else dim % value.dim()

    def leaf_dims(self, with_targets: bool = True) -> list[int | None]:
        """Batch dimension of each leaf, in the order of ``names``."""
        result: list[int | None] = []
        for name, value in self.groups(with_targets):
            result += [self.batch_dim(name, leaf) for leaf in pytree.tree_leaves(value)]
        return result if with_targets else [*result, None]

    @property
    def batch(self) -> int:
        """Size of the batch; 1 if no input has a batch dimension."""
        for name, value in self.groups():
            for leaf in pytree.tree_leaves(value):
                dim = self.batch_dim(name, leaf)
                if dim is not None:
                    return int(leaf.shape[dim])
        return 1

    def check(self) -> None:
        """Every batch dimension has one size and is known by name.  Raises BadInput, UnknownKey."""
        known = [name for name, _ in self.groups()]
        for name in self.batch_dims:
            if name not in known:
                raise UnknownKey(where="batch_dims", key=name, known=known)
        for name, value in self.groups():
            for leaf in pytree.tree_leaves(value):
                dim = self.batch_dim(name, leaf)
                if dim is not None and leaf.shape[dim] != self.batch:
                    raise BadInput(
                        f"The input {name} has shape {tuple(leaf.shape)}, but the batch is {self.batch}.",
                        "Dimension 0 is the batch of every input unless batch_dims says otherwise.",
                        f'For example: batch_dims={{"{name}": None}} if it has no batch dimension.',
                    )

    def map(self, change: Callable[[torch.Tensor, int | None, int], torch.Tensor]) -> "Inputs":
        """Inputs of the same structure; ``change`` takes a tensor, its batch dimension and its number."""
        counter = iter(range(1 << 30))

        def one(name: str, value: Any) -> Any:
            return pytree.tree_map_only(
                torch.Tensor, lambda t: change(t, self.batch_dim(name, t), next(counter)), value
            )

        args = tuple(one(name, value) for name, value in zip(self.positional, self.args, strict=True))
        kwargs = {name: one(name, value) for name, value in self.kwargs.items()}
        if self.own_loss:
            targets: Any = {name: one(name, value) for name, value in (self.targets or {}).items()}
        else:
            targets = one("targets", self.targets)
        return replace(self, args=args, kwargs=kwargs, targets=targets)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def slice_batch(inputs: Inputs, low: int, high: int) -> Inputs:
    """Samples ``low … high - 1`` of the batch."""
    if not 0 <= low < high <= inputs.batch:
        raise BadInput(
            f"Samples {low} to {high} were asked for.", f"The example inputs have a batch of {inputs.batch}."
        )
    return inputs.map(lambda t, dim, _: t if dim is None else t.narrow(dim, low, high - low))


def resize_inputs(inputs: Inputs, batch: int, seed: int) -> Inputs:
    """Inputs of another batch size: normal where floating, else uniform between the example's extremes."""
    if batch == inputs.batch:
        return inputs

    def change(t: torch.Tensor, dim: int | None, number: int) -> torch.Tensor:
        if dim is None:
            return t
        shape = (*t.shape[:dim], batch, *t.shape[dim + 1 :])
        low, high = (0, 2) if t.is_meta or not t.numel() or t.is_floating_point() else (int(t.min()), int(t.max()) + 1)
        return random_tensor(shape, t.dtype, low, high, seed + number)

    return inputs.map(change)


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, low: int, high: int, seed: int) -> torch.Tensor:
    """Normal where the type is floating or complex, else uniform in ``low … high - 1``; global state is not touched."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(low, max(high, low + 1), shape, generator=generator).to(dtype)
