from typing import Literal

import pytest

import omkl
from omkl.errors import InputError
from omkl.methods import METHODS, PRESETS
from omkl.settings import REQUIRED, build, settings


def test_a_class_has_defaults_and_an_object_its_own_values() -> None:
    plain, own = settings(omkl.Gossip), settings(omkl.recommended())
    assert list(plain) == list(own)
    assert (plain["gamma"].default, own["gamma"].default) == (0.009, 0.6)
    assert plain["gamma"].hint == float | Literal["auto"]
    assert settings(omkl.Experiment)["data"].default is REQUIRED
    assert settings(omkl.topology.erdos_renyi)["nodes"].default is REQUIRED


def test_what_docstrings_say_is_told_of_settings_of_base_classes_too() -> None:
    told = {name: one.doc for name, one in settings(omkl.Choco).items()}
    assert told["eta"] == "Learning rate of gradient steps."
    assert told["fresh"].startswith("Compress first, then mix with the copies that were just updated")
    assert all(told.values())
    assert all(one.doc for one in settings(omkl.Experiment).values())


@pytest.mark.parametrize("name", [*PRESETS, *METHODS.own])
def test_an_object_is_built_again_of_its_settings(name: str) -> None:
    method = (PRESETS[name] if name in PRESETS else METHODS[name])()
    values = {key: one.default for key, one in settings(method).items()}
    assert build(type(method), values) == build(method, {}) == method
    assert build(method, {"regularization": 0.5}).regularization == 0.5


def test_unknown_and_missing_settings_are_refused_by_their_key() -> None:
    with pytest.raises(InputError, match="unknown setting 'gama'; did you mean 'gamma'") as unknown:
        build(omkl.recommended(), {"gama": 0.1})
    with pytest.raises(InputError, match="data is missing; it has no default") as missing:
        build(omkl.Experiment, {"nodes": 3})
    assert (unknown.value.key, missing.value.key) == ("gama", "data")
