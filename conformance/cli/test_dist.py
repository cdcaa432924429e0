"""Packages of this build: they are whole, run, and are the same when they are made again."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ..installation import program
from ..shared import ROOT

#: Nothing is compressed: a program for tests is large.
FAST = os.environ | {"SHOAL_DIST_LEVEL": "0"}


def dist(programs: Path, out: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "dist.py", programs, out], env=FAST, capture_output=True, text=True, timeout=240,
    )


def only(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist") / "new"
    made = dist(program().parent, out)
    assert made.returncode == 0, made.stderr
    assert sorted(made.stdout.split()) == sorted(str(path) for path in out.iterdir() if path.name != "SHA256SUMS")
    yield out
    shutil.rmtree(out)


@pytest.fixture(scope="module")
def unpacked(packages, tmp_path_factory) -> Path:
    """The tarball, unpacked."""
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(only(packages, "*-linux.tar.gz")) as archive:
        archive.extractall(place, filter="data")
    yield only(place, "shoal-*")
    shutil.rmtree(place)


@pytest.fixture
def room(tmp_path) -> Path:
    """A directory that does not outlive its case: packages are large."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def runs(shoal: Path) -> None:
    """It is the program, which finds the others beside it."""
    expected = subprocess.run([program(), "--version"], capture_output=True, check=True, timeout=60).stdout
    assert subprocess.run([shoal, "--version"], capture_output=True, check=True, timeout=60).stdout == expected
    for name in ("shoal-envd", "shoal-runsc"):
        assert os.access(shoal.resolve().with_name(name), os.X_OK), name


def test_the_digests_are_those_of_the_files(packages):
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=packages, check=True, capture_output=True)
    listed = {line.split()[1] for line in (packages / "SHA256SUMS").read_text().splitlines()}
    assert listed | {"SHA256SUMS"} == {path.name for path in packages.iterdir()}


def test_a_second_time_gives_the_same_bytes(packages, room):
    again = dist(program().parent, room)
    assert again.returncode == 0, again.stderr
    assert (room / "SHA256SUMS").read_text() == (packages / "SHA256SUMS").read_text()


def test_the_tarball_runs_where_it_is_unpacked(unpacked):
    runs(unpacked / "bin" / "shoal")
    assert "complete" in (unpacked / "share/bash-completion/completions/shoal").read_text()
    assert (unpacked / "shoal.service").read_bytes() == (ROOT / "packaging" / "shoal.service").read_bytes()


def install(unpacked: Path, *words, **environment: str) -> subprocess.CompletedProcess:
    command = [unpacked / "install.sh", *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_the_installer_says_what_it_would_do_and_then_does_it(unpacked, room):
    root = room / "root"
    told = install(unpacked, "--root", root)
    assert told.returncode == 0, told
    assert f"would install {root}/usr/local/bin/shoal-envd\n" in told.stdout and "Nothing was changed" in told.stdout
    assert not root.exists()
    for _ in range(2):
        done = install(unpacked, "--root", root, "--yes")
        assert done.returncode == 0, done
    assert "/usr/local/bin has shoal " in done.stdout
    runs(root / "usr/local/bin/shoal")
    assert (root / "etc/systemd/system/shoal.service").read_bytes() == (unpacked / "shoal.service").read_bytes()
    installed = files(root)
    assert "usr/local/share/bash-completion/completions/shoal" in installed
    page = root / "usr/local/share/man/man1/shoal-sandbox-create.1.gz"
    assert b"--template" in gzip.decompress(page.read_bytes()).replace(b"\\-", b"-")
    assert not [name for name in installed if name.endswith(".new")]


def test_the_installer_takes_another_prefix(unpacked, room):
    root = room / "root"
    assert install(unpacked, "--root", root, "--prefix", "/opt/shoal", "--yes").returncode == 0
    runs(root / "opt/shoal/bin/shoal")
    assert "\nExecStart=/opt/shoal/bin/shoal serve\n" in (root / "etc/systemd/system/shoal.service").read_text()


def test_the_installer_checks_the_machine_and_refuses_an_unfit_one(unpacked, room):
    told = install(unpacked)
    assert told.returncode == 0 and "  Linux x86_64, kernel " in told.stdout, told
    fake = room / "fake"
    fake.mkdir()
    (fake / "uname").write_text('#!/bin/sh\n[ "$1" = -r ] && echo 5.4.0-generic || echo Linux aarch64\n')
    (fake / "uname").chmod(0o755)
    told = install(unpacked, "--yes", PATH=f"{fake}:{os.environ['PATH']}")
    assert told.returncode == 1, told
    assert "this is Linux aarch64" in told.stdout and "kernel 5.4.0-generic: 5.15 or later" in told.stdout
    assert "Files:" not in told.stdout
    for words, said in ((["--now"], "unknown flag --now"), (["--root"], "--root needs a directory"), (["--prefix", "x"], "absolute")):
        refused = install(unpacked, *words)
        assert refused.returncode == 64 and said in refused.stderr, refused
    shutil.copy(unpacked / "install.sh", fake)
    refused = install(fake)
    assert refused.returncode == 1 and "has no bin/shoal:" in refused.stderr


def test_the_package_for_debian_installs_programs_and_unit(packages, room):
    package = only(packages, "*.deb")
    told = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
    assert "Package: shoal\n" in told and "libc6 (>= 2." in told
    subprocess.run(["dpkg-deb", "--extract", package, room], check=True)
    runs(room / "usr/bin/shoal")
    assert (room / "usr/bin/shoal").is_symlink()
    unit = (room / "usr/lib/systemd/system/shoal.service").read_text()
    assert unit.startswith("[Unit]\n") and "\nExecStart=/usr/bin/shoal serve\n" in unit and "/usr/local" not in unit
    assert "CapabilityBoundingSet=CAP_CHOWN" in unit


def test_the_chart_and_the_bill_of_materials_are_whole(packages):
    with tarfile.open(only(packages, "shoal-*.tgz")) as archive:
        names = archive.getnames()
    assert "shoal/Chart.yaml" in names and any(name.startswith("shoal/templates/") for name in names)
    listed = json.loads(only(packages, "*.cdx.json").read_text())
    crates = {found["name"]: found for found in listed["components"]}
    assert crates["tokio"]["purl"].startswith("pkg:cargo/tokio@") and crates["tokio"]["hashes"]
    assert "shoal-core" not in crates


def test_what_is_not_built_is_named(room):
    refused = dist(room, room / "out")
    assert refused.returncode == 1 and "no shoal and no shoal-envd" in refused.stderr and "make build" in refused.stderr
