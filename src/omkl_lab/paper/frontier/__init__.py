"""Loss against bytes for all methods and learners, each tuned: ``omkl paper frontier``."""
