"""What a receiver says of bytes that it refuses."""


class WireError(ValueError):
    """Bytes that are no valid frame: what was found, and the rule it breaks."""


class CheckError(WireError):
    """A check that does not fit: the frame was damaged, or the receiver's copy of the hidden state is another."""


class VersionError(WireError):
    """A frame of another version of the format."""
