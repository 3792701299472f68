"""The compiled text of the mathematics: a node's round as loops by Numba, for node, simulator and estimators.

What it computes is stated over arrays in ``omkl.algorithm`` and in the parts of a method; tests hold this text to that
one, part by part. Numba is optional: without it, and for parts that have no compiled text, the text over arrays runs.

``plan`` says which methods the loops know, and turns one into the numbers that they take. ``rounds`` has the two halves
of a node's round, put together from ``features``, ``mixing``, ``quantizers``, ``losses`` and ``learners``; ``network``
has those of a whole network, ``tracking`` the rows of an estimator, and ``coder`` the bytes of a message.
"""
