"""Settings of the reconciler (section ``reconciler``)."""

import msgspec


class ReconcilerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``fold_delay_s``: how long changes gather before one call to the ledger. ``sweep_s``: how often due leases end.

    ``audit_s``: how often records are counted against live objects; ``suspect_s``: how long a record without an object
    must stay without one before it ends; ``binding_s``: how long a BINDING record may stay unbound before it is
    settled.
    """

    fold_delay_s: float = 0.02
    sweep_s: float = 1.0
    audit_s: float = 60.0
    suspect_s: float = 5.0
    binding_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("fold_delay_s", "sweep_s", "audit_s", "suspect_s", "binding_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name):g} must not be negative")
