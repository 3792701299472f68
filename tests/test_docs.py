"""What the documentation shows runs."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "estimators.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_estimators(code: str) -> None:
    names: dict[str, object] = {}
    exec(code, names)
    assert "model" in names
