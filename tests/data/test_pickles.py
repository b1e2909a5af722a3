"""The interpreter of pickles: it reads what Python 2 wrote, and nothing makes it do more."""

from __future__ import annotations

import contextlib
import copyreg
import os
import pickle
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaforge.errors import DataError
from metaforge.pickle_arrays import BadPickle
from metaforge.pickles import read_pickle, read_pickle_file
from metaforge_leo_embeddings.tables import read_table

from ..plugins.leo_embeddings_files import entries, pickled

GOOD = entries("train")


def read(data: bytes) -> Any:
    return read_pickle(memoryview(data))


def found(data: bytes) -> str:
    """What the refusal says."""
    with pytest.raises(BadPickle) as caught:
        read(data)
    return str(caught.value)


# -- what it reads -------------------------------------------------------------------

ARRAYS = {
    "f4": np.arange(6, dtype="<f4").reshape(2, 3),
    "f8": np.arange(6, dtype="<f8").reshape(2, 3),
    "f2": np.arange(6, dtype="<f2"),
    "big endian": np.arange(6, dtype=">f4").reshape(2, 3),
    "i8": np.arange(-3, 3),
    "u1": np.arange(6, dtype="u1"),
    "bool": np.array([True, False]),
    "bytes": np.array(["a", "bcd"], dtype="S"),
    "text": np.array(["a", "bcdé"], dtype="U"),
    "long": np.arange(5000, dtype="<f4"),
    "images": np.arange(120, dtype="u1").reshape(2, 4, 5, 3),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_are_what_python_reads(array):
    data = pickled({"a": array})
    expected = pickle.loads(data, encoding="latin1")["a"]
    value = read(data)["a"].value
    assert np.array_equal(value, expected)
    assert value.dtype == array.dtype
    assert np.array_equal(value, array)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("array", [*ARRAYS.values(), np.asfortranarray(ARRAYS["f4"])])
def test_arrays_that_python_3_wrote(array, protocol):
    data = pickle.dumps({"a": array}, protocol)
    assert np.array_equal(read(data)["a"].value, array)
    with_old_name = data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    if protocol < 4:  # which tells the length of names and frames
        assert np.array_equal(read(with_old_name)["a"].value, array)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_that_python_3_wrote(protocol):
    plain = {"a": [1, -1, 300, 70000, 2**40, True, False, None, 1.5], "b": ("x", (), (1, 2, 3, 4))}
    plain["names of numbers"] = {7: "seven", -1: "minus one"}
    plain["c"] = [plain["a"], "x" * 300, "ü", {}]
    assert read(pickle.dumps(plain, protocol)) == plain


def test_objects_of_an_array_are_a_list():
    value = read(pickled(GOOD))["keys"].value
    assert value == [key.encode() for key in GOOD["keys"]]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_images_one_by_one_as_bytes_that_differ_in_length(protocol):
    """How tieredImageNet has its images: a list of arrays of the bytes of PNG files."""
    images = [np.arange(n, dtype=np.uint8)[:, None] for n in (3, 5000, 7)]
    for image, value in zip(images, read(pickle.dumps(images, protocol)), strict=True):
        assert np.array_equal(value.value, image)


def test_numpy_scalars():
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps({"a": [np.int64(3), np.float32(0.5), np.str_("abc")]}, protocol)
        assert read(data) == {"a": [3, 0.5, "abc"]}


def test_a_released_file_is_read_as_its_authors_read_it():
    """Theirs: ``pickle.load(file, encoding="latin1")``."""
    theirs = pickle.loads(pickled(GOOD), encoding="latin1")
    ours = read(pickled(GOOD))
    assert np.array_equal(ours["embeddings"].value, theirs["embeddings"])
    assert np.array_equal(ours["labels"].value, theirs["labels"])
    assert [key.decode("latin1") for key in ours["keys"].value] == theirs["keys"].tolist()


def test_long_strings_are_not_copied():
    data = pickled({"a": np.zeros((1000, 1000), np.float32)})
    tracemalloc.start()
    read(data)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_file_is_read_in_place_and_an_empty_one_is_refused(tmp_path):
    path = tmp_path / "images.pkl"
    path.write_bytes(pickle.dumps({"data": ARRAYS["images"]}, 4))
    assert np.array_equal(read_pickle_file(path)["data"].value, ARRAYS["images"])
    path.write_bytes(b"")
    with pytest.raises(BadPickle, match="it is empty"):
        read_pickle_file(path)


# -- attacks -------------------------------------------------------------------------

CANARY = Path("canary")
TOUCH = "__import__('pathlib').Path('canary').touch()"
SHELL = "echo sang > canary"


class Calls:
    """Pickled as a call."""

    def __init__(self, *reduced: Any):
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def named(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def text(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(raw)) + raw


def two(*parts: bytes) -> bytes:
    """A pickle of protocol 2."""
    return b"\x80\x02" + b"".join(parts) + b"."


EXEC = named("builtins", "exec") + text(TOUCH) + b"\x85R"


def in_a_good_file(evil: bytes, entry: str) -> bytes:
    """A released file, one of whose entries is something else."""
    others = {name: value for name, value in GOOD.items() if name != entry}
    return pickled(others)[:-2] + text(entry) + evil + b"u."


def stack_global(module: str, name: str) -> bytes:
    return b"\x80\x04" + text(module) + text(name) + b"\x93"


def numpy_load() -> bytes:
    np.save("evil.npy", np.array([Calls(exec, (TOUCH,))], dtype=object), allow_pickle=True)
    return pickle.dumps(Calls(np.load, ("evil.npy", None, True)), 2)


def set_state_twice() -> bytes:
    """The first state gives an object the ``__setstate__`` that the second is handed to."""
    state = b"}" + text("__setstate__") + named("os", "system") + b"s"
    return two(named("argparse", "Namespace"), b")R", state, b"b", text(SHELL), b"b")


def of_system(protocol: int) -> Callable[[], bytes]:
    return lambda: pickle.dumps(Calls(os.system, (SHELL,)), protocol)


def as_bytes(data: bytes) -> Callable[[], bytes]:
    return lambda: data


#: Each sings when ``pickle.loads`` reads it; and what the refusal names.
SINGING: dict[str, tuple[Callable[[], bytes], str]] = {
    **{
        f"os.system, {n}": (of_system(n), f"asks for {os.system.__module__}.system")
        for n in range(5)
    },
    "eval": (lambda: pickle.dumps(Calls(eval, (TOUCH,)), 2), "asks for __builtin__.eval"),
    "getattr": (
        as_bytes(
            two(
                named("builtins", "getattr"),
                named("importlib", "import_module") + text("builtins") + b"\x85R",
                text("exec") + b"\x86R" + text(TOUCH) + b"\x85R",
            )
        ),
        "asks for builtins.getattr",
    ),
    "in keys": (as_bytes(in_a_good_file(b"](" + EXEC + b"e", "keys")), "asks for builtins.exec"),
    "in labels": (as_bytes(in_a_good_file(EXEC, "labels")), "asks for builtins.exec"),
    "as an argument": (as_bytes(two(named("numpy", "dtype"), EXEC, b"\x85R")), "builtins.exec"),
    "as a state": (
        as_bytes(two(named("numpy", "dtype"), text("f4"), b"\x85R", EXEC, b"b")),
        "asks for builtins.exec",
    ),
    "STACK_GLOBAL": (
        as_bytes(stack_global("builtins", "exec") + text(TOUCH) + b"\x85R."),
        "asks for builtins.exec",
    ),
    "INST": (as_bytes(two(b"(", text(SHELL), b"ios\nsystem\n")), "asks for os.system"),
    "OBJ": (as_bytes(two(b"(", named("os", "system"), text(SHELL), b"o")), "asks for os.system"),
    "numpy.load": (numpy_load, "asks for numpy.load"),
    "__setstate__": (set_state_twice, "asks for argparse.Namespace"),
    "EXT1": (as_bytes(two(b"\x82\xf1", text(TOUCH), b"\x85R")), "uses EXT1"),
    "EXT2": (as_bytes(two(b"\x83\xf1\x00", text(TOUCH), b"\x85R")), "uses EXT2"),
    "EXT4": (as_bytes(two(b"\x84\xf1\x00\x00\x00", text(TOUCH), b"\x85R")), "uses EXT4"),
}


@pytest.fixture
def extension():
    """``exec`` by a number, which never reaches ``find_class`` once it is cached."""
    copyreg.add_extension("builtins", "exec", 0xF1)
    yield
    copyreg.remove_extension("builtins", "exec", 0xF1)
    copyreg.clear_extension_cache()


@pytest.mark.parametrize(("make", "message"), SINGING.values(), ids=SINGING)
def test_nothing_in_a_file_runs(make, message, extension, tmp_path):
    data = make()
    with contextlib.suppress(Exception):
        pickle.loads(data, encoding="latin1")
    assert CANARY.exists(), "the attack is none"
    CANARY.unlink()

    path = tmp_path / "train_embeddings.pkl"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(caught.value).count("\n") == 0
    assert not CANARY.exists()


DTYPE, RECONSTRUCT = named("numpy", "dtype"), named("numpy.core.multiarray", "_reconstruct")
NDARRAY = named("numpy", "ndarray")
EMPTY_ARRAY = RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01b\x87R"
F4 = DTYPE + b"U\x02f4\x85R"
DEFAULTS = b"N}" + text("__defaults__") + b"Ns\x86"


def out_of_band() -> bytes:
    """Protocol 5 with the content of an array left to another place."""
    return pickle.dumps(ARRAYS["f4"], 5, buffer_callback=lambda buffer: None)


def from_buffer(dtype: bytes, shape: bytes, order: bytes, content: bytes = b"abcd") -> bytes:
    """An array as protocol 5 has it."""
    held = b"\x96" + struct.pack("<Q", len(content)) + content
    made = stack_global("numpy._core.numeric", "_frombuffer")[2:]
    return b"\x80\x05" + made + b"(" + held + dtype + shape + order + b"tR."


REFUSED = {
    "persistent id": (two(b"Pabc\n"), "uses PERSID"),
    "persistent id of an object": (two(text("abc"), b"Q"), "uses BINPERSID"),
    "new object": (two(NDARRAY, b")\x81"), "uses NEWOBJ"),
    "new object with keywords": (two(NDARRAY, b")}\x92"), "uses NEWOBJ_EX"),
    "copyreg": (
        pickle.dumps(Calls(copyreg._reconstructor, (list, list, [])), 2),
        "copy_reg._recon",
    ),
    "registering an extension": (two(named("copyreg", "add_extension")), "copyreg.add_extension"),
    "numpy's functions": (two(named("numpy", "fromfile")), "asks for numpy.fromfile"),
    "a dotted name": (stack_global("numpy", "dtype.__class__") + b".", "numpy.dtype.__class__"),
    "a name over lines": (stack_global("a\x1b[2J", "b\n") + b".", r"asks for a\x1b[2J.b\n"),
    "a long name": (two(b"c" + b"a" * 1000 + b"\nb\n"), "a name without an end"),
    "state of a class": (two(DTYPE, b"}b"), "sets the state of a type"),
    "state of a function": (two(RECONSTRUCT, DEFAULTS, b"b"), "sets the state of a function"),
    "state of a list": (two(b"](N\x85b"), "sets the state of a list"),
    "another state": (two(F4, b"}b"), "sets the state of a Dtype to a dict"),
    "a call of a class": (two(NDARRAY, b")R"), "it calls a object"),
    "a call of a result": (two(EMPTY_ARRAY, b")R"), "it calls a Array"),
    "a call with a list": (two(DTYPE, b"]R"), "it calls with a list"),
    "too many arguments": (two(DTYPE, b"(NNNNtR"), "makes no sense"),
    "another kind of array": (two(RECONSTRUCT, b"NNN\x87R"), "no numpy.ndarray"),
    "records": (two(DTYPE, text("V8"), b"\x85R"), "an array of 'V8'"),
    "fields": (two(F4, b"(K\x03U\x01<N(U\x01atNtb"), "an array of records"),
    "dates": (two(DTYPE, text("M8"), b"\x85R"), "an array of 'M8'"),
    "an encoding": (two(named("_codecs", "encode"), text("a"), text("rot13"), b"\x86R"), "rot13"),
    "a set": (b"\x80\x04\x8f.", "uses EMPTY_SET"),
    "a tuple as a key": (pickle.dumps({(1,): 2}, 2), "a tuple where a short string belongs"),
    "an array elsewhere": (out_of_band(), "uses NEXT_BUFFER"),
    "an array of an order": (from_buffer(F4, b"K\x01\x85", text("K")), "an array of order 'K'"),
    "an array of five axes": (
        pickle.dumps(np.zeros((1, 1, 1, 1, 1)), 2),
        "shape [1, 1, 1, 1, ...]; 1 to 4 axes are read",
    ),
    "protocol 6": (b"\x80\x06N.", "protocol 6; 2 to 5 are read"),
    "protocol 0": (pickle.dumps([1], 0), "not as a pickle of protocol 2 to 5 does"),
    "no pickle": (b"PK\x03\x04 a zip file", "it begins with b'PK"),
    "text": (b"hello", "it begins with b'hello'"),
    "no instruction": (b"\x80\x02\xff.", "0xff is no instruction"),
    "nothing": (two(), "makes no sense"),
    "two things": (two(b"NN"), "makes no sense"),
    "no mark": (two(b"t"), "makes no sense"),
    "no such memory": (two(b"h\x07"), "makes no sense"),
    "append to a number": (two(b"K\x01Na"), "appends to a int"),
    "items of a list": (two(b"]" + text("a") + b"Ns"), "sets items of a list"),
    "an odd number of items": (two(b"}(" + text("a") + b"u"), "makes no sense"),
    "rubbish behind": (two(b"N") + b"more", "4 bytes follow its end"),
    "another pickle behind": (two(b"N") * 2, "4 bytes follow its end"),
    "text that is none": (two(text(b"\xff\xfe")), "makes no sense"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_more_than_data_is_named(data, message):
    assert message in found(data)
    assert "\n" not in found(data)
    assert found(data).isprintable()


def test_an_attack_leaves_nothing_behind():
    before = read(pickled(GOOD))["embeddings"].value
    for data, _ in REFUSED.values():
        found(data)
    assert np.array_equal(read(pickled(GOOD))["embeddings"].value, before)


# -- bombs ---------------------------------------------------------------------------


def state(shape: bytes, dtype: bytes, content: bytes) -> bytes:
    return EMPTY_ARRAY + b"(K\x01" + shape + dtype + b"\x89" + content + b"tb"


HUGE = b"\x8a\x06" + (10**12).to_bytes(6, "little")
LONG = b"X" + struct.pack("<I", 100_000) + b"x" * 100_000
TEXTS = DTYPE + b"U\x05U9999\x85R"
NESTED = b")q\x01" + b"h\x01h\x01\x86q\x01" * 100

BOMBS = {
    "shape": two(state(HUGE + b"K\x01\x86", F4, b"U\x04abcd")),
    "shape times": two(state((HUGE + HUGE + b"\x86"), F4, b"U\x04abcd")),
    "negative shape": two(state(b"J" + struct.pack("<i", -1) + b"\x85", F4, b"U\x04abcd")),
    "no rows": two(state(b"K\x00" + HUGE + b"\x86", F4, b"U\x00")),
    "many dimensions": two(state(b"(" + b"K\x01" * 100_000 + b"t", F4, b"U\x04abcd")),
    "shape, protocol 5": from_buffer(F4, HUGE + b"\x85", text("C")),
    "dummy shape": two(RECONSTRUCT, NDARRAY, HUGE, b"\x85U\x01b\x87R", b"K\x01b"),
    "objects": two(state(HUGE + b"\x85", DTYPE + b"U\x02O8\x85R", b"]")),
    "memo": two(b"Nr\xff\xff\xff\xff", b"a"),
    "string": two(b"T\xff\xff\xff\xff"),
    "negative string": two(b"T" + struct.pack("<i", -5)),
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b".",
    "byte array": b"\x80\x04\x96" + struct.pack("<Q", 2**40) + b".",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 2**40),
    "number": two(b"\x8b" + struct.pack("<i", 2**30)),
    "copies": two(
        named("_codecs", "encode") + b"q\x01" + LONG + b"q\x02]("
        + b"h\x01h\x02\x85R" * 20_000, b"e",
    ),
    "scalars": two(
        named("numpy.core.multiarray", "scalar") + b"q\x01" + TEXTS + b"q\x02"
        + b"T" + struct.pack("<i", 39_996) + b"a\0\0\0" * 9999 + b"q\x03]("
        + b"h\x01h\x02h\x03\x86R" * 20_000, b"e",
    ),
    "tuples of tuples": two(b"}", NESTED, b"Ns"),
}  # fmt: skip


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_small_file_takes_little_memory_and_time(data, tmp_path):
    path = tmp_path / "train_embeddings.pkl"
    path.write_bytes(data)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(DataError):
        read_table(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(data) + 1_000_000
    assert time.process_time() - start < 10


def many_times(item: bytes) -> bytes:
    return b"](" + item + b"q\xf0" + b"h\xf0" * (len(GOOD["keys"]) - 1) + b"e"


TANGLED = {
    "a list in itself": b"]q\xf0h\xf0a",
    "a dict in itself": b"}q\xf0" + text("a") + b"h\xf0s",
    "a long string, often": many_times(b"T" + struct.pack("<i", 4000) + b"a-b-" + b"c" * 3996),
    "tuples of tuples": many_times(NESTED),
    "lists in lists": b"]" * 50_000 + b"a" * 49_999,
}


@pytest.mark.parametrize("entry", ["keys", "labels", "embeddings"])
@pytest.mark.parametrize("tangle", TANGLED.values(), ids=TANGLED)
def test_objects_that_refer_to_each_other(tangle, entry, tmp_path):
    path = tmp_path / "train_embeddings.pkl"
    path.write_bytes(in_a_good_file(tangle, entry))
    if entry == "labels" and b"a-b-" in tangle:
        read_table(path)  # one label for all: odd, not wrong
        return
    with pytest.raises(DataError):
        read_table(path)


# -- damage --------------------------------------------------------------------------


def test_a_file_cut_anywhere_is_refused():
    data = pickled(GOOD)
    for end in range(1, len(data), 7):
        message = found(data[:end])
        assert "truncated" in message or "without an end" in message


def test_a_byte_changed_anywhere_makes_another_table_or_one_clear_error(tmp_path):
    path = tmp_path / "train_embeddings.pkl"
    small = {name: value[:12] for name, value in GOOD.items()}
    data = pickled(small)
    rng = np.random.default_rng(0)
    refused = []
    for at in rng.integers(len(data), size=1000):
        changed = bytearray(data)
        changed[at] = rng.integers(256)
        path.write_bytes(changed)
        try:
            read_table(path)
        except DataError as error:
            refused.append(str(error))
    assert 100 < len(refused) < 950
    assert all(line.isprintable() for line in refused)
    assert not CANARY.exists()
