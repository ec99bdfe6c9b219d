"""A plugin of pytest: one line of one module of timesink reads otherwise, for as long as this process lives.

`$BROKEN_LINE` holds the module's path below src, the text as it is and the text instead, as JSON.
"""

import json
import os
from importlib.machinery import SourceFileLoader
from types import CodeType

_PATH, _TEXT, _INSTEAD = json.loads(os.environ["BROKEN_LINE"])
_whole = SourceFileLoader.get_code


def _broken(loader: SourceFileLoader, name: str) -> CodeType | None:
    if not loader.path.endswith(f"src/{_PATH}"):
        return _whole(loader, name)
    source = loader.get_data(loader.path).decode("utf-8")
    assert source.count(_TEXT) == 1, f"{_PATH} has {_TEXT!r} {source.count(_TEXT)} times"
    return compile(source.replace(_TEXT, _INSTEAD), loader.path, "exec", dont_inherit=True)


SourceFileLoader.get_code = _broken  # type: ignore[method-assign]
