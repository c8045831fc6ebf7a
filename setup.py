"""Builds the optional C kernel of kohort.records; everything else about the package is in pyproject.toml.

The kernel is a plain shared library for ctypes: one file serves every Python version, and an install without a compiler
goes on without it.
"""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class BuildKernel(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols or []


class TagWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


kernel = Extension(
    "kohort.records._decode",
    sources=["src/kohort/records/_decode.c"],
    extra_compile_args=["-O3", "-fvisibility=hidden"],
    optional=True,
)

setup(ext_modules=[kernel], cmdclass={"build_ext": BuildKernel, "bdist_wheel": TagWheel})
