"""What a node serves on zenoh keys to whoever reaches it, under ``omkl/<network>/<id>/``.

    predict    a query ``{"x": [...]}``; the answer is ``{"label": 1, "output": [0.8], "round": 12}``, and
               ``"probabilities": {"-1": 0.31, "1": 0.69}`` too where the loss is logistic or softmax
    observe    a query or a put ``{"x": [...], "y": 1}``; a query is answered ``{"waiting": 1}``.
               With ``every = "observation"`` under ``[checkpoint]`` the answer comes when the sample has been learned
               and saved: ``{"waiting": 0, "round": 12, "saved": true}``. Whoever has no answer asks again.
    model      a query; the answer is the file that ``omkl.load_model`` reads
    status     a query; the answer is JSON, how the node and its links stand (``Node.status``)

What a node cannot take it answers by an error, ``{"error": "label 5; ...", "retry": false}``. If ``retry`` is true, the
node is full or its model has diverged, and the same question may be answered later; else it never is.

With TLS only those who hold a certificate of the network's reach it, and of them those whom ``[access]`` names.
"""

import io
import json
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from omkl.errors import InputError
from omkl.node import inputs
from omkl.node.events import Scored
from omkl.node.labels import Labels, Observed

if TYPE_CHECKING:
    from omkl.node.node import Node
    from omkl.node.transports.zenoh import ZenohTransport


class Services:
    """The answers of one node."""

    def __init__(self, node: "Node") -> None:
        self._node, self._labels = node, Labels(node.config.method.objective)

    def declare(self, transport: "ZenohTransport") -> None:
        """Begin to answer what anyone may ask for."""
        for service, allowed in vars(self._node.config.access).items():
            if allowed:
                transport.serve(service, getattr(self, service), puts=service == "observe")

    def predict(self, payload: bytes) -> bytes:
        """Return the prediction for an input."""
        node = self._node
        output, loss = node.decision_function(_parsed(payload).x), node.config.method.objective
        likely = {"probabilities": loss.probabilities(output)} if hasattr(loss, "probabilities") else {}
        answer = {"label": loss.decide(output).tolist(), **likely, "output": output.tolist()}
        return json.dumps(answer | {"round": node.protocol.round}).encode()

    def observe(self, payload: bytes) -> "bytes | Future[bytes]":
        """Take an observation, and return how many wait for their round; where all are kept, once it is on the disk.

        Answers that wait are bounded: each is of an observation that waits.
        """
        node, later = self._node, Future[bytes]()

        def done(event: Scored) -> None:
            later.set_result(self._waiting(round=event.round, saved=True))

        try:
            sample = _parsed(payload)
            node.admit(Observed(sample.x, sample.y, self._labels), timeout=0, done=done if node.durable else None)
        except (InputError, TimeoutError) as error:
            node.refuse(str(error))
            raise
        return later if node.durable else self._waiting()

    def _waiting(self, **more: Any) -> bytes:
        return json.dumps({"waiting": len(self._node.protocol.waiting), **more}).encode()

    def status(self, _: bytes) -> bytes:
        """Return how the node stands."""
        return json.dumps(self._node.runtime.call(self._node.status)).encode()

    def model(self, _: bytes) -> bytes:
        """Return the model as it is now."""
        file = io.BytesIO()
        self._node.model().write(file)
        return file.getvalue()


def _parsed(payload: bytes) -> inputs.Sample:
    if len(payload) > inputs.MOST_BYTES:
        raise InputError(f"{len(payload)} bytes; a sample takes {inputs.MOST_BYTES} at most; send one at a time")
    return inputs.parse_json(payload)
