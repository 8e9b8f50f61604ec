"""The limits of the house: file and function length, imports, annotations.  Run as `python tools/limits.py [ROOT]`.

A file has at most 400 lines and a function at most 70; no import stands inside a function; modules of the package do
not import each other in a circle; each argument in src/ is annotated; a room's module is imported as
`from trine.plan.layout import Split`, since `trine.plan` is the promised function of that name.
Prints one line a breach and exits with 1 if there is any.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 70
PACKAGE = "trine"
PROMISED = {"compare", "inspect", "plan", "parallelize", "train_step", "simulate", "verify"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(root: Path) -> int:
    """Print every breach below `root` and return the exit status."""
    found: list[str] = []
    modules: dict[str, ast.Module] = {}
    for folder in ("src", "tests", "tools", "bench", "examples"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, str(path))
            name = str(path.relative_to(root))
            found += [f"{name}:{line}: {what}" for line, what in breaches(text, tree, annotated=folder == "src")]
            if folder == "src":
                modules[module_name(path.relative_to(root / "src"))] = tree
    found += [f"import circle: {' -> '.join(circle)}" for circle in circles(imports(modules))]
    print("\n".join(found) if found else f"limits: {len(modules)} modules within them")
    return 1 if found else 0


def breaches(text: str, tree: ast.Module, annotated: bool) -> Iterator[tuple[int, str]]:
    """Yield (line, what) for each breach inside one file; arguments are looked at if `annotated`."""
    num_lines = text.count("\n")
    if num_lines > FILE_LINES:
        yield 1, f"{num_lines} lines, at most {FILE_LINES}"
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield from _function(node, annotated)
        yield from _promised(node)


def _function(node: Function, annotated: bool) -> Iterator[tuple[int, str]]:
    num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if num_lines > FUNCTION_LINES:
        yield node.lineno, f"{node.name} has {num_lines} lines, at most {FUNCTION_LINES}"
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import | ast.ImportFrom):
            yield inner.lineno, f"{node.name} imports inside the function"
    if annotated:
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        first = positional[:1] if positional and positional[0].arg in ("self", "cls") else []
        rest = [argument for argument in (given.vararg, given.kwarg) if argument is not None]
        for argument in [*positional[len(first) :], *given.kwonlyargs, *rest]:
            if argument.annotation is None:
                yield node.lineno, f"{node.name} has the argument {argument.arg} without an annotation"
        if node.returns is None:
            yield node.lineno, f"{node.name} does not say what it returns"


def _promised(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield an import that would get a promised function where a room is meant."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            room = alias.name.split(".")
            if room[0] == PACKAGE and len(room) > 1 and room[1] in PROMISED:
                yield node.lineno, f"import {alias.name}: write `from {alias.name} import NAME`"


def module_name(path: Path) -> str:
    """Return "trine.plan.layout" for "trine/plan/layout.py" and "trine.plan" for its __init__.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return, for each module, the modules of the package that it imports when it is loaded."""
    return {name: set(_imported(tree, modules)) - {name} for name, tree in modules.items()}


def _imported(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules:
                    yield whole
                elif node.module in modules:
                    yield node.module
        elif not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the import circles of `graph` (each as its modules, the first one repeated at the end), one per tangle."""
    found: list[list[str]] = []
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                follow(other, [*path, name])
            done.add(name)

    for name in sorted(graph):
        follow(name, [])
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent))
