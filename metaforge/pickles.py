"""Pickles, read by an interpreter that can make data and nothing else.

A pickle is a program. ``pickle.Unpickler`` runs it, and to forbid names in ``find_class``
leaves the rest of the machine open: ``copyreg``'s extensions, ``setattr`` and
``__setstate__`` on what is allowed, memo tables and strings as large as a number in the file
says. Here such instructions do not exist. There are those of protocols 2 to 5 that lists,
tuples, dicts, strings, numbers and arrays are made of; a name that a file asks for is looked
up in a table of our own (``pickle_arrays.NAMES``), nothing is imported, and whatever is made is
paid for by bytes of the file. Long strings are views of the file, not copies.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metaforge.pickle_arrays import MAKERS, NAMES, SHORT, Array, BadPickle, Dtype, as_text

_PROTO, _STOP = 0x80, ord(".")
_PROTOCOLS = range(2, 6)


def read_pickle_file(path: Path) -> Any:
    """``read_pickle`` of a file, of which arrays and long strings stay views.

    Raises ``OSError`` where it cannot be read.
    """
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise BadPickle("it is empty")
        return read_pickle(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def read_pickle(data: memoryview) -> Any:
    """The object that the pickle ``data`` holds.

    Strings that Python 2 wrote are ``bytes``, arrays are ``Array``s. Raises ``BadPickle``:
    what was found, if it is not whole, or more than plain data.
    """
    if data[0] != _PROTO and data[0] not in b"c(":  # text pickles may yet ask for a name
        raise BadPickle(_beginning(data))
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise BadPickle(
            f"it makes no sense at byte {machine.start} ({type(error).__name__}: {error})"
        ) from error


class _Machine:
    """A stack, positions of marks in it, and what the pickle has numbered to refer to again."""

    def __init__(self, data: memoryview):
        self.data = data
        self.start = self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.made = 0  # bytes of strings that were made of others

    def run(self) -> Any:
        data, steps = self.data, _STEPS
        while True:
            self.start = at = self.at
            self.move(1)
            code = data[at]
            if code == _STOP:
                break
            step = steps.get(code)
            if step is None:
                raise BadPickle(_unknown(data, at))
            step(self)
        if extra := len(data) - self.at:
            raise BadPickle(f"{extra} bytes follow its end at byte {self.at}")
        (result,) = self.stack
        return result

    def move(self, size: int) -> None:
        """Past the next ``size`` bytes, which must be there."""
        self.at += size
        if self.at > len(self.data):
            raise BadPickle(
                f"it is truncated: its {len(self.data)} bytes end {self.at - len(self.data)} short "
                f"of what byte {self.start} announces"
            )

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        at = self.at
        self.move(size)
        return self.data[at : self.at]

    def number(self, form: struct.Struct) -> Any:
        at = self.at
        self.move(form.size)
        return form.unpack_from(self.data, at)[0]

    def line(self) -> str:
        """The text up to the next line feed."""
        near = bytes(self.data[self.at : self.at + 256])
        text, found, _ = near.partition(b"\n")
        if not found:
            raise BadPickle(f"byte {self.start}: it holds a name without an end")
        self.at += len(text) + 1
        return text.decode("latin1")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items


Step = Callable[[_Machine], None]


def _fixed(form: str) -> Step:
    """Push a number of fixed width."""
    packed = struct.Struct(form)
    return lambda machine: machine.push(machine.number(packed))


def _sized(form: str, convert: Callable[[memoryview], Any]) -> Step:
    """Push what so many bytes mean, after a number that says how many."""
    packed = struct.Struct(form)
    return lambda machine: machine.push(convert(machine.take(machine.number(packed))))


def _whole(digits: memoryview) -> int:
    if len(digits) > 8:
        raise BadPickle(f"it holds a number of {len(digits)} bytes")
    return int.from_bytes(digits, "little", signed=True)


def _bytes(content: memoryview) -> bytes | memoryview:
    return bytes(content) if len(content) <= SHORT else content


def _text(content: memoryview) -> str:
    return str(content, "utf-8")


def _constant(value: Any) -> Step:
    return lambda machine: machine.push(value)


def _tuple(size: int) -> Step:
    def step(machine: _Machine) -> None:
        items = [machine.stack.pop() for _ in range(size)]
        machine.push(tuple(reversed(items)))

    return step


def _put(form: str) -> Step:
    packed = struct.Struct(form)

    def step(machine: _Machine) -> None:
        machine.memo[machine.number(packed)] = machine.stack[-1]

    return step


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _get(form: str) -> Step:
    packed = struct.Struct(form)
    return lambda machine: machine.push(machine.memo[machine.number(packed)])


def _append(machine: _Machine) -> None:
    _extend(machine, [machine.stack.pop()])


def _extend(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not list:
        raise BadPickle(f"byte {machine.start}: it appends to a {type(target).__name__}")
    target.extend(items)


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not dict:
        raise BadPickle(f"byte {machine.start}: it sets items of a {type(target).__name__}")
    # Strings and numbers alone: to hash tuples of tuples of tuples can take for ever.
    for name, value in zip(items[::2], items[1::2], strict=True):
        target[name if type(name) is int else as_text(name)] = value


def _set_item(machine: _Machine) -> None:
    value, name = machine.stack.pop(), machine.stack.pop()
    _set_items(machine, [name, value])


def _global(machine: _Machine) -> None:
    module, name = machine.line(), machine.line()
    machine.push(_named(machine, module, name))


def _instance(machine: _Machine) -> None:
    module, name = machine.line(), machine.line()
    raise BadPickle(f"byte {machine.start}: it asks for {_shown(module, name)}")


def _stack_global(machine: _Machine) -> None:
    name, module = as_text(machine.stack.pop()), as_text(machine.stack.pop())
    machine.push(_named(machine, module, name))


def _named(machine: _Machine, module: str, name: str) -> Any:
    if (module, name) not in NAMES:
        raise BadPickle(f"byte {machine.start}: it asks for {_shown(module, name)}")
    return NAMES[module, name]


def _shown(module: str, name: str) -> str:
    """A dotted name from a file, safe to print."""
    return ascii(f"{module}.{name}"[:120])[1:-1]


def _reduce(machine: _Machine) -> None:
    arguments, maker = machine.stack.pop(), machine.stack.pop()
    if not any(maker is known for known in MAKERS):
        raise BadPickle(f"byte {machine.start}: it calls a {type(maker).__name__}")
    if type(arguments) is not tuple:
        raise BadPickle(f"byte {machine.start}: it calls with a {type(arguments).__name__}")
    made = maker(*arguments)
    if isinstance(made, bytes | str):
        machine.made += len(made)
        if machine.made > len(machine.data):
            raise BadPickle(f"byte {machine.start}: it copies its strings again and again")
    machine.push(made)


def _build(machine: _Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    if type(target) not in (Array, Dtype) or type(state) is not tuple:
        raise BadPickle(
            f"byte {machine.start}: it sets the state of a {type(target).__name__} to a "
            f"{type(state).__name__}"
        )
    target.set_state(*state)


def _protocol(machine: _Machine) -> None:
    version = machine.take(1)[0]
    if version not in _PROTOCOLS:
        raise BadPickle(f"it is of protocol {version}; 2 to 5 are read")


def _frame(machine: _Machine) -> None:
    """The length of what follows, for those who read ahead."""
    machine.take(8)


def _beginning(data: memoryview) -> str:
    return f"it begins with {bytes(data[:8])!r}, not as a pickle of protocol 2 to 5 does"


def _unknown(data: memoryview, at: int) -> str:
    """Why the instruction at this byte is none."""
    from pickletools import opcodes

    if data[0] != _PROTO:
        return _beginning(data)
    name = {ord(known.code): known.name for known in opcodes}.get(data[at])
    if name is None:
        return f"byte {at}: 0x{data[at]:02x} is no instruction"
    return f"byte {at}: it uses {name}, which arrays and plain data do not need"


_STEPS: dict[int, Step] = {
    _PROTO: _protocol,
    0x95: _frame,
    ord("("): lambda machine: machine.marks.append(len(machine.stack)),
    # Numbers and constants.
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("K"): _fixed("<B"),
    ord("M"): _fixed("<H"),
    ord("J"): _fixed("<i"),
    ord("G"): _fixed(">d"),
    0x8A: _sized("<B", _whole),
    # Strings: Python 2's own, text, bytes.
    ord("U"): _sized("<B", _bytes),
    ord("T"): _sized("<I", _bytes),
    ord("X"): _sized("<I", _text),
    0x8C: _sized("<B", _text),
    0x8D: _sized("<Q", _text),
    ord("C"): _sized("<B", _bytes),
    ord("B"): _sized("<I", _bytes),
    0x8E: _sized("<Q", _bytes),
    0x96: _sized("<Q", _bytes),  # a bytearray, as protocol 5 has an array's content
    # Containers.
    ord("]"): lambda machine: machine.push([]),
    ord("}"): lambda machine: machine.push({}),
    ord(")"): _constant(()),
    ord("t"): lambda machine: machine.push(tuple(machine.since_mark())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("a"): _append,
    ord("e"): lambda machine: _extend(machine, machine.since_mark()),
    ord("s"): _set_item,
    ord("u"): lambda machine: _set_items(machine, machine.since_mark()),
    # References to what came before.
    ord("q"): _put("<B"),
    ord("r"): _put("<I"),
    0x94: _memoize,
    ord("h"): _get("<B"),
    ord("j"): _get("<I"),
    # Names, calls and states: our own.
    ord("c"): _global,
    ord("i"): _instance,
    0x93: _stack_global,
    ord("R"): _reduce,
    ord("b"): _build,
}
