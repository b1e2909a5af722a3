"""Virtual environments for tests that install distributions."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent


def module(python: Path | str, *arguments: str, cwd: Path, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [python, "-m", *arguments], cwd=cwd, capture_output=True, text=True, check=False, **more
    )


class Environment:
    """A virtual environment that sees this one's packages, and has its own beside them."""

    def __init__(self, folder: Path):
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        seen = [sysconfig.get_path("purelib"), ROOT, ROOT / "plugins"]
        (self.site / "seen.pth").write_text("".join(f"{path}\n" for path in seen))

    def install(self, *distributions: Path) -> None:
        """Install wheels, or folders as they stand."""
        options = ("-q", "--no-deps", "--no-index", "--no-build-isolation")
        done = self.call("pip", "install", *options, *map(str, distributions))
        assert done.returncode == 0, done.stderr

    def plugin(self, name: str, source: str) -> None:
        """Install a distribution of one module, as its files alone."""
        (self.site / f"{name}.py").write_text(source)
        info = self.site / f"dist_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dist-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[metaforge]\n{name} = {name}\n")

    def call(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        env = {**os.environ, "METAFORGE_CACHE": str(self.folder / "cache"), **environment}
        return module(self.python, *arguments, cwd=self.folder, env=env)
