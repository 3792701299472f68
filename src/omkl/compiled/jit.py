"""How loops are compiled, and kept between processes."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite.binding import Linkage
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.imputils import lower_getattr_generic
from numba.core.runtime import rtsys
from numba.core.typed_passes import NativeLowering
from numba.core.typing.templates import AttributeTemplate
from numba.experimental import structref
from numba.extending import infer_getattr, intrinsic, models, register_model

F = TypeVar("F", bound=Callable[..., Any])

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]
Small: TypeAlias = npt.NDArray[np.int16]
Words: TypeAlias = npt.NDArray[np.uint32]

# Whose numbers loops have in them.
CONSTANTS = ("learners", "online", "wire", "algorithm.py", "quantizers.py", "reach.py")

# Products may be fused into sums. Sums keep their order, but for those of ``summed``, which run in many lanes.
_PLAIN = {"contract", "nsz"}
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def _sources() -> str:
    """Return a digest of all that compiled loops are made of."""
    package = Path(__file__).parent.parent
    files = [*Path(__file__).parent.glob("*.py")]
    for name in CONSTANTS:
        files += [package / name] if name.endswith(".py") else (package / name).glob("*.py")
    return hashlib.blake2b(b"".join(file.read_bytes() for file in sorted(files)), digest_size=16).hexdigest()


_SOURCES = _sources()


class _Kept(FunctionCache):  # type: ignore[misc]
    """Loops on disk, which are compiled anew when any of their sources changes; Numba looks at one file alone."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _SOURCES)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept, without loading all that is needed to compile: that took longer than anything else."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


class _Text(JITCodeLibrary):  # type: ignore[misc]
    """A function as a text for its callers: not optimized by itself, and without machine code of its own.

    Numba would optimize every function once alone, and again as a part of each caller, up to the entry.
    """

    def finalize(self) -> None:
        """Take in what is called."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return zero: there is none."""
        return 0

    @property
    def codegen(self) -> "_Text":
        """What would be told where globals of the machine code are."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: entries have globals."""


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """An entry with all that it calls, under names that no other entry sees.

    Names that are seen are shared: whichever entry comes first has its functions called by others, whose sums may be
    rounded otherwise than their own.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


def _lowering(library: type[JITCodeLibrary]) -> type[CompilerBase]:
    """Return a compiler whose functions are put in libraries of this kind."""

    @register_pass(mutates_CFG=True, analysis_only=False)
    class Lowering(NativeLowering):  # type: ignore[misc]
        _name = f"lowering of {library.__name__}"

        def run_pass(self, state: Any) -> bool:
            state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
            return bool(super().run_pass(state))

    class Compiler(CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            made = DefaultPassBuilder.define_nopython_pipeline(self.state)
            made.passes = [(Lowering if one is NativeLowering else one, told) for one, told in made.passes]
            made.finalize()
            return [made]

    return Compiler


_ENTRY: dict[str, Any] = _OPTIONS | {"pipeline_class": _lowering(_Whole)}
_INNER: dict[str, Any] = _OPTIONS | {"pipeline_class": _lowering(_Text), "no_cpython_wrapper": True}


def entry(function: F, **options: Any) -> F:
    """Return a loop that Python calls, kept on disk where there is a folder for it."""
    made: Any = njit(fastmath=_PLAIN, **_ENTRY | options)(function)
    with suppress(RuntimeError):  # nowhere to write: each process compiles its own
        made._cache = _Kept(function)
    return made


def brief(function: F) -> F:
    """Return a loop of microseconds that Python calls: to let go of the interpreter's lock meanwhile costs more."""
    return entry(function, nogil=False)


def inner(function: F) -> F:
    """Return a loop for other loops alone to call."""
    return njit(fastmath=_PLAIN, **_INNER)(function)


def summed(function: F) -> F:
    """Return a loop for other loops to call, whose sums may be in any order: they then run in many lanes."""
    return njit(fastmath=_PLAIN | {"reassoc"}, **_INNER)(function)


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


@entry
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
