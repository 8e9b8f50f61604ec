"""What the README shows in Python runs as it stands."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {number}" for number in range(len(BLOCKS))])
def test_python(block: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    *losses, answers = printed.getvalue().splitlines()
    assert len(losses) == 3
    assert all(re.fullmatch(r"tensor\(\d+\.\d+\)", loss) for loss in losses)
    assert answers.count(",") == 7
