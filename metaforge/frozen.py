"""A frozen adapted model as TorchScript or ONNX: for programs that have no metaforge.

The module maps what the learner sees, so that what is done to raw samples before
(``Preprocess``) is the program's to do; the export's report says what that is. What is written is
run, and held against the module, before it is kept.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from metaforge.adapted import Adapted
from metaforge.errors import DataError, NumericError, PluginError, one_line
from metaforge.optional import ONNX
from metaforge.records import write_atomic

Form = Literal["torchscript", "onnx"]
#: How far what is exported may be from the module, relative to its outputs; samples tried.
_RTOL, _TRIED = 1e-4, (1, 5)
_INPUT, _OUTPUT = "input", "output"


def export(model: Adapted, path: Path, form: Form, *, force: bool = False) -> None:
    """Write the model's module, any number of samples at a time, to a file.

    Raises ``DataError`` where there is something at ``path`` (unless ``force``),
    ``PluginError`` for a module that cannot be exported in this form, or a missing package, and
    ``NumericError`` where what was exported computes something else.
    """
    if path.exists() and not force:
        raise DataError(f"{path}: exists; nothing is overwritten without --force")
    if model.transductive:
        raise PluginError(
            f"{model.choice.use}: a transductive model predicts samples by the others that come "
            "with them, which no frozen function does: it is not exported"
        )
    module = model.module.cpu().eval()
    samples = [_samples(model, n) for n in _TRIED]
    made, run = {"torchscript": _torchscript, "onnx": _onnx}[form](model, module, samples[-1])
    for x in samples:
        with torch.no_grad():
            wanted, found = module(x), run(x)
        error = float((found - wanted).norm() / wanted.norm().clamp(min=1e-12))
        if not error <= _RTOL:
            raise NumericError(
                f"{model.choice.use}: as {form} it computes something else on {len(x)} samples "
                f"(off by {100 * error:.3g} %): not written"
            )
    write_atomic(path, made)


def _samples(model: Adapted, n: int) -> Tensor:
    """[n, *x]: samples like those of the support."""
    own = model.support.support_x[0].cpu()
    rows = torch.arange(n) % len(own)
    return own[rows] * (1 + 0.1 * torch.arange(n).view(-1, *[1] * (own.ndim - 1)))


def _torchscript(model: Adapted, module: nn.Module, x: Tensor) -> tuple[bytes, Any]:
    file = io.BytesIO()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the form is the user's choice
            torch.jit.save(torch.jit.trace(module, x), file)
            loaded = torch.jit.load(io.BytesIO(file.getvalue()))
    except (RuntimeError, TypeError, ValueError) as error:
        raise _unfit(model, "torchscript", error) from error
    return file.getvalue(), loaded


def _onnx(model: Adapted, module: nn.Module, x: Tensor) -> tuple[bytes, Any]:
    if ONNX.missing:
        raise PluginError(f"export to onnx: {ONNX.missing}")
    import onnxruntime

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (x,),
                input_names=[_INPUT],
                output_names=[_OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            made = program.model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise _unfit(model, "onnx", error) from error

    def run(given: Tensor) -> Tensor:
        (found,) = session.run(None, {session.get_inputs()[0].name: given.numpy()})
        return torch.from_numpy(found)

    return made, run


def _unfit(model: Adapted, form: str, error: Exception) -> PluginError:
    other = "onnx" if form == "torchscript" else "torchscript"
    return PluginError(
        f"{model.choice.use}: its adapted module cannot be exported as {form}: {one_line(error)}; "
        f"try {other}, or keep the model's folder, which metaforge predict reads"
    )
