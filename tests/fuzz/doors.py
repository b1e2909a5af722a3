"""All doors: the share of the inputs that each gets, and how its files are changed."""

from __future__ import annotations

from tests.fuzz import data_doors as data
from tests.fuzz import mutate, recipe_doors, run_doors
from tests.fuzz.door import Door, Mutate

_JSON: dict[str, Mutate] = {".json": mutate.mutated_json, ".jsonl": mutate.mutated_json}
_TENSORS: dict[str, Mutate] = {".safetensors": mutate.mutated_tensors}
_YAML: dict[str, Mutate] = {".yaml": mutate.mutated_text}
_TEXT: dict[str, Mutate] = {"": mutate.mutated_text}
_NPZ: dict[str, Mutate] = {".npz": mutate.mutated_npz}
_IMAGE: dict[str, Mutate] = {".png": mutate.mutated_png, "": mutate.mutated}
_BYTES: dict[str, Mutate] = {"": mutate.mutated}

DOORS = (
    Door("recipe", recipe_doors.recipes, recipe_doors.recipe, _YAML, 0.07, reads_anywhere=True),
    Door("override", recipe_doors.overrides, recipe_doors.override, _TEXT, 0.07, True),
    Door("npz", data.npz_files, data.npz_read, _NPZ, 0.1),
    Door("pickle", data.pickles, data.pickle_read, _BYTES, 0.2),
    Door("tensors", data.tensor_files, data.tensors, _TENSORS, 0.13),
    Door("weights", data.weights, data.weight, _BYTES, 0.08),
    Door("table", data.tables, data.table, _TEXT, 0.1),
    Door("image", data.images, data.image, _IMAGE, 0.145),
    Door("cache", data.caches, data.cache, _NPZ, 0.05),
    Door("run_folder", run_doors.run_folders, run_doors.run_folder, {**_JSON, **_YAML}, 0.035),
    Door("resume", run_doors.resumed_runs, run_doors.resume, {**_JSON, **_TENSORS}, 0.01, slow=30),
    Door("learner", run_doors.learners, run_doors.learner, {**_JSON, **_TENSORS}, 0.01, slow=30),
)
BY_NAME = {door.name: door for door in DOORS}
