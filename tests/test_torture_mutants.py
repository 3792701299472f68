"""Rules broken on purpose: the fault simulation finds each within few seeds."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from omkl import algorithm, wire
from omkl.algorithm import State
from omkl.compiled import plan
from omkl.compiled.node import Loops
from omkl.methods import Channel
from omkl.node import links, protocol
from omkl.node.events import Damaged, Event, Lost, Scored
from omkl.node.halves import Arrays, Floats
from omkl.node.leaps import MOST_SKIPPED, Leaps
from omkl.node.learning import Learning
from omkl.node.links import TRANSITIONS, Kept, Link, LinkState, Signal
from omkl.node.neighbors import Neighbors
from omkl.node.persistence import Saver, checkpoint, count, saver
from omkl.node.protocol import Protocol
from omkl.node.recovery import Recovery
from omkl.node.role import Role, agreed
from omkl.node.start import Start
from omkl.wire import Header, Kind, frames
from omkl_lab.torture import ALL, FAULTS, Faults, runs
from omkl_lab.torture.disk import Disk
from omkl_lab.torture.world import World

MOST_SEEDS = 40
BEGINNINGS = {kind: ALL[kind] for kind in ("back-off", "forged round")}
Patch = pytest.MonkeyPatch
Text: TypeAlias = type[Arrays] | type[Loops]


def changing_headers(patch: Patch, change: Callable[[Link, Header], Header]) -> None:
    """Let every message look as if it were another boot's or round's."""
    gossip = Link.gossip
    patch.setattr(Link, "gossip", lambda self, header, *given: gossip(self, change(self, header), *given))


def without_the_round_check(patch: Patch) -> None:
    changing_headers(patch, lambda link, header: header._replace(round=link.have + 1))


def without_the_frame_check(patch: Patch) -> None:
    patch.setattr(frames, "_require", lambda rest: None)


def taking_messages_of_an_older_boot(patch: Patch) -> None:
    """Let the check of gossip leave out the boot, which is not sent either."""
    write, verify = frames._write, frames._verify_gossip

    def written(kind: Kind, boot: int, *rest: Any) -> bytes:
        return write(kind, 0 if kind in wire.GOSSIP else boot, *rest)

    patch.setattr(frames, "_write", written)
    patch.setattr(frames, "_verify_gossip", lambda data, sender, seed: verify(data, (0, sender[1]), seed))


def saving_in_place(patch: Patch) -> None:
    write = Disk.write
    patch.setattr(Disk, "write", lambda self, path, content: write(self, path.with_suffix(""), content))
    patch.setattr(Disk, "move", lambda self, source, target: None)


def with_the_same_boot_after_a_crash(patch: Patch) -> None:
    fill = checkpoint._fill

    def same(protocol: Protocol, saved: Any, same_boot: bool) -> None:
        fill(protocol, saved, same_boot)
        protocol.neighbors.boot = saved.header["boot"]

    patch.setattr(checkpoint, "_fill", same)


def trusting_an_old_checkpoint(patch: Patch) -> None:
    patch.setattr(Neighbors, "_warn", lambda self, *_: False)
    patch.setattr(Start, "renew", lambda self, boot: boot)
    patch.setattr(Start, "claims", lambda self, trusted: iter(()))


def agreed_weights(self: Neighbors) -> Floats:
    return np.array([link.weight for link in self.links.values()], dtype=np.float32)


def with_the_weights_of_all(patch: Patch) -> None:
    patch.setattr(Neighbors, "weights", property(agreed_weights))


def with_weights_dealt_out_anew(patch: Patch) -> None:
    def dealt(self: Neighbors) -> Any:
        synced = [link.state is LinkState.SYNCED for link in self.links.values()]
        return agreed_weights(self) * synced * len(synced) / max(1, sum(synced))

    patch.setattr(Neighbors, "weights", property(dealt))


def acknowledging_before_saving(patch: Patch) -> None:
    def settle(self: Saver) -> bool:
        self._acknowledge()
        return True

    patch.setattr(Saver, "settle", settle)


def losing_without_a_word(patch: Patch) -> None:
    patch.setattr(Saver, "_look_back", lambda self, path: None)


def leaving_out_for_ever(patch: Patch) -> None:
    patch.setitem(TRANSITIONS, LinkState.LEFT_OUT, {Signal.DIFFERED: LinkState.REFUSED})


def asking_without_a_pause(patch: Patch) -> None:
    ask = Link.ask

    def at_once(self: Link, now: float) -> Any:
        have = ask(self, now)
        self.ask_at = now
        return have

    patch.setattr(Link, "ask", at_once)


def keeping_every_message(patch: Patch) -> None:
    patch.setattr(Link, "keep", lambda self, at, data: self.inbox.__setitem__(at, data))


def scoring_without_learning(patch: Patch) -> None:
    learn = Protocol._learn

    def forgetful(self: Protocol, x: Floats, y: Floats | None) -> None:
        if self.taken % 5:
            learn(self, x, y)
        else:
            self.taken += 1
            self._events.append(Scored(self.round, self.predict(x), None if y is None else 0.5))

    patch.setattr(Protocol, "_learn", forgetful)


def changing_what_is_learned(patch: Patch, text: Text, change: Callable[[State, State], State]) -> None:
    """Let one text make something else of a sample."""
    learn: Any = text.learn

    def changed(self: Any, x: Floats, y: Floats) -> Any:
        before = self.state
        told = learn(self, x, y)
        self.state = change(before, self.state)
        return told

    patch.setattr(text, "learn", changed)


def learning_four_of_five(patch: Patch, text: Text) -> None:
    calls = iter(range(10**9))
    changing_what_is_learned(patch, text, lambda before, after: after if next(calls) % 5 else before)


def without_kernel_weights(patch: Patch, text: Text) -> None:
    changing_what_is_learned(patch, text, lambda before, after: after._replace(log_weights=before.log_weights))


def learning_zeros_for_labels(patch: Patch) -> None:
    learn = Learning._learn
    patch.setattr(Learning, "_learn", lambda self, x, y: learn(self, x, np.zeros_like(y)))


def taking_zeros_for_labels(patch: Patch) -> None:
    targets = Learning.targets
    patch.setattr(Learning, "targets", lambda self, y: np.zeros_like(targets(self, y)))


def learning_the_last_sample_first(patch: Patch) -> None:
    learn = Protocol._learn

    def last(self: Protocol, x: Floats, y: Floats | None) -> None:
        self.waiting.append((x, y))
        learn(self, *self.waiting.pop() if len(self.waiting) < 3 else self.waiting.popleft())

    patch.setattr(Protocol, "_learn", last)


def changing_what_is_restored(patch: Patch, change: Callable[[Protocol], None]) -> None:
    """Let a checkpoint bring back something else than was saved."""
    fill = checkpoint._fill

    def changed(protocol: Protocol, saved: Any, same_boot: bool) -> None:
        fill(protocol, saved, same_boot)
        change(protocol)

    patch.setattr(checkpoint, "_fill", changed)


def restoring_no_labels(patch: Patch) -> None:
    def unlabel(node: Protocol) -> None:
        samples = [(x, None) for x, _ in node.waiting]
        node.waiting.clear()
        node.waiting.extend(samples)

    changing_what_is_restored(patch, unlabel)


def restoring_no_weights(patch: Patch) -> None:
    def forget(node: Protocol) -> None:
        state = node.learning.state
        node.learning.state = state._replace(log_weights=np.zeros_like(state.log_weights))

    changing_what_is_restored(patch, forget)


def changing_what_is_recovered(patch: Patch, change: Callable[[State, State], Floats]) -> None:
    """Let the models be something else after a hidden state was given back."""
    recover = Recovery._recover

    def changed(self: Recovery, peer: str, kept: Kept, start: Start, now: float) -> None:
        learning = self._neighbors.learning
        before = learning.state
        recover(self, peer, kept, start, now)
        learning.state = learning.state._replace(theta=change(before, learning.state))

    patch.setattr(Recovery, "_recover", changed)


def recovering_nothing(patch: Patch) -> None:
    changing_what_is_recovered(patch, lambda before, after: np.zeros_like(after.theta))


def recovering_without_what_was_learned(patch: Patch) -> None:
    changing_what_is_recovered(patch, lambda before, after: after.hidden.copy())


def changing_reports(patch: Patch, change: Callable[[Event], Event | None]) -> None:
    """Let something else be told of what happened outside."""
    report = Protocol.report

    def changed(self: Protocol, event: Event) -> None:
        if (told := change(event)) is not None:
            report(self, told)

    patch.setattr(Protocol, "report", changed)


def not_telling_of_a_loss(patch: Patch) -> None:
    changing_reports(patch, lambda event: None if isinstance(event, Lost) else event)


def telling_of_too_great_a_loss(patch: Patch) -> None:
    changing_reports(patch, lambda event: Lost(event.observations + 1) if isinstance(event, Lost) else event)


def not_telling_of_damage(patch: Patch) -> None:
    changing_reports(patch, lambda event: None if isinstance(event, Damaged) else event)


def counting_one_that_was_not_acknowledged(patch: Patch) -> None:
    count = Saver._acknowledge

    def more(self: Saver) -> None:
        self.protocol.taken += 1
        count(self)
        self.protocol.taken -= 1

    patch.setattr(Saver, "_acknowledge", more)


def miscounting_after_an_old_file(patch: Patch) -> None:
    bring_back, count = World.bring_back, Saver._acknowledge
    aged = set()

    def noted(self: World, id: str, *files: Any) -> None:
        aged.add(id)
        bring_back(self, id, *files)

    def none(self: Saver) -> None:
        if self.protocol.role.id not in aged:
            count(self)

    patch.setattr(World, "bring_back", noted)
    patch.setattr(Saver, "_acknowledge", none)


def mixing_who_is_ahead(patch: Patch) -> None:
    absorb = Link.absorb
    patch.setattr(Link, "absorb", lambda self, upto, now: absorb(self, upto + 1, now))


def mixing_who_is_behind(patch: Patch) -> None:
    patch.setattr(Protocol, "_is_late", lambda self, link: link.round < self.round - 1)


def leaving_out_too_early(patch: Patch) -> None:
    limit = Protocol._limit
    patch.setattr(Protocol, "_limit", lambda self, link: (self._blocked + limit(self, link)) / 2)


def leaving_out_by_half_the_deadline(patch: Patch) -> None:
    def step(self: Protocol, now: float) -> bool:
        for link in list(self._synced()):
            if now >= link.heard + self.role.timing.deadline / 2:
                link.leave_out(now)
        return by_timer(self, now)

    by_timer = Protocol._step_by_timer
    patch.setattr(Protocol, "_step_by_timer", step)


def forgetting_who_was_heard(patch: Patch) -> None:
    def once(self: Link, now: float) -> None:
        self.heard = self.heard if self.heard > -math.inf else now

    patch.setattr(Link, "hear", once)


def not_waiting_for_a_message_that_lacks(patch: Patch) -> None:
    patch.setattr(protocol, "WAITED_FOR", (LinkState.CONNECTING, LinkState.SYNCED))


def mixing_by_half(patch: Patch) -> None:
    gossip = Learning._gossip
    patch.setattr(Learning, "_gossip", lambda self, copies, weights: gossip(self, copies, weights / 2))


def sending_kernels_that_are_not_due(patch: Patch) -> None:
    def emit(self: Channel, own: Floats, hidden: Floats, uniforms: Floats | None, *_: Any) -> Any:
        return algorithm.emit(own, hidden, self.quantizer, uniforms)

    patch.setattr(Channel, "emit", emit)


def mixing_without_momentum(patch: Patch, text: Text) -> None:
    if text is Arrays:
        patch.setattr(algorithm, "heavy_ball", lambda theta, velocity, momentum, mix: (mix(theta), velocity))
        return
    numbers = plan.numbers
    patch.setattr(plan, "numbers", lambda *given: numbers(*given)._replace(momentum=np.float32(0)))


def learning_without_counting(patch: Patch, text: Text) -> None:
    changing_what_is_learned(patch, text, lambda before, after: after._replace(memory=before.memory))


def saying_nothing_new(patch: Patch, text: Text) -> None:
    gossip: Any = text.gossip

    def silent(self: Any, copies: Floats, weights: Floats, *given: Any) -> Any:
        before = self.state
        gossip(self, copies, weights, *given)
        mixed = self.state
        known = before.hidden[..., : before.theta.shape[-1]]  # without the weights, where they are common
        self.state = before._replace(theta=known)
        said = gossip(self, copies, np.zeros_like(weights), *given)
        self.state = mixed._replace(hidden=self.state.hidden)
        return said

    patch.setattr(text, "gossip", silent)


def believing_a_damaged_count(patch: Patch) -> None:
    def believed(content: bytes) -> list[int]:
        whole = bytes(content[: count.SIZE]).ljust(count.SIZE, b"\0")
        return [number for _, number in count._PLACE.iter_unpack(whole)]

    patch.setattr(count, "read", believed)


def failing_over_a_damaged_count(patch: Patch) -> None:
    def fail(self: Saver, path: Path) -> None:
        look_back(self, path)
        if self._count is not None and self._count.fault:
            raise OverflowError("no such number")

    look_back = Saver._look_back
    patch.setattr(Saver, "_look_back", fail)


def not_telling_that_a_save_failed(patch: Patch) -> None:
    fail = Saver._fail
    patch.setattr(Saver, "_fail", lambda self, error, tell: fail(self, error, lambda event: None))


def knowing_of_full_disks_alone(patch: Patch) -> None:
    def narrow(self: Saver) -> bool:
        told = attempt(self)
        if self.failure is not None and "No space" not in self.failure:
            raise OSError(self.failure)
        return told

    attempt = Saver._try
    patch.setattr(Saver, "_try", narrow)


def giving_up_a_disk_that_failed(patch: Patch) -> None:
    patch.setattr(saver, "RETRY", math.inf)


def going_by_ones_own_weight(patch: Patch) -> None:
    patch.setattr(links, "agreed", lambda ours, theirs, weight: (weight, agreed(ours, theirs, weight)[1]))


def not_telling_that_files_differ(patch: Patch) -> None:
    patch.setattr(links, "agreed", lambda ours, theirs, weight: (agreed(ours, theirs, weight)[0], ""))


def taking_any_contract(patch: Patch) -> None:
    class Agreeable(str):
        __slots__ = ()

        def __ne__(self, other: object) -> bool:
            return False

    begin = Neighbors.__init__

    def begun(self: Neighbors, role: Role, *given: Any) -> None:
        begin(self, role, *given)
        object.__setattr__(self._terms, "contract", Agreeable(self.contract))

    patch.setattr(Neighbors, "__init__", begun)


def speaking_of_two_files_under_one_boot(patch: Patch) -> None:
    patch.setattr(checkpoint, "_is_same", lambda saved, role: True)


MUTANTS: dict[Callable[[Patch], None], str] = {
    without_the_round_check: "the copy of . at .* is not its own",
    without_the_frame_check: "the copy of . at .* is not its own",
    taking_messages_of_an_older_boot: "the copy of . at .* is not its own",
    saving_in_place: "no state to go on from|never saved",
    with_the_same_boot_after_a_crash: "says two things of round",
    trusting_an_old_checkpoint: "says two things of round|the copy of . at .* is not its own",
    with_the_weights_of_all: "is mixed in, and",
    with_weights_dealt_out_anew: "has the weight .*, and was given",
    acknowledging_before_saving: "observations lost that were saved",
    losing_without_a_word: "observations are lost, 0 reported",
    leaving_out_for_ever: "not in step after",
    asking_without_a_pause: "woken at",
    keeping_every_message: "messages of . kept",
    scoring_without_learning: "was scored, and not learned",
    learning_zeros_for_labels: "its .* is .* from the algorithm's",
    taking_zeros_for_labels: "was scored, and another one learned",
    learning_the_last_sample_first: "was scored, and another one learned|was not taken as it was given",
    restoring_no_labels: "what was restored is not what was saved",
    restoring_no_weights: "what was restored is not what was saved",
    recovering_nothing: "moved by something else",
    recovering_without_what_was_learned: "moved by something else",
    not_telling_of_a_loss: "Lost.* is to be told",
    telling_of_too_great_a_loss: "Lost.* is to be told",
    not_telling_of_damage: "Damaged.* is to be told",
    counting_one_that_was_not_acknowledged: "observations are counted|observations are lost, .* reported",
    miscounting_after_an_old_file: "observations are counted|observations are lost, .* reported",
    mixing_who_is_ahead: "the copy of . is at .*, mixed in by a node at",
    mixing_who_is_behind: "the copy of . is at .*, mixed in by a node at",
    leaving_out_too_early: "is left out .* too soon",
    forgetting_who_was_heard: "is left out .* too soon",
    not_waiting_for_a_message_that_lacks: "a round is taken without .*, which was in step",
    leaving_out_by_half_the_deadline: "is left out .* too soon",
    mixing_by_half: "mixing is .* from the algorithm's",
    sending_kernels_that_are_not_due: "a kernel is sent that is not due",
}


def dropping_what_comes_late(patch: Patch) -> None:
    patch.setattr(Recovery, "go_on", lambda self, now: None)


def adding_what_comes_late(patch: Patch) -> None:
    patch.setattr(Start, "share", lambda self, at, boot: 1.5)


def saying_anew_what_comes_late(patch: Patch) -> None:
    let_be = Recovery._let_be

    def changed(self: Recovery, models: Floats, at: int, boot: int | None) -> None:
        start = self._neighbors.start
        let_be(self, models, at, boot)
        learning = self._neighbors.learning
        if start is not None and start.begun:
            learning.state = learning.state._replace(hidden=models.copy())

    patch.setattr(Recovery, "_let_be", changed)


def beginning_with_zeros(patch: Patch) -> None:
    patch.setattr(Recovery, "_adopt", lambda self, start: None)


def beginning_with_a_sum(patch: Patch) -> None:
    let_be = Recovery._let_be

    def doubled(self: Recovery, models: Floats, at: int, boot: int | None) -> None:
        let_be(self, 2 * models if boot is None else models, at, boot)

    patch.setattr(Recovery, "_let_be", doubled)


def believing_any_round(patch: Patch) -> None:
    patch.setattr(Leaps, "allow", lambda self, own, to, now: to < MOST_SKIPPED)


def never_going_back(patch: Patch) -> None:
    patch.setattr(Leaps, "doubts", lambda self, own, now: False)


OF_BEGINNINGS: dict[Callable[[Patch], None], str] = {
    dropping_what_comes_late: "has given back is not taken",
    adding_what_comes_late: "models given back are .* from what was kept",
    saying_anew_what_comes_late: "what was said is changed|says two things of round",
    beginning_with_zeros: "begins with zeros beside neighbors that have learned",
    beginning_with_a_sum: "models given back are .* from what was kept",
    believing_any_round: "rounds are skipped on somebody's word",
    never_going_back: "not in step after",
}
"""Those that only nodes show which neighbors reach late, which are new, or which are lied to."""

IN_ONE_TEXT: dict[Callable[[Patch, Text], None], str] = {
    learning_four_of_five: "its models is .* from the algorithm's",
    without_kernel_weights: "its log weights is .* from the algorithm's",
    mixing_without_momentum: "mixing is .* from the algorithm's",
    learning_without_counting: "and its memory is .* from the algorithm's",
    saying_nothing_new: "nodes were .* apart, and are",
}
"""Those of a round itself, over arrays or as compiled loops, while other nodes run the other text."""

OF_DISKS: dict[Callable[[Patch], None], str] = {
    believing_a_damaged_count: "is to be told",
    failing_over_a_damaged_count: "no such number",
    not_telling_that_a_save_failed: "the disk failed, and nobody is told",
    knowing_of_full_disks_alone: "Too many open files",
    giving_up_a_disk_that_failed: "never acknowledged",
}
"""Those that show in counts that rot and where descriptors are lacking, beside crashes."""

OF_FILES: dict[Callable[[Patch], None], str] = {
    going_by_ones_own_weight: "has the weight .*, and was given",
    not_telling_that_files_differ: "differs in .*, and nothing is told",
    taking_any_contract: "is in step, and of another contract",
    speaking_of_two_files_under_one_boot: "speaks of two files",
}
"""Those that show where files differ, beside crashes and leaves."""

SOONER: dict[Callable[[Patch], None], int] = {
    without_the_round_check: 60, taking_messages_of_an_older_boot: 9, giving_up_a_disk_that_failed: 122,
}  # fmt: skip
"""Seeds that are tried before the others: the first to find these, which many do not. Any other would do as well."""


def found(mutant: Callable[..., None], faults: Faults = FAULTS) -> str:
    """Return what is said of the first seed that finds it."""
    seeds = [*([SOONER[mutant]] if mutant in SOONER else []), *range(MOST_SEEDS)]
    violations = (report.violation for report in runs(seeds, 100, faults=faults) if report.violation is not None)
    return next(violations, "nothing is found").splitlines()[-1]


def of(*kinds: str) -> Faults:
    """Return some of the faults."""
    return {kind: ALL[kind] for kind in kinds}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert re.search(MUTANTS[mutant], found(mutant))


@pytest.mark.parametrize("mutant", OF_DISKS, ids=lambda mutant: mutant.__name__)
def test_faults_of_disks_show_a_broken_rule(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert re.search(OF_DISKS[mutant], found(mutant, of("rotten count", "no descriptors", "crash")))


@pytest.mark.parametrize("mutant", OF_FILES, ids=lambda mutant: mutant.__name__)
def test_files_that_differ_show_a_broken_rule(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert re.search(OF_FILES[mutant], found(mutant, of("files that differ", "crash", "leave")))


@pytest.mark.parametrize("mutant", OF_BEGINNINGS, ids=lambda mutant: mutant.__name__)
def test_a_rule_of_beginnings_that_is_broken_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    assert re.search(OF_BEGINNINGS[mutant], found(mutant, FAULTS | BEGINNINGS))


@pytest.mark.parametrize("text", [Arrays, Loops], ids=lambda text: text.__name__)
@pytest.mark.parametrize("mutant", IN_ONE_TEXT, ids=lambda mutant: mutant.__name__)
def test_a_broken_text_is_found(mutant: Callable[[Patch, Text], None], text: Text, monkeypatch: Patch) -> None:
    mutant(monkeypatch, text)
    assert re.search(IN_ONE_TEXT[mutant], found(mutant))
