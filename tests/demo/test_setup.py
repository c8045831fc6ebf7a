"""What `make demo` does before there is a kohort: which packages, and what it says while they come."""

import demo


def test_spark_is_installed_without_kohort_itself():
    packages = demo.spark_packages()
    assert any(name.startswith("pyspark") for name in packages)
    assert not any(name.startswith("kohort") for name in packages)


def test_what_pip_downloads_is_told():
    log = (
        b"Collecting numpy\n  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.9 MB)\n"
        b"  Downloading pyspark-4.3.0.tar.gz (455.9 MB)\n"
    )
    assert demo.DOWNLOADING.findall(log) == [(b"numpy-2.4.6", b"16.9 MB"), (b"pyspark-4.3.0", b"455.9 MB")]


def test_the_verdict_of_a_missing_module():
    assert demo.has("no_such_module_anywhere") is False
