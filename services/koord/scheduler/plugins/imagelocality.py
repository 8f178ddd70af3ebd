"""ImageLocality: prefer nodes that have the pod's images, the more the wider an image is spread. Spec 10 section 3.15.

An image counts by its size times the share of nodes that have it, so a node's score depends on other nodes, but on
their objects alone: scores are kept per node (locality ``node``), and when an image came to a node or left one, or a
node came or went, all of them are asked for again.
"""

from collections import OrderedDict
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
MOST_IMAGES = 2048
"""Images that are followed at a time; another one is looked for on all nodes when it is asked for."""


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
    events: ClassVar[frozenset[ClusterEvent]] = frozenset()
    reads_images: ClassVar[bool] = True
    score_locality: ClassVar[Locality] = "node"

    def __init__(self) -> None:
        self._spreads: OrderedDict[str, _Spread] = OrderedDict()
        self._images: dict[int, Mapping[str, int]] = {}

    def attach(self, cluster: Cluster) -> None:
        """Keeps the cluster to look images up."""
        self._cluster = cluster

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None for a pod without containers' images."""
        images = images_of(template.spec)
        return ImageTerms(images) if any(images) else None

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
        self._images[row] = node.images
        changed = known is None
        if self._spreads:
            sizes = {normalized(name): size for name, size in node.images.items()}
            for image, spread in self._spreads.items():
                changed |= spread.put(row, sizes.get(image))
        if changed and self._spreads:
            self._cluster.touch_all(node=True)

    def node_removed(self, row: int, name: str) -> None:
        """Its images are gone, and there is one node less."""
        self._images.pop(row, None)
        for spread in self._spreads.values():
            spread.put(row, None)
        if self._spreads:
            self._cluster.touch_all(node=True)

    def _spread(self, image: str) -> _Spread:
        spread = self._spreads.get(image)
        if spread is not None:
            self._spreads.move_to_end(image)
            return spread
        sizes: dict[int, int] = {}
        for row, node in enumerate(self._cluster.nodes):
            if node is not None and node.images:
                size = node.images.get(image)
                if size is None and image.endswith(":latest"):
                    size = node.images.get(image.removesuffix(":latest"))
                if size is not None:
                    sizes[row] = size
        spread = self._spreads[image] = _Spread(sizes)
        if len(self._spreads) > MOST_IMAGES:
            self._spreads.popitem(last=False)
        return spread


def images_of(spec: PodSpec) -> tuple[str, ...]:
    """The image of every init and app container under its full name, sorted."""
    return tuple(sorted(normalized(container.image) for container in (*spec.init_containers, *spec.containers)))


def normalized(image: str) -> str:
    """``:latest`` is added to a name without a tag; a digest is one."""
    return image if not image or image.rfind(":") > image.rfind("/") else image + ":latest"
