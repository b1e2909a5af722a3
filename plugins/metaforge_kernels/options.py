"""Options of the kernels."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from metaforge.options import Options, Validated

#: Scales that ``bandwidth: validate`` tries: from a wide kernel to a sharp one.
SCALES = (0.25, 1.0, 4.0, 16.0)

#: Which embeddings read the options that not all read.
_READ_BY = {
    "auto": {"frequencies", "width"},
    "fourier": {"frequencies", "width"},
    "joint": {"frequencies", "width"},
    "contrast": {"frequencies", "width"},
    "set": {"width"},
    "learned": {"dimension", "steps"},
}
#: Embeddings that cannot read a target's queries, and why.
_SUPPORT_ALONE = {
    "classes": "needs labels, which a target's queries do not show",
    "joint": "needs labels, which a target's queries do not show",
    "contrast": "holds the support of a task against its queries",
    "learned": "holds the support of a task against its queries",
}


def _has_a_square(value: float) -> float:
    if not 1e-100 <= value <= 1e100:
        raise ValueError(f"{value:g} is out of range: give a number from 1e-100 to 1e100")
    return value


#: A positive number of which the square and its inverse are numbers too.
Width = Annotated[PositiveFloat, AfterValidator(_has_a_square)]


class SignatureOptions(Options):
    """How a task becomes a vector: what every kernel of this package shares."""

    signature: Literal["support", "all"] = Field(
        "support",
        description="inputs that are read: the support's, or the query's too (transductive)",
    )
    phi: Literal["data", "theta_hat"] = Field(
        "data",
        description="features of a sample: the data's, or those that the learner has after "
        "meta-training (of ls and r2d2 psi(x), of leo the code, of a model what its last layer "
        "sees)",
    )
    embedding: Literal[
        "auto", "mean", "moments", "classes", "fourier", "joint", "set", "contrast", "learned"
    ] = Field(
        "auto",
        description="mean of the features; moments: with mean absolute value and mean square; "
        "classes: how a task's classes lie, whatever their numbers; fourier: mean of random "
        "Fourier features, joint: of those of (x, y); set: the samples themselves, compared by "
        "their maximum mean discrepancy; contrast, learned: what tells bank tasks apart, linear "
        "in moments or by a small network; auto: joint for regression; for "
        "classification contrast, or mean where the width is given in numbers, where queries are "
        "read, features have over 2048 numbers or contrast finds nothing",
    )
    normalize: bool = Field(
        True, description="L2-normalise each sample's features (classification tasks only)"
    )
    frequencies: PositiveInt = Field(
        256, description="random frequencies of fourier and joint; the signature has twice as many"
    )
    width: Width = Field(
        1.0,
        description="width of the kernel on samples that set uses, and fourier and joint "
        "approximate, in standard deviations",
    )
    dimension: PositiveInt = Field(16, description="numbers in a signature of learned")
    steps: PositiveInt = Field(300, description="training steps of learned")

    @model_validator(mode="after")
    def _every_option_is_read(self) -> Self:
        unread = self._unread() & self.model_fields_set
        if unread:
            raise ValueError(
                f"embedding: {self.embedding} does not read {' and '.join(sorted(unread))}"
            )
        if self.signature == "all" and self.embedding in _SUPPORT_ALONE:
            raise ValueError(
                f"embedding: {self.embedding} {_SUPPORT_ALONE[self.embedding]}: "
                "take signature: support"
            )
        return self

    @property
    def may_learn(self) -> bool:
        """Whether ``embedding: auto`` may take a signature that is learned from the bank."""
        return False

    def _unread(self) -> set[str]:
        """Options that some embedding reads, and this one does not."""
        return set().union(*_READ_BY.values()) - _READ_BY.get(self.embedding, set())

    def in_force(self) -> dict[str, Any]:
        """The options that the kernel goes by: without those that others switch off."""
        return {name: value for name, value in self if name not in self._unread()}

    def unfit(self, tasks: str) -> str:
        if tasks == "regression" and self.embedding == "classes":
            return (
                "embedding: classes is for classification, and these are regression tasks: "
                "take embedding: joint, set or contrast"
            )
        if tasks == "regression" and self.embedding in ("auto", "set") and self.signature == "all":
            return (
                f"signature: all reads the queries, and embedding: {self.embedding} is of (x, y) "
                "for regression, which needs labels that a target's queries do not show: take "
                "signature: support, or embedding: mean or fourier"
            )
        return ""


class BandwidthOptions(SignatureOptions):
    """Options of kernels of a distance, whose width may come from the bank's median."""

    bandwidth: Literal["median", "validate"] | None = Field(
        None,
        description="median: k = exp(-scale) at the bank's median distance; validate: scale is "
        "chosen on validation targets among 0.25, 1, 4 and 16",
    )
    scale: Width = Field(
        1.0, description="minus the log of k at the median distance (bandwidth: median)"
    )

    def validated(self) -> Validated | None:
        if self.bandwidth != "validate":
            return None
        return Validated({"bandwidth": "median"}, {"scale": SCALES})

    @property
    def by_median(self) -> bool:
        """Whether the width is fitted by the median heuristic: unless another is given."""
        raise NotImplementedError

    @property
    def may_learn(self) -> bool:
        return self.by_median and self.signature == "support"

    def in_force(self) -> dict[str, Any]:
        found = super().in_force()
        if self.by_median:
            return found | {"bandwidth": "median"}
        del found["scale"]
        return found

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        ways = ("gamma", "sigma", "bandwidth")
        given = [way for way in ways if getattr(self, way, None) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} each set the width: give one, the other null")
        if "scale" in self.model_fields_set and self.bandwidth == "validate":
            raise ValueError(
                "scale is what bandwidth: validate chooses: leave it out, or give its values in "
                "select.grid"
            )
        if "scale" in self.model_fields_set and not self.by_median:
            raise ValueError("scale belongs to bandwidth: median, which is not chosen here")
        return self


class GaussianOptions(BandwidthOptions):
    gamma: Width | None = Field(
        None,
        description="k = exp(-gamma d^2); the paper's program has 50, for means of L2-normalised "
        "features. bandwidth: median where none of gamma, sigma and bandwidth is given",
    )
    sigma: Width | None = Field(None, description="k = exp(-d^2 / sigma^2)")

    @property
    def by_median(self) -> bool:
        return self.gamma is None and self.sigma is None

    @property
    def fixed_gamma(self) -> float | None:
        """gamma as given or as sigma says; None where the bank's median says."""
        return self.gamma if self.sigma is None else self.sigma**-2

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gamma": self.fixed_gamma}


class LaplaceOptions(BandwidthOptions):
    sigma: Width | None = Field(
        None, description="k = exp(-d / sigma); bandwidth: median where it is not given"
    )

    @property
    def by_median(self) -> bool:
        return self.sigma is None


class LinearOptions(SignatureOptions):
    c: NonNegativeFloat = Field(1.0, description="k = <a, b> + c")
