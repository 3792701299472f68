"""The compiled text of the mathematics: a node's round as loops by Numba, for node, simulator and estimators.

What it computes is stated over arrays in ``omkl.algorithm`` and in the parts of a method; tests hold this text to that
one, part by part. Numba is optional: without it, and for parts that have no compiled text, the text over arrays runs.

``plan`` says which methods the loops know, and turns one into the numbers that they take. ``rounds`` has the two halves
of a node's round, put together from ``features``, ``mixing``, ``quantizers``, ``losses`` and ``learners``; ``network``
has those of a whole network, ``tracking`` the rows of an estimator, and ``coder`` the bytes of a message.
"""

import numba

KNOWN = 0, 68  # the last Numba that these loops are known to run with: they use parts of it that are its own affair

if numba.version_info.short > KNOWN:
    try:
        from omkl.compiled import trial  # noqa: F401
    except Exception as error:  # of any kind; the text over arrays runs, as without Numba
        raise ImportError(f"Numba {numba.__version__} is not as these loops know it ({error})") from error
