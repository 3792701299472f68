"""Checks for methods."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl import topology
from omkl.arrays import Array
from omkl.errors import InputError, MissingExtraError
from omkl.methods import Algorithm, Gossip, Info, Method, Neighbors, Round
from omkl.methods.protocol import MethodState
from omkl.testing.losses import targets
from omkl.testing.running import (
    Call,
    Check,
    Report,
    Skipped,
    another_global_seed,
    close,
    frozen,
    leaves,
    mapped,
    mapped_back,
    on_jax,
    on_strict,
    require,
    require_members,
    require_value,
    run,
    same,
    unharmed,
)

NODES, SEEDS, STEPS = 5, 2, 60
FAR = NODES - 1

Floats = npt.NDArray[Any]


def check_method(method: Method) -> Report:
    """Return what was checked of a method; raise ``Failed`` with a line for every check that it fails.

    Give it few features, and a rate at which sixty samples make a difference.

    Examples
    --------
    >>> import omkl
    >>> len(omkl.testing.check_method(omkl.Local(features=6, eta=0.5)).passed) > 5
    True
    """
    return run(settled(method), METHOD)


def has_the_members(method: Method) -> None:
    """Require that a method has all that the protocol lists."""
    require_members(method, Algorithm, "method")


def is_its_settings(method: Method) -> None:
    """Require that two methods of equal settings are equal, and can be made from them."""
    require_value(method)


def takes_a_graph(method: Method) -> None:
    """Require that it takes a path of five nodes, or the complete graph if it needs all links; else it says why not."""
    graph(method)


def has_shapes(method: Method) -> None:
    """Require that outputs, losses, models and weights have an axis of nodes, then one of seeds, then their own."""
    given = rounds(method, 2)
    state, infos = play(method, given)
    c, p, n = given[0].y.shape[-1], method.bank.members, method.bank.width
    theta, log_weights = method.models(state)
    lead, weighed = (NODES, SEEDS), len(method.labels)
    shapes = {
        "info.output": (infos[-1].output, (*lead, c)),
        "info.loss": (infos[-1].loss, lead),
        "info.message_bytes": (infos[-1].message_bytes, lead),
        "info.log_weights": (infos[-1].log_weights, (*lead, weighed)),
        "the models": (theta, (*lead, weighed, c, n)),
        "the log weights": (log_weights, (*lead, weighed)),
    }
    for name, (array, wanted) in shapes.items():
        found = getattr(array, "shape", None)
        rule = f"for {NODES} nodes, {SEEDS} seeds, {p} models, {weighed} labels, {c} outputs and {n} features"
        require(found == wanted, f"{name}: shape {found}; it must be {wanted} {rule}; see 'Add a method' in the docs")
        kind = getattr(array, "dtype", None)
        require(kind == np.float32, f"{name}: {kind}; numbers are float32; make settings Python floats by errors.real")
    sizes = np.asarray(infos[-1].message_bytes)
    whole = bool((sizes >= 0).all() and (sizes == np.rint(sizes)).all())
    require(whole, f"info.message_bytes has {sizes.ravel()[0]:g}; bytes are whole; use omkl.wire.message_bytes")


def keeps_its_shapes(method: Method) -> None:
    """Require that the state has the same shapes and types after a round as before."""
    given = rounds(method, 1)
    before = start(method, given[0])
    require(isinstance(before, tuple), f"init returns {type(before).__name__}; a state is a NamedTuple of arrays")
    after, _ = method.step(before, given[0], neighbors(method))
    same_kind = type(after) is type(before) and len(list(leaves(after))) == len(list(leaves(before)))
    require(same_kind, f"step returns another state than init: {type(after).__name__}; use state._replace(...)")
    for old, new in zip(leaves(before), leaves(after), strict=True):
        now = (getattr(new, "shape", None), getattr(new, "dtype", type(new).__name__))
        rule = "a simulation carries it through a loop, which needs one shape and type; keep those of init"
        require(now == (old.shape, old.dtype), f"{old.shape} {old.dtype} became {now[0]} {now[1]}; {rule}")


def predicts_before_it_learns(method: Method) -> None:
    """Require that outputs are those from before the node has seen the sample's target."""
    if getattr(getattr(method, "weights", None), "first", False):
        raise Skipped("weigh_first is True: the paper scores with weights that have seen the sample")
    *before, last = rounds(method, 4)
    state, _ = play(method, before)
    told = [method.step(state, last._replace(y=y), neighbors(method))[1].output for y in (last.y, last.y[::-1])]
    rule = "predict from the state that step was given; learn the sample afterwards"
    close(told[0], told[1], f"the output of a round depends on the target of that round; {rule}")


