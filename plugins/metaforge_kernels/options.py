"""Options of the kernels."""

from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from metaforge.options import Options


class SignatureOptions(Options):
    """How a task becomes a vector: what every kernel of this package shares."""

    signature: Literal["support", "all"] = Field(
        "support",
        description="inputs that are read: the support's, or the query's too (transductive)",
    )
    embedding: Literal["auto", "mean", "moments", "fourier", "joint", "contrast"] = Field(
        "auto",
        description="mean of the features; with mean absolute value and mean square; mean of "
        "random Fourier features; of those of (x, y) jointly; contrast: what tells bank tasks "
        "apart, learned from them; auto: joint for regression, mean for classification",
    )
    normalize: bool = Field(
        True, description="L2-normalise each sample's features (classification tasks only)"
    )
    frequencies: PositiveInt = Field(
        256, description="random frequencies of fourier and joint; the signature has twice as many"
    )
    width: PositiveFloat = Field(
        1.0,
        description="width of the kernel on samples that fourier and joint approximate, "
        "in standard deviations",
    )

    @model_validator(mode="after")
    def _every_option_is_read(self) -> Self:
        unread = {"frequencies", "width"} & self.model_fields_set
        if self.embedding in ("mean", "moments") and unread:
            raise ValueError(
                f"embedding: {self.embedding} does not read {' and '.join(sorted(unread))}"
            )
        if self.signature == "all" and self.embedding == "joint":
            raise ValueError(
                "embedding: joint needs labels, which a target's queries do not show: "
                "take signature: support"
            )
        if self.signature == "all" and self.embedding == "contrast":
            raise ValueError(
                "embedding: contrast holds the support of a task against its queries: "
                "take signature: support"
            )
        return self

    def in_force(self) -> dict[str, Any]:
        """The options that the kernel goes by: without those that others switch off."""
        plain = self.embedding in ("mean", "moments")
        unread = {"frequencies", "width"} if plain else set[str]()
        return {name: value for name, value in self if name not in unread}

    def unfit(self, tasks: str) -> str:
        if tasks == "regression" and self.embedding == "auto" and self.signature == "all":
            return (
                "signature: all reads the queries, and embedding: auto is joint for regression, "
                "which needs labels that a target's queries do not show: take signature: support, "
                "or embedding: mean or fourier"
            )
        return ""


class BandwidthOptions(SignatureOptions):
    """Options of kernels of a distance, whose width may come from the bank's median."""

    bandwidth: Literal["median"] | None = Field(
        None, description="median: k = exp(-scale) at the bank's median distance"
    )
    scale: PositiveFloat = Field(
        1.0, description="minus the log of k at the median distance (bandwidth: median)"
    )

    @property
    def by_median(self) -> bool:
        """Whether the width is fitted by the median heuristic: unless another is given."""
        raise NotImplementedError

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
            raise ValueError(f"{' and '.join(given)} each set the width: give one of them")
        if "scale" in self.model_fields_set and not self.by_median:
            raise ValueError("scale belongs to bandwidth: median, which is not chosen here")
        return self


class GaussianOptions(BandwidthOptions):
    gamma: PositiveFloat | None = Field(
        None,
        description="k = exp(-gamma d^2); the paper's program has 50, for means of L2-normalised "
        "features. bandwidth: median where none of gamma, sigma and bandwidth is given",
    )
    sigma: PositiveFloat | None = Field(None, description="k = exp(-d^2 / sigma^2)")

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
    sigma: PositiveFloat | None = Field(
        None, description="k = exp(-d / sigma); bandwidth: median where it is not given"
    )

    @property
    def by_median(self) -> bool:
        return self.sigma is None


class LinearOptions(SignatureOptions):
    c: NonNegativeFloat = Field(1.0, description="k = <a, b> + c")
