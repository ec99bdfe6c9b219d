"""Take the golden pictures of reports anew: `python tools/renew_goldens.py`. Needs Chromium, playwright and Pillow.

Look at every picture that git then shows as changed before it is committed: the tests compare with them from then on.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.browser.goldens import renew

if __name__ == "__main__":
    for line in renew():
        print(line)
