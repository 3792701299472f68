"""The three executors of the simulator give the same curves and models: compiled loops, JAX, and NumPy.

JAX's rounds are what the others are held to; ``test_simulator`` holds them to the algorithm. Methods that send exact
numbers agree to rounding over whole runs. Where levels are rounded, a number next to the border of a level may fall on
either side of it, and what follows differs: there few rounds are compared, at large steps, in which another dither,
level, step or weight would move every model and a flipped level moves a few.
"""

from typing import Any

import networkx as nx
import numpy as np
import pytest

import omkl
from omkl import QSGD, Choco, Faults, Gossip, Nearest, Sign, gaussian
from omkl.features import Features
from omkl.learners import SGD, AdaGrad, Newton, Pooled, Shared
from omkl.methods import Method
from omkl.simulator import engine, loops
from omkl.topology import Schedule
from tests.executors import ARRAYS, LOOPS, SCANS, assert_same, blobs, by, compare

pytest.importorskip("numba")

EXACT: dict[str, Method] = {
    "default": omkl.recommended(quantizer="exact"),
    "frugal": omkl.frugal(quantizer="exact"),
    "default, clipped": omkl.recommended(quantizer="exact", clip=0.1),
    "default, three classes": omkl.recommended(quantizer="exact", loss=omkl.Softmax(classes=3)),
    "default, numbers": omkl.recommended(quantizer="exact", loss="squared"),
    "default, forgets": omkl.recommended(quantizer="exact", learner=Pooled(forget=0.95)),
    "default, margins": omkl.recommended(quantizer="exact", loss="smoothed_hinge"),
    "default, outliers": omkl.recommended(quantizer="exact", loss=omkl.Huber(delta=0.5)),
    "paper's": Gossip(eta=0.5, gamma=0.3, quantizer=None),
    "paper's, three classes": Gossip(eta=0.5, gamma=0.3, quantizer=None, loss=omkl.Softmax(classes=3)),
    "paper's, numbers": Gossip(eta=0.05, gamma=0.3, quantizer=None, loss="squared"),
    "rates fall": Gossip(learner=SGD(0.5, decay="sqrt"), gamma=0.3, quantizer=None, momentum=0.3),
    "adagrad": Gossip(learner=AdaGrad(0.5), gamma=0.3, quantizer=None, clip=0.4),
    "newton": Gossip(learner=Newton(10, block=20, forget=0.99), regularization=0, gamma=0.5, quantizer=None),
    "shared": Gossip(
        learner=Shared(30), basis=omkl.Basis(rank=12), regularization=0, gamma=0.5, quantizer=None, common_weights=True
    ),
    "choco": Choco(eta=0.5, gamma=0.3, quantizer=None),
    "alone": omkl.Local(
        learner=Pooled(), basis=omkl.recommended().bank.basis, sigma="median", regularization=0, loss="squared"
    ),
    "alone, gradient steps": omkl.Local(eta=0.5),
}
COARSE: dict[
    str, Method
] = {  # one message a sample: of the first samples the default sends several, whose flips add up
    "default": omkl.recommended(pace=None),
    "frugal": omkl.frugal(pace=None),
    "default, three classes": omkl.recommended(pace=None, loss=omkl.Softmax(classes=3)),
    "default, blocks": omkl.recommended(pace=None, quantizer=Nearest(block=41)),
    "paper's": Gossip(eta=0.3, gamma=0.3, quantizer=QSGD(bits=3)),
    "one bit": Gossip(eta=0.3, gamma=0.3, quantizer=QSGD(bits=1, rescale=True)),
    "many levels": Gossip(eta=0.3, gamma=0.3, quantizer=QSGD(bits=8, block=8)),
    "nearest": Gossip(eta=0.3, gamma=0.3, quantizer=Nearest(step=0.5)),
    "signs": Gossip(eta=0.3, gamma=0.3, quantizer=Sign()),
}


def of(method: Method) -> str:
    name: str = method.objective.name
    return name


@pytest.mark.parametrize("executor", [LOOPS, ARRAYS])
@pytest.mark.parametrize("name", EXACT)
def test_whole_runs_are_the_same_but_for_rounding(name: str, executor: str) -> None:
    method = EXACT[name]
    given: Any = blobs(60, 6, loss=of(method)), {"": (method, "ring")}
    here, there = (compare(one, *given, seeds=2)[""] for one in (SCANS, executor))
    assert_same(there, here)


