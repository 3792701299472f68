"""Things by name: omkl's own, and what installed packages add to them through entry points."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from omkl.errors import InputError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """What is known by name. The names of other packages are listed without importing them.

    Attributes
    ----------
    group
        The group of entry points that adds to it, such as ``"omkl.methods"``: in a package's ``pyproject.toml``,
        ``[project.entry-points."omkl.methods"]`` and ``mine = "my_package:MyMethod"``.
    """

    def __init__(self, group: str, own: Mapping[str, T]) -> None:
        self.group, self._own = group, dict(own)

    def __getitem__(self, name: str) -> T:
        return self._own[name] if name in self._own else self._load(added(self.group)[name])

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in added(self.group) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in added(self.group)

    def _load(self, point: EntryPoint) -> T:
        try:
            loaded: T = point.load()
        except Exception as error:  # of any kind: it is not ours
            raise InputError(
                f"{point.name!r} is {point.value} of another package, which cannot be imported ({error}); mend that "
                "package, or remove it"
            ) from error
        return loaded

    @property
    def own(self) -> dict[str, T]:
        """Those of omkl itself, which another package cannot replace."""
        return dict(self._own)


@cache
def added(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, by name and in that order; of several of one name the last package's."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}
