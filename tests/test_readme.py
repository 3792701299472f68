"""The README's example runs, and says what it says."""

import re
from pathlib import Path

import pytest


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    exec(code, {})
    shape, loss, bits = capsys.readouterr().out.splitlines()
    assert shape == "(2, 265)"
    assert f"# {float(loss):.2f}, against" in code
    assert f"# {float(bits):.0f} bits" in code