@pytest.mark.parametrize("executor", [LOOPS, ARRAYS])
@pytest.mark.parametrize("name", COARSE)
def test_levels_are_the_same_but_for_flips(name: str, executor: str) -> None:
    method = COARSE[name]
    given: Any = blobs(5, 6, loss=of(method)), {"": (method, "path")}
    here, there = (compare(one, *given, seeds=4)[""] for one in (SCANS, executor))
    assert_same(there, here, flipped=0.25)


@pytest.mark.parametrize("name", ["default", "paper's"])
def test_losses_over_a_whole_stream_agree(name: str) -> None:
    method = omkl.recommended() if name == "default" else omkl.paper()
    results = [compare(one, "banana", {"": (method, "path")}, nodes=20, seeds=4)[""] for one in (SCANS, LOOPS, ARRAYS)]
    first, *others = (result.loss.mean() for result in results)
    # Quantization as such moves the mean of four seeds by .0004; the paper's steps are too small for a level to matter.
    assert others == pytest.approx([first] * 2, abs=1e-3 if name == "default" else 1e-5)
    sent, *more = (result.bits.mean() for result in results)
    assert more == pytest.approx([sent] * 2, rel=5e-3)


@pytest.mark.parametrize(
    ("topology", "nodes"), [("path", 2), ("complete", 7), ("ring", 200), ("star", 300), (nx.empty_graph(1), 1)]
)
def test_networks(topology: Any, nodes: int) -> None:
    cases = {"default": (EXACT["default"], topology), "forgets": (EXACT["default, forgets"], topology)}
    given: Any = blobs(12, nodes), cases
    here, there = (compare(one, *given, seeds=1) for one in (SCANS, LOOPS))
    for name in cases:
        assert_same(there[name], here[name])


@pytest.mark.parametrize(
    "change", [{"faults": Faults(links=0.3, nodes=0.1)}, {"schedule": True}, {"both": True}], ids=str
)
@pytest.mark.parametrize("name", ["default", "paper's"])
def test_networks_that_change(name: str, change: dict[str, Any]) -> None:
    topology = "star" if "faults" in change else Schedule(["ring", "path"])
    faults = None if "schedule" in change else Faults(links=0.3, nodes=0.1)
    given: Any = blobs(40, 8), {"": (EXACT[name], topology)}
    here, there = (compare(one, *given, seeds=2, faults=faults)[""] for one in (SCANS, LOOPS))
    assert_same(there, here)
    assert (there.link_bits < there.link_bits.max()).any()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("every", "rows"), [(1, 1), (7, 35), (4, 1000), (50, 40)])
def test_records_whatever_the_chunks(every: int, rows: int, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "ROWS", rows)
    monkeypatch.setattr(loops, "LARGE", 3 if large else 2000)
    given: Any = blobs(50, 5), {"a": (EXACT["default"], "ring"), "b": (EXACT["default, forgets"], "path")}
    here, there = (compare(one, *given, seeds=2, record_every=every) for one in (SCANS, LOOPS))
    for name, result in there.items():
        assert result.rounds.tolist() == list(range(every - 1, 50, every))
        assert_same(result, here[name])


def test_a_seed_is_the_same_in_any_company_and_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = blobs(40, 5), {"": (omkl.recommended(), "ring")}
    many = compare(LOOPS, *given, seeds=5, seed=3)[""]
    monkeypatch.setattr(loops, "cores", lambda: 1)
    one = compare(LOOPS, *given, seed=6)[""]
    np.testing.assert_array_equal(many.loss[3], one.loss[0])
    np.testing.assert_array_equal(many.theta[:, 3], one.theta[:, 0])


def test_cases_of_several_executors() -> None:
    told: list[tuple[int, int]] = []
    cases: dict[str, tuple[Method, str]] = {
        "first": (Gossip(quantizer=None, weigh_first=True), "ring"),
        "second": (EXACT["paper's"], "ring"),
        "third": (omkl.Complete(), "complete"),
    }
    with by(LOOPS) as ran:
        together = omkl.compare(blobs(40, 5), cases, seeds=2, progress=lambda *now: told.append(now))
    assert ran == [LOOPS, SCANS]
    assert told == sorted(told)
    assert told[-1] == (40, 40)
    for name, (method, topology) in cases.items():
        apart = compare(SCANS, blobs(40, 5), {"": (method, topology)}, seeds=2)[""]
        assert_same(together[name], apart)


