"""Errors a user can meet, each with the exit code the command line ends with.

A message says where, what was found, what was expected and what to do; the
command line prints it without a traceback.

====  =======================================================================
code  meaning
====  =======================================================================
1     none of the others: ``doctor`` found something missing, a worker or a rank died
2     usage or recipe: what was typed or written is not to be understood
3     data, and files and output that cannot be read or written
4     a plugin: missing, failed, ambiguous, or at odds with its contract
5     a number went wrong
130   stopped by the user, and resumable
141   the reader of the output has left (128 + SIGPIPE, as a shell tells it)
====  =======================================================================
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

#: Problems of a recipe that its message lists; the others are counted.
_TOLD = 200


class MetaforgeError(Exception):
    """Base of every error that metaforge raises on purpose."""

    exit_code = 1


class DataError(MetaforgeError):
    """The data cannot serve the recipe: missing, broken, too small or not finite. Also any
    file, or the output, that cannot be read or written."""

    exit_code = 3


class DamagedFile(DataError):
    """A file of a run is not what was written there, or was written by another version."""


class PluginError(MetaforgeError):
    """A component is missing, ambiguous, failed to load or broke its contract."""

    exit_code = 4


class UnknownName(PluginError):
    """No component, or kind of component, is called so: a slip of who wrote the name."""

    exit_code = 2


class NumericError(MetaforgeError):
    """A number went wrong: a NaN, a matrix that is not positive definite, a cut graph."""

    exit_code = 5


class Interrupted(MetaforgeError):
    """The user stopped the run; its folder can be resumed."""

    exit_code = 130


class Followed(MetaforgeError):
    """This process of several ends because another has, which tells why; nothing is to be said
    here. ``str`` is what the other says."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class RankLost(MetaforgeError):
    """One of several processes has ended before its time, or no longer answers."""


class Problem(NamedTuple):
    """One thing wrong with a recipe.

    ``path`` is the dotted key (``inner.steps``); ``where`` is ``file:line`` or the
    override it came from; ``code`` picks the exit code (2 recipe, 3 data, 4 plugin).
    """

    path: str
    message: str
    where: str = ""
    code: int = 2

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.path, self.message) if part)


class RecipeError(MetaforgeError):
    """A recipe has problems; they are listed, one a line (after the first 200 they are counted).

    The exit code is 2 unless every problem is one of data (3) or of plugins (4).
    """

    exit_code = 2

    def __init__(self, problems: list[Problem] | str):
        if isinstance(problems, str):
            problems = [Problem("", problems)]
        self.problems = problems
        codes = {problem.code for problem in problems}
        self.exit_code = codes.pop() if len(codes) == 1 else 2
        lines = [str(problem) for problem in problems[:_TOLD]]
        lines += [f"and {len(problems) - _TOLD:,} more problems"] if len(problems) > _TOLD else []
        super().__init__("\n".join(lines))

    @property
    def count(self) -> int:
        """How many problems there are, without remarks on them, which have no place."""
        return sum(bool(problem.path or problem.where) for problem in self.problems)


@contextmanager
def said_by(name: str, instead_of: str = "") -> Iterator[None]:
    """Put a name before what a ``DataError`` says, ``instead_of`` another that stands there."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {str(error).removeprefix(f'{instead_of}: ')}") from error


def printable(text: str) -> str:
    """A text of any origin as a terminal may be given it: what would move the cursor, set a title
    or turn the direction of writing is written out."""
    return "".join(
        one
        if one.isprintable() or one in "\n\t" or unicodedata.category(one) == "Zs"
        else ascii(one)[1:-1]
        for one in text
    )


def one_line(error: BaseException) -> str:
    """An exception's type and message in one line of bounded length; ours need no type."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:297]}..."
    if isinstance(error, MetaforgeError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
