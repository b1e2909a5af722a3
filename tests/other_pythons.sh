#!/bin/sh
# The torch-free tests and the build, on each other supported Python that is present.
set -eu
for version in 3.12 3.13; do
  python=$(command -v "python$version" || true)
  if [ -z "$python" ] || ! "$python" -c "" 2>/dev/null; then
    python=$(ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python 2>/dev/null | tail -1 || true)
  fi
  if [ -z "$python" ]; then
    echo "Python $version is not on this machine: skipped"
    continue
  fi
  venv=.venv-$version
  if [ ! -e "$venv/.installed" ] || [ pyproject.toml -nt "$venv/.installed" ]; then
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet -c constraints.txt \
      build hatchling editables click numpy packaging pluggy pydantic PyYAML rich \
      fonttools matplotlib pillow hypothesis pytest pytest-timeout
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps \
      --no-build-isolation -e .
    touch "$venv/.installed"
  fi
  "$venv/bin/python" -m pytest tests/host
  "$venv/bin/python" -m build --no-isolation --wheel --outdir "$venv/dist" . >/dev/null
  echo "Python $version: torch-free tests and build passed"
done
