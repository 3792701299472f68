"""Rules broken on purpose: the fault simulation finds each within few seeds."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from omkl import wire
from omkl.node import checkpoint, neighbors
from omkl.node.keep import Keep
from omkl.node.links import TRANSITIONS, Link, LinkState, Signal
from omkl.node.neighbors import Neighbors
from omkl.node.protocol import Protocol
from omkl.node.start import Start
from omkl.torture import runs
from omkl.torture.disk import Disk
from omkl.wire import Header, Kind, frames

MOST_SEEDS = 40
Patch = pytest.MonkeyPatch


def changing_headers(patch: Patch, change: Callable[[Link, Header], Header]) -> None:
    """Let every message look as if it were another boot's or round's."""
    gossip = neighbors._HANDLERS[Kind.CODED]

    def changed(self: Neighbors, link: Link, header: Header, data: bytes, now: float) -> None:
        gossip(self, link, change(link, header), data, now)

    for kind in (Kind.CODED, Kind.FIXED):
        patch.setitem(neighbors._HANDLERS, kind, changed)


def without_the_round_check(patch: Patch) -> None:
    changing_headers(patch, lambda link, header: header._replace(round=link.have + 1))


def without_the_frame_check(patch: Patch) -> None:
    patch.setattr(frames, "_verify", lambda data, seed, *kinds: wire.peek(data).kind)


def taking_messages_of_an_older_boot(patch: Patch) -> None:
    changing_headers(patch, lambda link, header: header if link.boot is None else header._replace(boot=link.boot))


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
    patch.setattr(Neighbors, "_is_outdated", lambda self, boot, at: False)
    patch.setattr(Start, "renew", lambda self, boot: boot)
    patch.setattr(Start, "claims", lambda self, *_: iter(()))


def with_the_weights_of_all(patch: Patch) -> None:
    patch.setattr(Neighbors, "weights", property(lambda self: self._weights))


def with_weights_dealt_out_anew(patch: Patch) -> None:
    def dealt(self: Neighbors) -> Any:
        synced = [link.state is LinkState.SYNCED for link in self.links.values()]
        return self._weights * synced * len(synced) / max(1, sum(synced))

    patch.setattr(Neighbors, "weights", property(dealt))


def acknowledging_before_saving(patch: Patch) -> None:
    def settle(self: Keep) -> bool:
        self._count()
        return True

    patch.setattr(Keep, "settle", settle)


def losing_without_a_word(patch: Patch) -> None:
    patch.setattr(Keep, "_look_back", lambda self: None)


def leaving_out_for_ever(patch: Patch) -> None:
    patch.setitem(TRANSITIONS, LinkState.LEFT_OUT, {Signal.DIFFERED: LinkState.REFUSED})


def asking_without_a_pause(patch: Patch) -> None:
    ask = Neighbors._ask

    def at_once(self: Neighbors, link: Link, now: float) -> None:
        ask(self, link, now)
        link.ask_at = now

    patch.setattr(Neighbors, "_ask", at_once)


def keeping_every_message(patch: Patch) -> None:
    patch.setattr(Link, "keep", lambda self, at, data: self.inbox.__setitem__(at, data))


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
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    found = (report.violation for report in runs(range(MOST_SEEDS), 100) if report.violation is not None)
    violation = next(found, None)
    assert violation is not None
    assert re.search(MUTANTS[mutant], violation.splitlines()[-1])
