"""Compiles the heart of the walk, where there is a compiler.

Hatchling runs this when regraft is installed or packed. `python hatch_build.py` does it
for a checkout that is used as it is. Without a compiler nothing is lost but time: what
is written in C is also written in Python.
"""

from __future__ import annotations

import os
import platform
import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # Run as a script.
    BuildHookInterface = object

FOLDER = Path(__file__).parent / "src" / "regraft" / "_core"


class CompileCore(BuildHookInterface):
    """Adds the compiled module to what is installed or packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles in place: an editable installation is used where it lies."""
        if self.target_name == "wheel" and (library := compile_core()) is not None:
            build_data["artifacts"].append(library.relative_to(self.root).as_posix())
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def compile_core(folder: Path = FOLDER) -> Path | None:
    """Puts the compiled module into a folder.

    Returns:
        Where it lies, or None where it could not be made.
    """
    library = folder / f"native{sysconfig.get_config_var('EXT_SUFFIX')}"
    has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
    if platform.python_implementation() == "CPython" and has_gil:
        try:
            with tempfile.TemporaryDirectory(dir=folder) as beside:
                os.replace(_compile(Path(beside)), library)
            return library
        except BaseException as error:  # setuptools may also leave by SystemExit.
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"regraft: the walk was not compiled: {error}")
    library.unlink(missing_ok=True)  # An older one would be packed in its place.
    return None


def _compile(folder: Path) -> Path:
    from setuptools import Distribution, Extension

    digest = runpy.run_path(str(FOLDER / "_source.py"))["digest"]()
    extension = Extension(
        "native",
        [str(FOLDER / "native.c")],
        define_macros=[("SOURCE_DIGEST", f'"{digest}"')],
    )
    command: Any = Distribution({"ext_modules": [extension]}).get_command_obj(
        "build_ext"
    )
    command.build_temp = command.build_lib = str(folder)
    command.ensure_finalized()
    command.run()
    return Path(command.get_outputs()[0])


if __name__ == "__main__":
    print(compile_core() or "regraft: the walk stays in Python")