def hears_neighbors_alone(method: Method) -> None:
    """Require that what a node learns does not reach those two links away in the same round."""
    if not method.endures_faults:
        raise Skipped("endures_faults is False: every node hears all others in every round")
    *before, last = rounds(method, 4)
    state, _ = play(method, before)
    there = [play(method, [one], state)[0] for one in (last, last._replace(z=_but_first(last.z)))]
    ends = [method.models(one)[0][2:] for one in there]
    rule = "a message takes a round for each link; reach others by network.mix alone, once a round"
    close(ends[0], ends[1], f"the sample of node 0 changes node 2 of a path in the same round; {rule}")


def seeds_are_alone(method: Method) -> None:
    """Require that a run under one seed does not depend on others beside it."""
    given = rounds(method, 4)
    together, infos = play(method, given)
    one = [_of_seed(round_, SEEDS - 1) for round_ in given]
    alone, own = play(method, one)
    rule = "seeds together differ from a seed alone; the axes between nodes and (P, C, n) are free: reduce over none"
    last = mapped_back(lambda part: part[:, -1:], (method.models(together), infos[-1].loss))
    close((method.models(alone), own[-1].loss), last, rule)


def depends_on_its_arguments_alone(method: Method) -> None:
    """Require that the same state and samples give the same models, whatever was asked before."""
    given = rounds(method, 3)
    rule = "a second run gives other models; keep nothing in the object, and take randomness from inputs.uniforms"
    with another_global_seed(1):
        first, _ = play(method, given)
    play(method, given[::-1])
    with another_global_seed(2):
        same(first, play(method, given)[0], rule)


def leaves_its_input_alone(method: Method) -> None:
    """Require that a step writes into no argument."""
    *before, last = rounds(method, 2)
    state, _ = play(method, before)
    given = frozen(state), Round(*frozen(tuple(last))), neighbors(method)
    unharmed(lambda: method.step(*given), "step")


def lives_alone(method: Method) -> None:
    """Require that a network of one node, and one whose links all have weight zero, give finite numbers."""
    single = rounds(method, 3, nodes=1)
    cut = neighbors(method)._replace(weights=0 * neighbors(method).weights)
    nobody = Neighbors(np.zeros((1, 1), dtype=np.intp), np.zeros((1, 1), dtype=np.float32))
    for what, given, network in (("one node", single, nobody), ("no link", rounds(method, 3), cut)):
        state, infos = play(method, given, network=network)
        finite = all(np.isfinite(part).all() for part in (*method.models(state), infos[-1].loss))
        require(finite, f"a network of {what} gives inf or nan; a node without neighbors learns alone; divide by none")