def test_cases_of_several_banks() -> None:
    cases = {
        "three": (Gossip(quantizer=None, weight_rate=2.0), "ring"),
        "one": (Gossip(kernels=gaussian(1), quantizer=None), "ring"),
        "choco": (Choco(quantizer=None, gamma=0.5), "path"),
    }
    here, there = (compare(one, blobs(60, 5), cases, seeds=2) for one in (SCANS, LOOPS))
    for name in cases:
        assert_same(there[name], here[name])


@pytest.mark.parametrize("executor", [LOOPS, SCANS, ARRAYS])
def test_zero_inputs(executor: str) -> None:
    X, y = blobs(30, 4)
    X[:, :, 1:] = 0
    here, there = (compare(one, (X, y), {"": (EXACT["default"], "ring")}, seeds=2)[""] for one in (SCANS, executor))
    assert_same(there, here)


@pytest.mark.parametrize("executor", [LOOPS, SCANS, ARRAYS])
def test_divergence_is_told_with_its_round(executor: str) -> None:
    with by(executor), pytest.raises(omkl.DivergedError, match=r"at round \d+ of seed 4"):
        omkl.simulate(blobs(60, 4, loss="squared"), "ring", method=Gossip(eta=1e6, loss="squared"), seeds=1, seed=4)


def test_progress_is_told_and_may_stop_the_run() -> None:
    told: list[tuple[int, int]] = []
    for executor in (LOOPS, SCANS, ARRAYS):
        with by(executor):
            omkl.simulate(blobs(40, 5), "ring", seeds=3, progress=lambda *now: told.append(now))
        assert told[-1] == (40, 40)
        assert told == sorted(told)
        told.clear()

    def interrupt(done: int, rounds: int) -> None:
        raise KeyboardInterrupt

    with by(LOOPS), pytest.raises(KeyboardInterrupt):
        omkl.simulate(blobs(60, 4), "ring", seeds=3, progress=interrupt)


@pytest.mark.parametrize(
    ("method", "options", "taken"),
    [
        (omkl.recommended(), {}, LOOPS),
        (omkl.paper(), {"faults": Faults(links=0.1)}, LOOPS),
        (Gossip(quantizer=Sign()), {"topology": Schedule(["ring", "path"])}, LOOPS),
        (omkl.recommended(), {"pooled": True}, SCANS),
        (Gossip(weigh_first=True), {}, SCANS),
        (Gossip(sending="sampled"), {}, SCANS),
        (Gossip(learner=type("Mine", (SGD,), {})(0.1)), {}, SCANS),
        (Choco(fresh=True), {}, SCANS),
        (omkl.Local(), {}, LOOPS),
        (omkl.Complete(), {"topology": "complete"}, SCANS),
    ],
)
def test_each_run_has_its_executor(method: Method, options: dict[str, Any], taken: str) -> None:
    with by(LOOPS) as ran:
        omkl.simulate(blobs(4, 4), **{"topology": "ring", "method": method, **options})
    assert ran == [taken]


def test_small_runs_are_numpys_and_long_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.is_small(*problem(rounds=265, seeds=2))
    assert not engine.is_small(*problem(rounds=1500, seeds=2))
    assert not engine.is_small(*problem(rounds=265, seeds=200))
    assert engine.is_small(*problem(rounds=265, seeds=2, marks=500))
    assert not engine.is_small(*problem(rounds=265, seeds=20, marks=500))


def problem(rounds: int, seeds: int, marks: int = 0) -> tuple[engine.Problem, list[engine.Case]]:
    X = np.zeros((rounds, 20, 2), np.float32)
    features = Features(None, landmarks=np.zeros((seeds, marks, 2), np.float32) if marks else None)
    case = engine.Case(omkl.paper(), (omkl.topology.build("path", 20),))
    return engine.Problem(X, X[..., :1], features, list(range(seeds))), [case]


def test_without_numba_runs_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with by(LOOPS) as ran, pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "compiled_loops", lambda: None)
        omkl.simulate(blobs(4, 4), "ring")
    assert ran == [SCANS]
