// The Python face of timesink._native: each loop that Python cannot run lives in its own file.
#include <nanobind/nanobind.h>

#include <climits>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace nb = nanobind;

void bind_blame(nb::module_& m);
void bind_decode(nb::module_& m);
void bind_replay(nb::module_& m);
void bind_sweeps(nb::module_& m);

namespace {

// Blocks of up to 32 MB, the most that can be said, come from memory that stays with the process once it is freed.
void keep_freed_memory() {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "Compiled loops of timesink: decoding, nesting, replay, passes over ordered columns.";
    bind_blame(m);
    bind_decode(m);
    bind_replay(m);
    bind_sweeps(m);
    m.def("keep_freed_memory", &keep_freed_memory,
          "Take freed memory again and do not hand it back: for a process that ends soon. Fresh pages are cleared first.");
}