def learns(method: Method) -> None:
    """Require that the loss falls on a task that models of its features can learn."""
    _, infos = play(method, rounds(method, STEPS, learnable=True))
    curve = [float(np.mean(info.loss)) for info in infos]
    before, after = (float(np.mean(part)) for part in (curve[: STEPS // 4], curve[-STEPS // 4 :]))
    rule = "it must fall; raise eta in what you check, or follow -gradient"
    require(after < before, f"the loss went from {before:.4g} to {after:.4g} in {STEPS} rounds; {rule}")


def is_the_same_on_strict_arrays(method: Method) -> None:
    """Require that array-api-strict gives the same models."""
    _same_elsewhere(method, on_strict, "array_api_strict")


def is_the_same_under_jit(method: Method) -> None:
    """Require that JAX gives the same models when it compiles the method."""
    _same_elsewhere(method, on_jax, "jax.jit")


def runs_in_a_simulation(method: Method) -> None:
    """Require that ``omkl.simulate`` runs it, on a network that changes where it takes one."""
    import omkl

    rng = np.random.default_rng(7)
    X = rng.normal(size=(12, NODES, 3)).astype(np.float32)
    y = targets(method.objective, rng, (12, NODES))
    labels = method.objective.decide(y)
    options: dict[str, Any] = {"faults": topology.Faults(links=0.3)} if method.endures_faults else {}
    try:
        result = omkl.simulate((X, np.asarray(labels)), graph(method), method=method, seeds=SEEDS, **options)
    except MissingExtraError as error:
        raise Skipped(str(error)) from None
    finite = bool(np.isfinite(result.loss).all() and np.isfinite(result.theta).all())
    require(finite, "a simulation of 12 rounds gives inf or nan; lower the rate of what you check")


def settled(method: Method) -> Method:
    """Return a method with the numbers that follow from its graph."""
    return method.on(graph(method)) if isinstance(method, Gossip) else method


def graph(method: Method) -> topology.Topology:
    """Return a path, or the complete graph for a method that takes no other."""
    error: InputError | None = None
    for make in (topology.path, topology.complete):
        made = topology.metropolis(make(NODES))
        try:
            method.check(made)
        except InputError as refused:
            error = refused
        else:
            return made
    raise AssertionError(f"check refuses a path and the complete graph of {NODES} nodes: {error}; accept one of them")


def neighbors(method: Method) -> Neighbors:
    """Return that graph as lists of neighbors."""
    ids, weights = graph(method).neighbors()
    return Neighbors(ids, weights.astype(np.float32))


def rounds(method: Method, count: int, nodes: int = NODES, learnable: bool = False) -> list[Round]:
    """Return so many rounds of samples, the seeds of one round with targets in common."""
    rng = np.random.default_rng(count)
    p, n, found = method.bank.members, method.bank.width, list[Round]()
    loss = method.objective
    c = targets(loss, rng, (1,)).shape[-1]
    truth = rng.normal(size=(c, n))
    for k in range(count):
        z = (rng.normal(size=(nodes, 1, p, n)) / np.sqrt(n)).astype(np.float32)
        y = targets(loss, rng, (nodes, 1))
        if learnable:
            z = z[:, :, :1] + 0 * z
            y = _learnable(loss, z[:, :, 0] @ truth.T, y)
        apart = 0.0 if learnable else 0.1 * rng.normal(size=(1, SEEDS, 1, 1))
        z = np.broadcast_to(z, (nodes, SEEDS, p, n)) + apart
        shape = nodes, SEEDS, p, c, method.sent
        uniforms = rng.uniform(size=shape).astype(np.float32) if method.dithered else None
        found.append(Round(z.astype(np.float32), y, uniforms, k))
    return found


def _learnable(loss: Any, f: Floats, y: Floats) -> Floats:
    """Return targets of the same kind as y that outputs f explain."""
    if y.shape[-1] > 1 and hasattr(loss, "classes"):
        made: Floats = np.eye(y.shape[-1])[f.argmax(axis=-1)]
    else:
        made = f if np.isnan(loss.score(f, y)).any() else np.sign(f)
    return made.astype(np.float32)


def start(method: Method, given: Round, xp: Any = np) -> MethodState:
    """Return the state before the first round, in a basis where the method has one."""
    bank = method.bank
    spectrum = None if bank.basis is None else xp.asarray(_spectrum(bank.members, bank.width))
    state: MethodState = method.init(xp, given.z.shape[:-2], given.y.shape[-1], spectrum)
    return state


@cache
def _spectrum(members: int, width: int) -> Floats:
    return np.tile((0.9 ** np.arange(width)).astype(np.float32), (members, 1))


def play(
    method: Method,
    given: list[Round],
    state: MethodState | None = None,
    network: Neighbors | None = None,
    xp: Any = np,
) -> tuple[MethodState, list[Info]]:
    """Return the state after so many rounds, and what was measured in each."""
    network = neighbors(method) if network is None else network
    state = start(method, given[0], xp) if state is None else state
    infos = []
    for round_ in given:
        made = method.step(state, round_, network)
        good = isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Info)
        require(good, f"step returns {type(made).__name__}; it must return the state and an Info: (state, info)")
        state, info = made
        infos.append(info)
    return state, infos


def _same_elsewhere(method: Method, there: Call, where: str) -> None:
    given, network = rounds(method, 3), neighbors(method)

    def models(z: Any, y: Any, uniforms: Any, ids: Array, weights: Array) -> Any:
        xp = z[0].__array_namespace__()
        each = [Round(*parts, None, k) for k, parts in enumerate(zip(z, y, strict=True))]
        if uniforms:
            each = [one._replace(uniforms=u) for one, u in zip(each, uniforms, strict=True)]
        state, infos = play(method, each, network=Neighbors(ids, weights), xp=xp)
        return method.models(state), infos[-1].loss

    parts = [tuple(getattr(one, name) for one in given) for name in ("z", "y")]
    uniforms = tuple(one.uniforms for one in given) if method.dithered else ()
    found = there(models, *parts, uniforms, *network)
    wanted = models(parts[0], parts[1], uniforms, *network)
    rule = "one text serves all libraries; take functions from omkl.arrays.namespace, and no `if` on values"
    close(found, wanted, f"models differ under {where}; {rule}", rtol=1e-3, atol=1e-4)


def _but_first(array: Floats) -> Floats:
    """Return features of which those of node 0 are in another order."""
    return np.concatenate([array[:1, ..., ::-1], array[1:]])


def _of_seed(given: Round, seed: int) -> Round:
    def part(array: Floats) -> Floats:
        return array if array.shape[1] == 1 else array[:, seed : seed + 1]

    return Round(*mapped(part, tuple(given)))


METHOD: tuple[Check, ...] = (
    has_the_members,
    is_its_settings,
    takes_a_graph,
    has_shapes,
    keeps_its_shapes,
    predicts_before_it_learns,
    hears_neighbors_alone,
    seeds_are_alone,
    depends_on_its_arguments_alone,
    leaves_its_input_alone,
    lives_alone,
    learns,
    is_the_same_on_strict_arrays,
    is_the_same_under_jit,
    runs_in_a_simulation,
)
"""The checks of ``check_method``, by themselves."""
