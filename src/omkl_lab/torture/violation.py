"""Ends a run in which something that must hold does not."""


class Violation(Exception):
    """Something that must hold does not."""


def require(holds: bool, what: str) -> None:
    """Refuse to go on where something does not hold."""
    if not holds:
        raise Violation(what)
