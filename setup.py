"""Builds the optional C libraries (the kernel of kohort.records, and what creates objects of a cluster's directory) and
the description for an index; the rest is in pyproject.toml.

They are plain shared libraries for ctypes: one file serves every Python version, and an install without a compiler goes
on without them. KOHORT_PURE=1 builds a wheel without them, for systems that have none of their own.
"""

import os
import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PURE = os.environ.get("KOHORT_PURE") == "1"
HOME = os.environ.get("KOHORT_HOME_URL", "").rstrip("/")
"""Where the repository's files can be seen; links of the description lead there. Without it they are plain text."""
PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]*)\)")


class BuildKernel(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols or []


class TagWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


def description() -> str:
    """The README with links that work outside the repository."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    if HOME:
        text = PICTURE.sub(lambda found: found[0].replace("](", f"]({HOME}/"), text)
        return LINK.sub(rf"[\1]({HOME}/\2)", text)
    return LINK.sub(r"\1", PICTURE.sub("", text))


def urls() -> dict[str, str]:
    """Of an index's page; the repository's place is known when it is published."""
    if not HOME:
        return {}
    pages = {"Source": "", "Documentation": "/docs/README.md", "Changelog": "/CHANGELOG.md", "Security": "/SECURITY.md"}
    return {name: HOME + path for name, path in pages.items()}


def library(name: str, *sources: str) -> Extension:
    return Extension(
        name,
        sources=list(sources),
        extra_compile_args=["-O3", "-g0", "-fvisibility=hidden", "-pthread"],
        extra_link_args=["-pthread", "-Wl,--build-id=none"] if os.uname().sysname == "Linux" else [],
        optional=True,
    )


LIBRARIES = [
    library("kohort.records._decode", *(f"src/kohort/records/_{part}.c" for part in ("crc", "decode", "encode"))),
    library("kohort.cluster._create", "src/kohort/cluster/_create.c"),
]

setup(
    ext_modules=[] if PURE else LIBRARIES,
    cmdclass={"build_ext": BuildKernel} | ({} if PURE else {"bdist_wheel": TagWheel}),
    long_description=description(),
    long_description_content_type="text/markdown",
    project_urls=urls(),
)
