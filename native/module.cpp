// The Python face of timesink._native: each loop that Python cannot run lives in its own file.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_blame(nb::module_& m);
void bind_decode(nb::module_& m);
void bind_replay(nb::module_& m);
void bind_sweeps(nb::module_& m);

NB_MODULE(_native, m) {
    m.doc() = "Compiled loops of timesink: decoding, nesting, replay, passes over ordered columns.";
    bind_blame(m);
    bind_decode(m);
    bind_replay(m);
    bind_sweeps(m);
}
