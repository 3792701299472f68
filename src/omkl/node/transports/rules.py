"""Who may say what on which key: zenoh's access control, by the common name of a certificate, and denied by default.

What x hears from its neighbor p, and lets pass to p the other way round, is

    put                            on p/gossip
    token                          p/alive
    subscription, of a token too   to x/gossip, x/alive
    query                          on x/ask/p
    queryable, reply               on p/ask/*, p/ask/x

so no holder of a certificate speaks as another, and no message passes through a node. What x serves is heard from whom
``Access`` names. Zenoh takes one subject for a connection, the first that fits: so each name has all its rules, and
everyone else comes last.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from omkl.node.settings import Access

OTHERS = "*"  # a subject that stands for whoever is not named; no name has this letter


class Allowed(NamedTuple):
    """A kind of message that may come in, or go out, on a key."""

    flow: str
    message: str
    key: str


def access_control(network: str, id: str, neighbors: Iterable[str], access: Access) -> Mapping[str, Any]:
    """Return the setting ``access_control`` of a node."""
    base, peers = f"omkl/{network}", set(neighbors)
    allowed = {name: list(_services(f"{base}/{id}", access, name)) for name in sorted(peers | access.names)}
    for peer in peers:
        allowed[peer] += _gossip(base, id, peer)
    allowed[OTHERS] = list(_services(f"{base}/{id}", access, OTHERS))
    return {
        "enabled": True,
        "default_permission": "deny",
        "subjects": [{"id": name} | ({} if name == OTHERS else {"cert_common_names": [name]}) for name in allowed],
        "rules": [_rule(name, one) for name, rules in allowed.items() for one in rules],
        "policies": [
            {"subjects": [name], "rules": [_rule(name, one)["id"] for one in rules]}
            for name, rules in allowed.items()
            if rules
        ],
    }


def _gossip(base: str, id: str, peer: str) -> Iterator[Allowed]:
    for flow, speaker, hearer in (("ingress", peer, id), ("egress", id, peer)):
        yield Allowed(flow, "put", f"{base}/{speaker}/gossip")
        yield Allowed(flow, "liveliness_token", f"{base}/{speaker}/alive")
        yield Allowed(flow, "declare_subscriber", f"{base}/{hearer}/gossip")
        yield Allowed(flow, "declare_liveliness_subscriber", f"{base}/{hearer}/alive")
        yield Allowed(flow, "query", f"{base}/{hearer}/ask/{speaker}")
        yield Allowed(flow, "declare_queryable", f"{base}/{speaker}/ask/*")
        yield Allowed(flow, "reply", f"{base}/{speaker}/ask/{hearer}")


def _services(base: str, access: Access, name: str) -> Iterator[Allowed]:
    for service in access.services(name):
        key = f"{base}/{service}"
        yield Allowed("ingress", "query", key)
        yield Allowed("egress", "declare_queryable", key)
        yield Allowed("egress", "reply", key)
        if service == "observe":
            yield Allowed("ingress", "put", key)
            yield Allowed("egress", "declare_subscriber", key)


def _rule(name: str, one: Allowed) -> Mapping[str, Any]:
    flow, message, key = one
    return {
        "id": f"{name} {flow} {message} {key}",
        "permission": "allow",
        "flows": [flow],
        "messages": [message],
        "key_exprs": [key],
    }
