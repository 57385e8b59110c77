#!/usr/bin/env python3
"""Makes a Python wheel that holds one program, and nothing to import.

    docker/wheel.py BINARY VERSION LICENSE OUT

pip puts the program on the path. The wheel's platform is the lowest glibc that the program runs with.
Prints two lines: that glibc (`2.35`) and the wheel's path. SOURCE_DATE_EPOCH sets the time of its files.
"""

import base64
import hashlib
import os
import re
import struct
import sys
import time
import zipfile
from pathlib import Path

NAME = "clawnode"
MACHINES = {62: "x86_64", 183: "aarch64"}


def dynamic_names(program: bytes) -> bytes:
    """The names that the loader looks for: the sections `.dynstr` and their like of an ELF file."""
    sections, size, count = struct.unpack_from("<Q", program, 40)[0], *struct.unpack_from("<HH", program, 58)
    names = b""
    for number in range(count):
        kind, flags, _, start, length = struct.unpack_from("<IQQQQ", program, sections + number * size + 4)
        # Tables of strings that are loaded; those of symbols for debuggers are not.
        if kind == 3 and flags & 2:
            names += program[start : start + length]
    return names


def platform(program: bytes) -> tuple[str, str]:
    """The glibc that a program needs at least, and the tag of platforms that have it."""
    if program[:6] != b"\x7fELF\x02\x01":
        sys.exit("wheel.py: this is no 64-bit program for Linux")
    machine = MACHINES.get(struct.unpack_from("<H", program, 18)[0])
    if machine is None:
        sys.exit(f"wheel.py: programs are packed for {' and '.join(MACHINES.values())} alone")
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", dynamic_names(program))
    if not versions:
        return "none", f"linux_{machine}"
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"{major}.{minor}", f"manylinux_{major}_{minor}_{machine}"


def main() -> None:
    binary, version, licence, out = sys.argv[1:]
    program = Path(binary).read_bytes()
    glibc, tag = platform(program)
    info = f"{NAME}-{version}.dist-info"
    metadata = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {version}
Summary: Runs AI agents as durable virtual actors
License: Apache-2.0
Requires-Python: >=3.8
"""
    wheel = f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    files = [
        (f"{NAME}-{version}.data/scripts/{NAME}", program, 0o755),
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", wheel.encode(), 0o644),
        (f"{info}/LICENSE", Path(licence).read_bytes(), 0o644),
    ]
    record = ""
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    # A zip file knows no time before 1980.
    made = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)
    path = Path(out) / f"{NAME}-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, time.gmtime(made)[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(f"{glibc}\n{path}")


main()
