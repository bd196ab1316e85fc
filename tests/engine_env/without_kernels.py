"""Stands in for what SGLang's Python imports of GPU kernels and shells, which reading its arguments has no use for."""

import importlib.abc
import importlib.machinery
import sys
import types

# Kernels and shells that reading arguments has no use for, and whose packages are large.
_UNUSED = ("triton", "IPython", "orjson")


class _Unused(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(f"{self.__name__}.{name}")

    def __call__(self, *given: object, **_: object) -> object:
        return given[0] if len(given) == 1 and callable(given[0]) else self

    def __getitem__(self, _: object) -> object:
        return self


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if name.split(".", maxsplit=1)[0] in _UNUSED
            else None
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Unused(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def install() -> None:
    """Have every later import of them find what stands in."""
    sys.meta_path.insert(0, _Finder())
