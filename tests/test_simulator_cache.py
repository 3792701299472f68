import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from omkl.simulator import cache

RUN = """
import collections, json, jax, numpy as np, omkl
from omkl.simulator import engine
engine.is_small = lambda *_: False
counted = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counted.update([event.rsplit("/")[-1]]))
X = np.random.default_rng(0).standard_normal((8, 3, 2))
loss = omkl.simulate((X, np.sign(X[..., 0])), "path", method=omkl.paper(), seeds=4, pooled=True).loss
print(json.dumps({"hits": counted["cache_hits"], "misses": counted["cache_misses"], "loss": loss.tolist()}))
"""


NAMES = ["jax_compilation_cache_dir", *cache.SETTINGS]


def settings() -> list[Any]:
    return [getattr(jax.config, name) for name in NAMES]


@pytest.fixture
def unset() -> Iterator[None]:
    """Take from JAX what it has for a cache, and put it back."""
    before = settings()
    for name, value in zip(NAMES, (None, 1.0, 0), strict=True):
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    yield
    for name, value in zip(NAMES, before, strict=True):
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def run(folder: Path) -> Any:
    environment = os.environ | {"OMKL_CACHE": str(folder), "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.skipif(jax.__version_info__ < cache.SOUND, reason="this JAX does not reload programs")
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first["misses"] > 0
    assert (second["hits"] > 0, second["misses"]) == (True, 0)
    assert second["loss"] == first["loss"]


@pytest.mark.skipif(jax.__version_info__ < cache.SOUND, reason="this JAX does not reload programs")
def test_a_spoilt_file_is_compiled_anew_in_silence(tmp_path: Path) -> None:
    loss = run(tmp_path)["loss"]
    for file in tmp_path.rglob("*-cache"):
        file.write_bytes(file.read_bytes()[:100])
    assert run(tmp_path)["loss"] == loss


def test_the_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version_info__", cache.SOUND)
    monkeypatch.setenv("OMKL_CACHE", "off")
    assert cache.folder() is None
    monkeypatch.setenv("OMKL_CACHE", str(tmp_path / "mine"))
    place = cache.folder()
    assert place is not None
    assert place.parent == tmp_path / "mine"
    monkeypatch.delenv("OMKL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "omkl" / "xla" / place.name
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 1))
    assert cache.folder() is None


@pytest.mark.skipif(jax.__version_info__ < cache.SOUND, reason="this JAX does not reload programs")
@pytest.mark.usefixtures("unset")
def test_settings_are_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMKL_CACHE", str(tmp_path))
    before = settings()
    with pytest.raises(ZeroDivisionError), cache.kept_programs():
        raise ZeroDivisionError
    assert settings() == before
    with cache.kept_programs():
        assert settings() == [str(cache.folder()), *cache.SETTINGS.values()]
    assert settings() == before
    with cache.kept_programs():  # what the user sets meanwhile is the user's
        jax.config.update("jax_compilation_cache_dir", "/theirs")  # type: ignore[no-untyped-call]
    assert settings() == ["/theirs", *before[1:]]


@pytest.mark.usefixtures("unset")
def test_a_cache_that_is_set_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMKL_CACHE", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", "/theirs")  # type: ignore[no-untyped-call]
    with cache.kept_programs():
        assert settings()[0] == "/theirs"
    assert settings()[0] == "/theirs"


def test_a_folder_that_cannot_be_written_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run(tmp_path / "file" / "below")["hits"] == 0
