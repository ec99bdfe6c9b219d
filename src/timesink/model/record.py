"""Records: see `timesink.startup`."""

from timesink.startup import MISSING, asdict, dataclass, field, fields, is_dataclass, replace

__all__ = ["MISSING", "asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]
