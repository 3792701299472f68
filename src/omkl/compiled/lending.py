"""Named tuples of arrays, handed on without a copy and without a count."""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.experimental import structref
from numba.extending import infer_getattr, intrinsic, models, register_model

from omkl.compiled.jit import brief


class Lent(types.Type):  # type: ignore[misc]
    """A named tuple that the caller holds meanwhile: a pointer to it, whose fields are read one by one.

    A tuple of many arrays that is handed on is copied field by field at every step, and every array of it is counted:
    that is most of what there would be to compile.
    """

    def __init__(self, held: types.BaseNamedTuple) -> None:
        self.held = held
        super().__init__(f"Lent({held})")


@register_model(Lent)
class _LentModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Lent) -> None:
        super().__init__(manager, kind, manager.lookup(kind.held).get_value_type().as_pointer())


@infer_getattr
class _LentFields(AttributeTemplate):  # type: ignore[misc]
    key = Lent

    def generic_resolve(self, kind: Lent, name: str) -> Any:
        """Return the type of a field: of a tuple within, that of a pointer to it."""
        if name in kind.held.fields:
            return _lent(kind.held[kind.held.fields.index(name)])
        return None


def _lent(kind: Any) -> Any:
    return Lent(kind) if isinstance(kind, types.BaseNamedTuple) else kind


@lower_getattr_generic(Lent)  # type: ignore[untyped-decorator]
def _field(context: Any, builder: Any, kind: Lent, pointer: Any, name: str) -> Any:
    """Read a field, or point to it."""
    place = kind.held.fields.index(name)
    field = cgutils.gep_inbounds(builder, pointer, 0, place)
    if isinstance(kind.held[place], types.BaseNamedTuple):
        return field
    return _uncounted(context, builder, kind.held[place], builder.load(field))


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return an array whose references are not counted: counting is atomic, and took a third of a node's round."""
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    return array._getvalue()


@structref.register
class _HeldType(types.StructRef):  # type: ignore[misc]
    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Held(structref.StructRefProxy):  # type: ignore[misc]
    """A named tuple that loops take as one thing: handing over its fields can take longer than what is done to them."""


structref.define_proxy(Held, _HeldType, ["things"])


@brief
def hold(things: Any) -> Any:
    """Return a named tuple as one thing."""
    return Held(things)


@intrinsic  # type: ignore[untyped-decorator]
def borrowed(typing: Any, given: Any) -> Any:
    """Return an array whose references are not counted, or a named tuple as a pointer; the caller holds them."""
    kind = given.field_dict["things"] if isinstance(given, _HeldType) else given

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(given, _HeldType):
            whole = structref._Utils(context, builder, given).get_data_pointer(arguments[0])
            return cgutils.gep_inbounds(builder, whole, 0, 0)
        if isinstance(given, types.BaseNamedTuple):
            return cgutils.alloca_once_value(builder, arguments[0])
        return _uncounted(context, builder, given, arguments[0])

    return _lent(kind)(given), generate
