"""The commands of the laboratory: ``omkl paper``, ``sweep``, ``torture`` and ``tune``."""
