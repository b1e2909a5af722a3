"""CIFAR-100's classes by superclass, and which of them are in which split. Facts; plain Python.

Numbers of classes, in CIFAR-100's files too, are positions in the sorted names; so are those of
superclasses. Splits: CIFAR-FS of Bertinetto et al. (2019), FC100 of Oreshkin et al. (2018), which
divides superclasses.
"""

from __future__ import annotations

from metaforge.split_names import SPLITS

#: Superclass -> its classes (Krizhevsky 2009, where some have other words for the same).
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
SUPERCLASS_OF = {name: group for group, names in SUPERCLASSES.items() for name in names.split()}
CLASSES = tuple(sorted(SUPERCLASS_OF))

#: Of CIFAR-FS, the classes that are not of its training split.
_CIFAR_FS = {
    "val": "beaver beetle butterfly camel cattle crab crocodile flatfish lamp maple_tree "
    "motorcycle otter sea shark television tractor",
    "test": "baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose "
    "snail sweet_pepper table telephone wardrobe whale woman worm",
}
#: Of FC100, the superclasses that are not of its training split.
_FC100 = {
    "val": "large_carnivores large_omnivores_and_herbivores non-insect_invertebrates small_mammals",
    "test": "aquatic_mammals insects medium_mammals people",
}


def split_of(name: str) -> dict[str, str]:
    """Class -> ``train``, ``val`` or ``test`` of the data set ``cifar_fs`` or ``fc100``."""
    told = _CIFAR_FS if name == "cifar_fs" else _FC100
    held = {word: split for split, words in told.items() for word in words.split()}
    by_class = name == "cifar_fs"
    return {
        label: held.get(label if by_class else group, SPLITS[0])
        for label, group in SUPERCLASS_OF.items()
    }
