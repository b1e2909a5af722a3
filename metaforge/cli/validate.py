"""``metaforge validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from metaforge.options import Choice
    from metaforge.pretrain_recipe import LoadedPretraining
    from metaforge.recipe import ResolvedRecipe
    from metaforge.recipe.schema import Recipe


@click.command(short_help="Find every problem of a recipe, run nothing.")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def command(recipe: str, overrides: tuple[str, ...]) -> None:
    """Check a recipe, its plugins' options and its data, and say what would run."""
    from metaforge.cli.text import note_failed_plugins
    from metaforge.recipe import load
    from metaforge.recipe.loader import PretrainingRecipe

    try:
        told = described(load(recipe, overrides))
    except PretrainingRecipe:
        from metaforge.pretrain_recipe import load as load_pretraining

        told = described_pretraining(load_pretraining(recipe, overrides))
    click.echo(told)
    note_failed_plugins()


def described(resolved: ResolvedRecipe) -> str:
    """What a recipe would run, and what in it is not the default."""
    from metaforge.cli.text import indented, table
    from metaforge.recipe.remarks import remarks
    from metaforge.recipe.render import shown

    lines = [f"ok: {resolved.source}", indented(table(_stages(resolved.recipe)))]
    if resolved.changes:
        lines.append("not the defaults:")
        rows = [(key, shown(value)) for key, value in resolved.changes.items()]
        lines.append(indented(table(rows)))
    notes = [*resolved.notes, *remarks(resolved), *resolved.unchecked, *_left_to_the_run(resolved)]
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines)


def described_pretraining(loaded: LoadedPretraining) -> str:
    """What a recipe of ``metaforge pretrain`` would train."""
    from metaforge.cli.text import indented, table

    recipe = loaded.recipe
    heads = ", ".join(f"{name} (weight {weight:g})" for name, weight in recipe.heads.items())
    rows = [
        ("name", recipe.name),
        ("data", _named(recipe.data)),
        ("backbone", _named(recipe.backbone)),
        ("heads", heads),
        ("train", f"{recipe.epochs} epochs, {recipe.batch} images a step"),
        ("output", str(recipe.output)),
        ("device", f"{recipe.device}, seed {recipe.seed}"),
    ]
    return "\n".join(
        [
            f"ok: {loaded.source}",
            indented(table(rows)),
            f"note: this recipe trains a backbone: metaforge pretrain {loaded.source}",
            f"note: whether {recipe.data.use!r} has images with these labels, and "
            f"{recipe.backbone.use!r} a network to train, it will say before it trains",
        ]
    )


def _left_to_the_run(resolved: ResolvedRecipe) -> list[str]:
    """What only the loaded data, or torch, can tell."""
    from metaforge.recipe.checks import has_groups

    recipe, left = resolved.recipe, []
    if "oracle" in recipe.evaluate.controls and has_groups(resolved) is None:
        name = recipe.data.use
        left.append(f"oracle needs tasks with groups; whether {name!r} has them, the run will say")
    if recipe.device not in ("auto", "cpu"):
        left.append(f"whether this machine has {recipe.device}, the run will say, before all else")
    return left


def _stages(recipe: Recipe) -> list[tuple[str, str]]:
    from metaforge.recipe.published import matching
    from metaforge.recipe.trials import Trials

    train, condition, evaluate = recipe.meta_train, recipe.condition, recipe.evaluate
    runs = f"{evaluate.runs} runs of " if evaluate.runs > 1 else ""
    rows = [
        ("name", recipe.name),
        ("data", _named(recipe.data)),
        ("inner", _named(recipe.inner)),
        ("bank", f"{recipe.bank.size} tasks"),
        ("meta-train", f"{train.steps} steps of {train.batch} tasks, from the {train.tasks}"),
        ("kernel", _named(recipe.kernel)),
        ("weighting", _named(recipe.weighting)),
        ("condition", f"{condition.steps} steps of {condition.batch} of the top {condition.top_m}"),
        ("evaluate", f"{runs}{evaluate.targets} {evaluate.split} targets"),
        ("controls", ", ".join(evaluate.controls) or "none"),
        ("device", f"{recipe.device}, {recipe.precision}, seed {recipe.seed}"),
    ]
    if recipe.published:
        told = ", ".join(dict.fromkeys(entry.source for entry in matching(recipe)))
        rows.append(("published", told or "nothing for these settings"))
    if recipe.select:
        rows.insert(7, ("select", Trials(recipe).told()))
    return rows


def _named(choice: Choice) -> str:
    """A component's name, with those of the components in it."""
    nested = [
        f"{key}: {value['use']}" if "use" in value else f"{key}: {', '.join(value)}"
        for key, value in choice.options.items()
        if isinstance(value, dict) and any(map(_is_choice, (value, *value.values())))
    ]
    return f"{choice.use} ({', '.join(nested)})" if nested else choice.use


def _is_choice(value: Any) -> bool:
    return isinstance(value, dict) and "use" in value
