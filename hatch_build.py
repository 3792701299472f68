"""What a package index shows of README.md: links to files become their words, since no file is beside it there."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"!\[([^]]+)\]\((?!https?:)[^)]*\)")
LINK = re.compile(r"\[([^]]+)\]\((?!https?:)[^)]*\)")
NOTE = "\nThe pages in `docs` are in the source archive and in the repository.\n"


class Readme(MetadataHookInterface):
    """Set ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the text in, with the words of a link in its place."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        shown = LINK.sub(r"\1", IMAGE.sub(r"*Figure: \1.*", text)) + NOTE
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
