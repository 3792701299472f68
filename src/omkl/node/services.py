"""What a node serves on zenoh keys to whoever reaches it, under ``omkl/<network>/<id>/``.

    predict    a query ``{"x": [...]}``; the answer is ``{"label": 1, "output": [0.8], "round": 12}``
    observe    a query or a put ``{"x": [...], "y": 1}``; a query is answered ``{"waiting": 1}``, or by an error
    model      a query; the answer is the file that ``omkl.load_model`` reads
    status     a query; the answer is JSON, how the node and its links stand (``Node.status``)

With TLS only those who hold a certificate of the network's reach it, and of them those whom ``[access]`` names.
"""

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from omkl.errors import InputError
from omkl.node import inputs

if TYPE_CHECKING:
    from omkl.node.node import Node
    from omkl.node.transports.zenoh import ZenohTransport

Refuse: TypeAlias = Callable[[str], None]
"""Called with what is wrong with an observation, in any thread."""


class Services:
    """The answers of one node."""

    def __init__(self, node: "Node", refuse: Refuse) -> None:
        self._node, self._refuse = node, refuse

    def declare(self, transport: "ZenohTransport") -> None:
        """Begin to answer what anyone may ask for."""
        for service, allowed in vars(self._node.config.access).items():
            if allowed:
                transport.serve(service, getattr(self, service), puts=service == "observe")

    def predict(self, payload: bytes) -> bytes:
        """Return the prediction for an input."""
        node = self._node
        output = node.decision_function(_parsed(payload).x)
        label = node.config.method.objective.decide(output)
        answer = {"label": label.tolist(), "output": output.tolist(), "round": node.protocol.round}
        return json.dumps(answer).encode()

    def observe(self, payload: bytes) -> bytes:
        """Take an observation, and return how many wait for their round."""
        try:
            sample = _parsed(payload)
            self._node.observe(sample.x, sample.y, timeout=0)
        except (InputError, TimeoutError) as error:
            self._refuse(str(error))
            raise InputError(str(error)) from None
        return json.dumps({"waiting": len(self._node.protocol.waiting)}).encode()

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
