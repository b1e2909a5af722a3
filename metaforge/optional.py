"""Packages that single components need and metaforge does without. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class OptionalPackage:
    """``serves`` says which components need it, ``command`` installs the tested version."""

    name: str
    serves: str
    command: str

    @property
    def missing(self) -> str:
        """What to tell a user who needs it; empty where it is installed."""
        if find_spec(self.name) is not None:
            return ""
        return f"the package {self.name} is not installed; install it with\n  {self.command}"


# Without their stated dependencies: learn2learn's would bring an old numpy.
LEARN2LEARN = OptionalPackage(
    "learn2learn",
    "inner algorithm learn2learn and maml's backend: learn2learn",
    'pip install --no-deps "learn2learn==0.2.0" --config-settings="--build-option=build_ext"',
)
HIGHER = OptionalPackage(
    "higher", "inner algorithm unrolled", 'pip install --no-deps "higher==0.2.1"'
)
TENSORBOARD = OptionalPackage(
    "tensorboard", "tracker tensorboard", "pip install 'metaforge[tensorboard]'"
)
MLFLOW = OptionalPackage("mlflow", "tracker mlflow", "pip install 'metaforge[mlflow]'")
PYARROW = OptionalPackage("pyarrow", "Parquet files", "pip install 'metaforge[parquet]'")
TIMM = OptionalPackage("timm", "backbone timm", "pip install 'metaforge[timm]'")
TORCHVISION = OptionalPackage(
    "torchvision",
    "backbone torchvision, metaforge data --download",
    "pip install 'metaforge[torchvision]'",
)
SKLEARN = OptionalPackage("sklearn", "metaforge.sklearn", "pip install 'metaforge[sklearn]'")
ONNX = OptionalPackage("onnxruntime", "export to onnx", "pip install 'metaforge[onnx]'")
#: Those that results depend on, those that only read files, those that only watch; and all.
COMPUTING, READING = (LEARN2LEARN, HIGHER, TIMM, TORCHVISION), (PYARROW,)
WATCHING = (TENSORBOARD, MLFLOW)
OPTIONAL = (*COMPUTING, *READING, *WATCHING, SKLEARN, ONNX)
