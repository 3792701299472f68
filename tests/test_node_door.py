"""How many descriptors a daemon has; the door itself is tried with real processes in ``test_node_strangers``."""

import sys

import pytest

from omkl.node.door import ROOM, fitted

if sys.platform != "linux":
    pytest.skip("descriptors are those of Linux", allow_module_level=True)

import resource
from pathlib import Path


def test_a_daemon_has_as_many_as_it_needs_and_whoever_called_it_what_they_had() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    with fitted(3):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == min(used + 3 + ROOM, hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
