"""What Numba makes of a function: a text for its callers alone, or an entry with all that it calls."""

from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class Text(JITCodeLibrary):  # type: ignore[misc]
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
    def codegen(self) -> "Text":
        """What would be told where globals of the machine code are."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: entries have globals."""


class Alone(JITCodeLibrary):  # type: ignore[misc]
    """An entry with all that it calls, under names that no other entry sees.

    Names that are seen are shared: whichever entry comes first has its functions called by others, whose sums may be
    rounded otherwise than their own.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


def compiler(library: type[JITCodeLibrary]) -> type[CompilerBase]:
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
