"""What fuzzing found, each kind by its least input; and files that would fill the memory."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from metaforge import records, run_files
from metaforge.cached_arrays import cached_array
from metaforge.cli import main
from metaforge.errors import DamagedFile, DataError, MetaforgeError, RecipeError
from metaforge.npy_files import BROKEN, read_file, read_header, read_member
from metaforge.recipe import load
from metaforge.recipe.dialect import dump
from metaforge.recipe.document import read

ROOT = Path(__file__).parents[2]


def npy(header: bytes, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + content


def described(descr: str, shape: str) -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


# -- npy and npz ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        npy(b"("),  # numpy: tokenize.TokenError
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1L"),  # as Python 2 wrote it
        npy(described("'<f8'", "(99999999999999999999,)"), bytes(8)),  # OverflowError
        npy(described("'<f8'", "(True, 2)"), bytes(16)),  # TypeError
        npy(described("'<f8'", "(-1,)"), bytes(8)),
        npy(described("'<f8'", "(" + "1, " * 70 + ")"), bytes(8)),
        npy(described("[('f', '<f4', (1000000, 1000000))]", "(1,)"), bytes(8)),
        npy(described("'|V0'", "(5,)")),
        npy(b"[" * 5000, version=b"\2\0"),
        npy(described("'<f8'", "(1,)"), bytes(8), version=b"\x09\0"),
    ],
)
def test_an_npy_header_that_claims_what_no_array_has(data, tmp_path):
    with pytest.raises(ValueError, match=r"header|format|magic"):
        read_header(io.BytesIO(data))
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(BROKEN):
        read_file(tmp_path / "x.npy")


@pytest.mark.parametrize("descr", ["'<U99999999'", "'<f8'"])
def test_an_npy_file_of_a_few_bytes_that_claims_gigabytes(descr, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy(described(descr, "(200000000,)"), bytes(80)))
    with pytest.raises(ValueError, match="80 bytes of numbers, expected"):
        read_file(tmp_path / "x.npy")


def test_a_cached_file_without_an_array_is_made_anew(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.npy", b"not an array")  # numpy gives the bytes
    assert (cached_array(path, (2,), lambda: np.zeros(2), lambda line: None) == 0).all()


def test_a_member_that_is_encrypted_or_packed_unusually_is_damage(tmp_path):
    file = io.BytesIO()
    np.savez(file, X=np.zeros(4))
    for at, value in ((6, 1), (8, 77)):  # the flags, the way of packing; in both directories
        data = bytearray(file.getvalue())
        data[at] = value
        central = data.rindex(b"PK\1\2")
        data[central + at + 2] = value
        (tmp_path / "x.npz").write_bytes(data)
        with pytest.raises(BROKEN):
            read_member(tmp_path / "x.npz", "X")


def test_an_archive_that_unpacks_to_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, X=np.zeros((4096, 8192)))  # 268 MB of 260 kB
    assert path.stat().st_size < 10**6
    monkeypatch.setattr("metaforge.memory.free", lambda: 2**27)
    with pytest.raises(DataError, match=r"array 'X': takes 0\.3 GB of memory, and 0\.1 GB are"):
        read_member(path, "X")


# -- saved tensors -------------------------------------------------------------------


def test_saved_tensors_that_are_packed_are_refused(tmp_path):
    import torch

    from metaforge.torch_files import read_saved

    whole, packed = tmp_path / "whole.pth", tmp_path / "packed.pth"
    torch.save({"w": torch.zeros(1_000_000)}, whole)
    assert read_saved(whole)["w"].shape == (1_000_000,)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert packed.stat().st_size < 20_000
    with pytest.raises(DamagedFile, match="is packed, or claims more than it holds"):
        read_saved(packed)


@pytest.mark.parametrize(
    "data",
    [b"\x80\x02X\xff\xff\xff\x7f.", b"\x80\x02h\x05.", b"\x80\x02X\1.", b"\x80\x02", b""],
)
def test_saved_tensors_that_are_damaged(data, tmp_path):
    from metaforge.torch_files import read_saved

    (tmp_path / "x.pth").write_bytes(data)
    with pytest.raises(DamagedFile, match="no file of tensors alone"):
        read_saved(tmp_path / "x.pth")


# -- recipes -------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["0x" + "f" * 6000, "-0o" + "7" * 6000, "9" * 301])
def test_a_number_that_python_would_not_print(number, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(f"seed: {number}\n")
    with pytest.raises(RecipeError, match="digits"):
        load(path)
    with pytest.raises(RecipeError, match="digits"):
        load("sp_ls", [f"seed={number}"])


@pytest.mark.parametrize(
    "text",
    ["[" + "1," * 400_000 + "]", "- a\n" * 200_000, "{" + "? a, " * 90_000 + "}"],
    ids=["list", "lines", "keys"],
)
def test_a_recipe_of_very_many_values_ends_at_the_first_too_many(text, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match="more than 20000 keys and values"):
        load(path)


def test_aliases_of_aliases_are_not_written_out():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(RecipeError, match="more than 20000 values"):
        read("\n".join(lines), "x")


@pytest.mark.parametrize("text", ["a\x85b", "\x85", "a\u2028b", "\u2029", "a\rb", " a\x85"])
def test_line_ends_of_unicode_are_the_same_after_a_dump(text):
    assert read(dump({text: text}), "x").data == {text: text}


def test_of_very_many_problems_two_hundred_are_told():
    with pytest.raises(RecipeError) as caught:
        load({f"key{n}": 1 for n in range(1000)})
    assert len(str(caught.value).splitlines()) == 201
    assert str(caught.value).endswith("and 802 more problems")
    assert caught.value.count == 1002


# -- folders of runs -----------------------------------------------------------------

WEIGHTS = {
    "effective_sample_size": 2.0,
    "alpha_negative": 0.5,
    **{"own_group": 0.5, "own_group_weight": 0.5, "own_group_bank": 0.5},
}
TARGET = {"task_id": 0, "unconditional": 0.5, "steps": [0], "curves": {"conditional": [0.5]}}


@pytest.mark.parametrize(
    "change",
    [
        {"own_group": "x"},
        {"alpha_max": "../x"},
        {"own_group_bank": None},
        {"effective_sample_size": None},
    ],
)
def test_weights_of_a_target_that_are_no_numbers(change):
    records.check("x", json.dumps({**TARGET, "weights": WEIGHTS}), run_files.Target)
    with pytest.raises(DamagedFile):
        records.check("x", json.dumps({**TARGET, "weights": WEIGHTS | change}), run_files.Target)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", "", ".."])
def test_a_file_that_a_folder_names_lies_in_it(name, tmp_path):
    with pytest.raises(DamagedFile, match="is no file of this folder"):
        records.refuse_other_files(tmp_path, {name: "0" * 32})


# -- images and tables ---------------------------------------------------------------


def test_an_image_that_claims_a_size_is_refused_before_it_is_made(tmp_path):
    from metaforge.components import Context
    from metaforge.image_files import ImageForm, read_images

    def chunk(kind: bytes, content: bytes) -> bytes:
        sum_ = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + sum_

    head = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(99)))
    (tmp_path / "x.png").write_bytes(data + chunk(b"IEND", b""))
    with pytest.raises(DataError, match=r"x\.png: "):
        read_images(tmp_path, ["x.png"], ImageForm(3, 8, 8), Context())


def test_a_table_s_text_of_very_many_digits_or_characters_is_a_fault(tmp_path):
    from metaforge.table_files import read_table

    path = tmp_path / "x.csv"
    for cell, told in (("9" * 5000, "5,000 characters"), ("x" * 1001, "1,001 characters")):
        path.write_text(f"name,n\n1,1\n{cell},2\n")
        with pytest.raises(DataError, match=f"line 3: column name has a text of {told}"):
            read_table(path, text=("name",))
    path.write_text(f"name,n\n1,1\n{'9' * 999},2\n")
    assert read_table(path, text=("name",)).columns["name"].dtype.kind == "U"


# -- what is printed -----------------------------------------------------------------


def test_an_error_moves_no_cursor_and_sets_no_title(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text('"\\u001b]0;title\\u0007\\u202e": 1\nse\u0301ed: 1\n')
    assert main(["validate", str(path)]) == 2
    told = capsys.readouterr().err
    assert "\\x1b]0;title\\x07\\u202e" in told
    assert not set(told) & {"\x1b", "\x07", "\u202e"}


# -- all of it under a limit ---------------------------------------------------------

BOMBS = """
import io, sys, zipfile
import numpy as np
from pathlib import Path
from metaforge.errors import MetaforgeError
from metaforge.npy_files import BROKEN, read_member
from tests.fuzz.guard import limit_memory

path = Path(sys.argv[1])
header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (17179869184,), }"
block = bytes(1 << 24)
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
    with archive.open("X.npy", "w", force_zip64=True) as member:
        member.write(b"\\x93NUMPY\\x01\\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(8):
            member.write(block)
limit_memory(256)
try:
    read_member(path, "X")
except (*BROKEN, MetaforgeError) as error:
    print("refused:", error)
"""


def test_a_bomb_is_refused_within_256_mib(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(BOMBS), str(tmp_path / "x.npz")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("refused:"), done.stderr
    assert isinstance(DamagedFile("x"), MetaforgeError)
