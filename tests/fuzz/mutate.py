"""Valid bytes changed a little: cut, flipped, spliced, grown; and values of texts replaced.

All draws come from the generator that is handed in, so that an input can be made again.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from metaforge.seals import SEAL

#: What a value of a text file is replaced by: wrong types, extremes, odd characters, paths.
NASTY: tuple[str, ...] = (
    *("", "null", "~", "true", "[]", "{}", "[[]]", "[null]", "-1", "0", "1e400", "-1e400"),
    *("1e-400", "nan", ".nan", ".inf", "-.inf", "NaN", "Infinity", "1e308", "9" * 400),
    *("9" * 5000, "0x" + "f" * 6000, "0o" + "7" * 6000, "-0x" + "f" * 5000, "1" + "_0" * 3000),
    *(str(2**63), str(-(2**63) - 1), str(2**64), "1e18", "99999999999999999999.5", "0.1e"),
    *('"\\u0000"', '"\\ud800"', '"\\u001b[2J"', "'\x1b]0;x\x07'", '"\\r\\n"', "\u202e", "\ufeff"),
    *("../../../etc/passwd", "/etc/passwd", "..", ".", "~root/x", "$HOME", "$NOT_SET_ANYWHERE"),
    *("/proc/self/mem", "/dev/zero", "/dev/stdin", "file:///etc/passwd", "C:\\x", "a/../b"),
    *("!!python/object/apply:os.system ['true']", "!!binary x", "!x y", "&a [*a]", "*a", "<<: x"),
    *("&a {b: *a}", "? [a]", "|", ">", "%TAG", "---", "...", "\t", "{a: b: c}", "'", '"', "#"),
    *("<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "{{7*7}}", "{% x %}"),
    *("os:system", "builtins:eval", "__class__", "x" * 5000, "a." * 3000, "[" * 200, "{a: " * 200),
)
_TOKEN = re.compile(r"[\w.+-]+|\"[^\"\n]*\"|[^\s\w]")
_EXTREME = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


def mutated(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four changes of bytes; ``others`` are what is spliced in."""
    for _ in range(1 + int(rng.expovariate(1.0)) % 4):
        data = rng.choice(_CHANGES)(data, rng, others or (data,))
    return data


def _cut(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _drop(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    start = rng.randint(0, len(data))
    return data[:start] + data[start + rng.choice((1, 2, 4, 8, 64)) :]


def _flip(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 3, 16))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A number of some width, as lengths and offsets are."""
    width, order = rng.choice((1, 2, 4, 8)), rng.choice("<>")
    value = rng.choice(_EXTREME) & ((1 << 8 * width) - 1)
    packed = struct.pack(f"{order}Q", value)
    packed = packed[:width] if order == "<" else packed[-width:]
    at = rng.randint(0, max(0, len(data) - width))
    return data[:at] + packed + data[at + width :]


def _splice(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    first = rng.randint(0, len(other))
    piece = other[first : first + rng.choice((1, 8, 64, 512))]
    at = rng.randint(0, len(data))
    return data[:at] + piece + data[at + rng.choice((0, len(piece))) :]


def _grow(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    first = rng.randint(0, len(data))
    piece = data[first : first + rng.choice((1, 16, 256))] or b"\0"
    return data[:first] + piece * rng.choice((2, 16, 256)) + data[first:]


_CHANGES: tuple[Callable[[bytes, Random, Sequence[bytes]], bytes], ...] = (
    *(_cut, _drop, _flip, _flip, _overwrite, _overwrite, _splice, _splice, _grow),
)


def mutated_text(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """A token of a text replaced by something nasty or by another token, or bytes changed."""
    if rng.random() < 0.3:
        return mutated(data, rng, others)
    text = data.decode(errors="replace")
    for _ in range(rng.choice((1, 1, 2, 3))):
        tokens = list(_TOKEN.finditer(text))
        if not tokens:
            break
        place, other = rng.choice(tokens), rng.choice(tokens)
        new = other[0] if rng.random() < 0.25 else rng.choice(NASTY)
        text = text[: place.start()] + new + text[place.end() :]
    return text.encode(errors="surrogatepass")


def mutated_json(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """A value of JSON, or of a line of JSON, replaced, dropped or moved; or its text changed."""
    if rng.random() < 0.3:
        return mutated_text(data, rng, others)
    lines = data.splitlines()
    if not lines:
        return mutated(data, rng, others)
    if data[:1] != b"{" or len(lines) == 1 or lines[0] == b"{":
        return _json_value(data, rng, others)
    at = rng.randrange(len(lines))
    lines[at] = _json_value(lines[at], rng, others)
    return b"\n".join(lines) + b"\n"


def _json_value(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    try:
        value = json.loads(data)
    except ValueError:
        return mutated(data, rng, others)
    if isinstance(value, dict):
        value.pop(SEAL, None)  # so that the change itself is looked at
    holders = list(_holders(value))
    if not holders:
        return rng.choice(NASTY).encode(errors="surrogatepass")
    holder, key = rng.choice(holders)
    how = rng.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.35:
        other, place = rng.choice(holders)
        holder[key] = json.loads(json.dumps(other[place])) if place in _keys(other) else None
    else:
        holder[key] = "@NASTY@"
    text = json.dumps(value).replace('"@NASTY@"', _json_nasty(rng), 1)
    return text.encode(errors="surrogatepass")


def _json_nasty(rng: Random) -> str:
    nasty = rng.choice(NASTY)
    return nasty if rng.random() < 0.5 else json.dumps(nasty)


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _holders(value: Any) -> Any:
    """Each place of a value: what holds it, and under which key."""
    if isinstance(value, dict | list):
        for key in _keys(value):
            yield value, key
            yield from _holders(value[key])


def mutated_npz(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """A member changed and packed again with a sum that is right; or the archive's bytes."""
    if rng.random() < 0.35:
        return mutated(data, rng, others)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    pieces = list(members.values())
    members[name] = mutated_npy(members[name], rng, pieces)
    if rng.random() < 0.1:
        members[rng.choice(("../x.npy", "/x.npy", "X.npy/", "a\0b.npy", "y", ""))] = members.pop(
            name
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((0, 8))) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member), content)
    return packed.getvalue()


