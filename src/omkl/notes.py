"""Notes to users: each is logged once in a process, however many runs it is about."""

import logging

_told: set[str] = set()


def note(logger: logging.Logger, text: str, level: int = logging.WARNING) -> None:
    """Log a note, unless the process has logged it before; as a warning it is seen in Python without any setup."""
    if text not in _told and logger.isEnabledFor(level):
        _told.add(text)
        logger.log(level, "%s", text)


def forget() -> None:
    """Let all notes be logged again."""
    _told.clear()
