"""The process in which a judged program runs: inputs come in, answers go out, and nothing in here tells the time.

It is started by file, with the interpreter of the program that is judged, and needs NumPy there and nothing else. What
runs here is not trusted: `adversary` times it from outside and looks at every byte of its answers. With `RECORDED` each
answer is followed by what PyTorch's profiler recorded of its call.
"""

import io
import os
import runpy
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

LENGTH_BYTES = 8
RECORDED = "--recorded"


def main() -> None:
    """Answer one request after another with the `solve` of the file that is named, until there are no more."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the program prints is no answer
    program = Path(sys.argv[1]).resolve()
    sys.path[0] = str(program.parent)
    solve = runpy.run_path(str(program), run_name="judged")["solve"]
    send(answers, [])
    is_recorded = RECORDED in sys.argv
    while (inputs := receive(requests)) is not None:
        recording = _recording() if is_recorded else nullcontext()
        with recording:
            given = solve(*inputs)
            given = [_on_host(array) for array in (given if isinstance(given, (tuple, list)) else (given,))]
        send(answers, given)
        if is_recorded:
            send(answers, _trace_of(recording))


def _recording() -> Any:
    """PyTorch's profiler, where the program uses PyTorch."""
    if "torch" not in sys.modules:
        return nullcontext()
    from torch.profiler import profile  # type: ignore[import-not-found,unused-ignore]

    return profile(record_shapes=True)


def _trace_of(recording: Any) -> list[Any]:
    """The bytes of the trace that it recorded; nothing where it recorded none."""
    import numpy as np

    if not hasattr(recording, "export_chrome_trace"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.json"
        recording.export_chrome_trace(str(path))
        return [np.frombuffer(path.read_bytes(), np.uint8)]


def _on_host(array: Any) -> Any:
    return array.detach().cpu() if hasattr(array, "detach") else array


def send(stream: IO[bytes], arrays: Sequence[Any]) -> None:
    """Send arrays as they are by now."""
    import numpy as np

    packed = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(packed, np.asarray(array), allow_pickle=False)
    stream.write(packed.tell().to_bytes(LENGTH_BYTES, "little"))
    stream.write(packed.getbuffer())
    stream.flush()


def receive(stream: IO[bytes], most_bytes: int = 1 << 33) -> list[Any] | None:
    """The arrays that were sent; None where the other side has ended. `ValueError` where they are none."""
    import numpy as np

    length = int.from_bytes(head := stream.read(LENGTH_BYTES), "little")
    if len(head) < LENGTH_BYTES:
        return None
    if length > most_bytes:
        raise ValueError(f"{length} bytes, more than {most_bytes}")
    packed, arrays = io.BytesIO(stream.read(length)), []
    while packed.tell() < length:
        arrays.append(np.lib.format.read_array(packed, allow_pickle=False))
    return arrays


if __name__ == "__main__":
    main()