def mutated_npy(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """The header's text changed, its length kept right; or the bytes."""
    if rng.random() < 0.4 or data[:6] != b"\x93NUMPY":
        return mutated(data, rng, others)
    size = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + size]
    how = rng.random()
    if how < 0.5:
        header = re.sub(rb"'descr': '[^']*'", b"'descr': " + rng.choice(_DTYPES), header)
    elif how < 0.8:
        header = re.sub(rb"'shape': \([^)]*\)", b"'shape': " + rng.choice(_SHAPES), header)
    else:
        header = mutated_text(header, rng)
    version = rng.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\x09\0"))
    wide = version != b"\1\0"
    length = struct.pack("<I" if wide else "<H", min(len(header), 0xFFFF))
    return b"\x93NUMPY" + version + length + header + data[10 + size :]


_DTYPES = tuple(
    text.encode()
    for text in (
        *(
            "'|O'",
            "'<U99999999'",
            "'<f2'",
            "'>f8'",
            "'<c16'",
            "'<M8[s]'",
            "'<m8[D]'",
            "'|V1000000'",
        ),
        *(
            "'|b1'",
            "'<U1'",
            "'|S0'",
            "'<U0'",
            "'|V0'",
            "'<f16'",
            "'|u1'",
            "'>U3'",
            "'<i8'",
            "'<u8'",
        ),
        *("[('a', '<f4')]", "[('a', '|O')]", "[('f', '<f4', (1000000, 1000000))]", "('<f4', (3,))"),
        *("'O,O'", "'<f4,' * 9", "None", "[]", "{}", "(", "'x'", "[[[[]]]]"),
    )
)
_SHAPES = tuple(
    text.encode()
    for text in (
        *(
            "()",
            "(0,)",
            "(-1,)",
            "(9223372036854775807,)",
            "(9999999999999999999999,)",
            "(True, 2)",
        ),
        *("(4294967296, 4294967296)", "(0, 9999999999999)", "(1,) * 99", "(100000000, 8)", "[3]"),
        *(
            "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)",
            "None",
            "(60, 8, 0)",
            "(480,)",
            "(2.0,)",
            "('a',)",
            "(1e9,)",
        ),
        *("(" + "1, " * 70 + ")", "(-3, -5)", "(60, -8)"),
    )
)


def mutated_tensors(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """A safetensors file with its header changed and the header's length right, or its bytes."""
    if rng.random() < 0.35:
        return mutated(data, rng, others)
    size = int.from_bytes(data[:8], "little")
    header = mutated_json(data[8 : 8 + size], rng)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def mutated_png(data: bytes, rng: Random, others: Sequence[bytes] = ()) -> bytes:
    """A chunk of a PNG changed, dropped or doubled, with a sum that is right; or the bytes."""
    if rng.random() < 0.35 or data[:4] != b"\x89PNG":
        return mutated(data, rng, others)
    chunks, at = [], 8
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    place = rng.randrange(len(chunks))
    kind, content = chunks[place]
    how = rng.random()
    if how < 0.15:
        del chunks[place]
    elif how < 0.3:
        chunks.insert(rng.randrange(len(chunks)), (kind, content))
    elif how < 0.45:
        bomb = zlib.compress(b"\0" * 3_000_000)
        chunks.insert(1, (rng.choice((b"zTXt", b"iCCP", b"iTXt")), b"a\0\0" + bomb))
    else:
        chunks[place] = (kind, mutated(content, rng))
    packed = b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return data[:8] + packed
