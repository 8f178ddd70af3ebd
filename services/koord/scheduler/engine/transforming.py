"""Templates as plugins see them, where other plugins change them first (BeforePreFilter, spec 10 section 3.4)."""

from collections.abc import Sequence

from msgspec.structs import replace

from koord.scheduler.framework.contract import PluginError, Template, TransformPlugin

POINT = "BeforePreFilter"


def transformed(template: Template, plugins: Sequence[TransformPlugin]) -> Template:
    """The template after all ``plugins``, in their order. What a pod takes stays what it was: that is counted, and
    claimed. PluginError: one raised, or answered no template."""
    found = template
    for plugin in plugins:
        try:
            found = plugin.transform(found)
            if not isinstance(found, Template):
                raise TypeError(f"transform answers {type(found).__name__}, not Template")
        except Exception as error:
            raise PluginError(plugin.name, POINT, error) from error
    if found is template:
        return template
    return replace(found, namespace=template.namespace, footprint=template.footprint, only=template.only, outline=None)
