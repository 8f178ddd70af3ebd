"""ImageLocality: prefer nodes that have the pod's images, the more the wider an image is spread. Spec 10 section 3.15.

An image counts by its size times the share of nodes that have it, so a node's score depends on other nodes, but on
their objects alone: scores are kept per node (locality ``node``), and when an image that some pod has came to a node or
left one, or a node came or went, all of them are asked for again. A class whose images no node has is not rated at all.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Floats, Ints
from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Locality, NodePlugin, ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent

MIB = 1 << 20
LEAST = 23 * MIB
MOST_PER_CONTAINER = 1000 * MIB
MOST_IMAGES, MOST_MISSED = 2048, 10_000
"""Images that are followed at a time; another one is looked for on all nodes when it is asked for. And images that no
node had when a pod came, which are remembered for the case that one gets them."""


class ImageTerms(msgspec.Struct, frozen=True):
    """The image of every container, one image as often as there are containers of it."""

    images: tuple[str, ...]


class _Spread:
    """On which rows an image is, and how large it is there."""

    __slots__ = ("_arrays", "sizes")

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self._arrays: tuple[Ints, Floats] | None = None

    def put(self, row: int, size: int | None) -> bool:
        """The row has it in this size (None: not at all). False: it was so before."""
        if self.sizes.get(row) == size:
            return False
        if size is None:
            del self.sizes[row]
        else:
            self.sizes[row] = size
        self._arrays = None
        return True

    def arrays(self) -> tuple[Ints, Floats]:
        """Rows and sizes."""
        if self._arrays is None:
            count = len(self.sizes)
            self._arrays = (
                np.fromiter(self.sizes, dtype=np.int64, count=count),
                np.fromiter(self.sizes.values(), dtype=np.float64, count=count),
            )
        return self._arrays


class ImageLocality(ScorePlugin, NodePlugin):
    """Adds up the images that a node has; 23 MiB and less are nothing, 1000 MiB a container are all."""

    name: ClassVar[str] = "ImageLocality"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset()
    reads_images: ClassVar[bool] = True
    score_locality: ClassVar[Locality] = "node"

    def __init__(self) -> None:
        self._spreads: OrderedDict[str, _Spread] = OrderedDict()
        self._images: dict[int, Mapping[str, int]] = {}
        self._having: Counter[str] = Counter()
        self._missed: set[str] = set()
        self.epoch = 0

    def attach(self, cluster: Cluster) -> None:
        """Keeps the cluster to look images up."""
        self._cluster = cluster

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None if no node has any of the images (``epoch`` moves when one gets the first of them)."""
        images = images_of(template.spec)
        if any(image in self._having for image in images):
            return ImageTerms(images)
        if len(self._missed) >= MOST_MISSED:
            self._missed.clear()
            self.epoch += 1
        self._missed.update(images)
        return None

    def score(self, terms: Terms, window: Window) -> Floats:
        """floor(100·(sum − 23 MiB)/(1000 MiB·containers − 23 MiB)), the sum clamped to these bounds first."""
        assert isinstance(terms, ImageTerms)
        high, nodes = window.cluster.high, len(window.cluster)
        total = np.zeros(high)
        for image in terms.images:
            rows, sizes = self._spread(image).arrays()
            if len(rows):
                # The original's order: the share is a float of its own, then times the size.
                total[rows] += np.trunc(sizes * (len(rows) / nodes))
        most = float(MOST_PER_CONTAINER * len(terms.images))
        np.clip(total, LEAST, most, out=total)
        total -= LEAST
        total *= 100.0
        total /= most - LEAST
        score: Floats = np.floor(total, out=total)[window.rows]
        return score

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Its images may have changed."""
        known = self._images.get(row)
        if known == node.images:
            return
        old, new = _sizes(known or {}), _sizes(node.images)
        self._images[row] = node.images
        self._count(old, new)
        changed = known is None
        for image, spread in self._spreads.items():
            changed |= spread.put(row, new.get(image))
        if changed and self._spreads:
            self._cluster.touch_all(node=True)

    def node_removed(self, row: int, name: str) -> None:
        """Its images are gone, and there is one node less."""
        self._count(_sizes(self._images.pop(row, {})), {})
        for spread in self._spreads.values():
            spread.put(row, None)
        if self._spreads:
            self._cluster.touch_all(node=True)

    def _count(self, old: Mapping[str, int], new: Mapping[str, int]) -> None:
        """How many nodes have each image; names that a pod asked for in vain are there now, perhaps."""
        self._having.update(new.keys() - old.keys())
        for image in old.keys() - new.keys():
            self._having[image] -= 1
            if not self._having[image]:
                del self._having[image]
        if not self._missed.isdisjoint(new):
            self._missed.difference_update(new)
            self.epoch += 1

    def _spread(self, image: str) -> _Spread:
        spread = self._spreads.get(image)
        if spread is not None:
            self._spreads.move_to_end(image)
            return spread
        sizes: dict[int, int] = {}
        short = image.removesuffix(":latest")
        for row, images in self._images.items():
            size = images.get(image, images.get(short))
            if size is not None:
                sizes[row] = size
        spread = self._spreads[image] = _Spread(sizes)
        if len(self._spreads) > MOST_IMAGES:
            self._spreads.popitem(last=False)
        return spread


def _sizes(images: Mapping[str, int]) -> dict[str, int]:
    """By full name."""
    return {normalized(name): size for name, size in images.items()}


def images_of(spec: PodSpec) -> tuple[str, ...]:
    """The image of every init and app container under its full name, sorted."""
    return tuple(sorted(normalized(container.image) for container in (*spec.init_containers, *spec.containers)))


def normalized(image: str) -> str:
    """``:latest`` is added to a name without a tag; a digest is one."""
    return image if not image or image.rfind(":") > image.rfind("/") else image + ":latest"
