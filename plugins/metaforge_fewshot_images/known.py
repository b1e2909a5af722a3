"""What is known of each data set before its files are looked at: layouts, licence. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """layouts: each form of the files that is read, in a line; source: where they come from;
    download: ``"module:attribute"`` of what fetches them, or nothing."""

    layouts: tuple[str, ...]
    licence: str
    source: str
    download: str = ""


_CIFAR = Known(
    layouts=(
        "cifar-100-python/train and cifar-100-python/test, CIFAR-100's version for Python",
        "cifar-100-python.tar.gz, its archive as it is",
    ),
    licence="none stated with CIFAR-100; for research, with a citation of Krizhevsky (2009)",
    source="CIFAR-100: www.cs.toronto.edu/~kriz/cifar.html",
)
_IMAGENET = "none stated; of ImageNet images, for research that is not commercial"

KNOWN = {
    "omniglot": Known(
        layouts=(
            "omniglot-py/images_background and omniglot-py/images_evaluation, as torchvision has "
            "them (or both without omniglot-py/)",
            "images_background.zip and images_evaluation.zip, as they are",
            "omniglot28_bits.npz, packed bits of 28 x 28 (docs/data.md)",
        ),
        licence="MIT (Lake et al.)",
        source="Omniglot: github.com/brendenlake/omniglot, folder python",
        download="metaforge_fewshot_images.downloads:omniglot",
    ),
    "cifar_fs": Known(
        layouts=(
            *_CIFAR.layouts,
            "CIFAR_FS_train.pickle, CIFAR_FS_val.pickle, CIFAR_FS_test.pickle (data, labels)",
            "train, val and test, each with CLASS/*.png; or CLASS/*.png alone, also in "
            "cifar100/data (cifarfs/processed, cifarfs/cifar100/data: as learn2learn has them)",
            "FILE.npz, features X and class names y, named by path itself",
        ),
        licence=_CIFAR.licence,
        source=_CIFAR.source,
        download="metaforge_fewshot_images.downloads:cifar100",
    ),
    "fc100": Known(
        layouts=(
            *_CIFAR.layouts,
            "FC100_train.pickle, FC100_val.pickle, FC100_test.pickle (data, labels)",
            "train, val and test, each with CLASS/*.png; or CLASS/*.png alone",
            "FILE.npz, features X and class names y, named by path itself",
        ),
        licence=_CIFAR.licence,
        source=_CIFAR.source,
        download="metaforge_fewshot_images.downloads:cifar100",
    ),
    "mini_imagenet": Known(
        layouts=(
            "mini-imagenet-cache-train.pkl, -val.pkl, -test.pkl (image_data, class_dict)",
            "miniImageNet_category_split_train_phase_train.pickle, ..._val.pickle, "
            "..._test.pickle (data, labels)",
            "images/*.jpg with train.csv, val.csv and test.csv (filename, label)",
            "train, val and test, each with CLASS/*.jpg",
        ),
        licence=_IMAGENET,
        source="Vinyals et al. (2016), split of Ravi and Larochelle (2017); images of ImageNet",
        download="metaforge_fewshot_images.downloads:mini_imagenet",
    ),
    "tiered_imagenet": Known(
        layouts=(
            "train_images_png.pkl and train_labels.pkl, the same of val and test",
            "train_images.npz (images) in the place of train_images_png.pkl",
            "train, val and test, each with CLASS/*.jpg",
        ),
        licence=_IMAGENET,
        source="Ren et al. (2018): github.com/renmengye/few-shot-ssl-public",
        download="metaforge_fewshot_images.downloads:tiered_imagenet",
    ),
}
