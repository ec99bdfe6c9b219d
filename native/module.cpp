// The Python face of timesink._native: each loop that Python cannot run lives in its own file.
#include <nanobind/nanobind.h>

#include <cstdlib>  // which says whether this is glibc
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace nb = nanobind;

namespace {

// Blocks of up to 32 MB that lie between others stay with the process when they are freed; other allocators say nothing.
void give_back() {
#ifdef __GLIBC__
    nb::gil_scoped_release freely;
    malloc_trim(0);
#endif
}

// So much at a heap's end stays with the process, and blocks of up to 32 MB come from a heap; of one for all threads, what
// one of them has freed serves another.
void keep_freed(bool one_heap) {
#ifdef __GLIBC__
    if (one_heap) mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#else
    static_cast<void>(one_heap);
#endif
}

}  // namespace

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
    m.def("give_back", &give_back, "Gives memory that was freed, and lies between other blocks, to the operating system.");
    m.def("keep_freed", &keep_freed, nb::arg("one_heap") = false, "Lets memory that is freed from now on stay with the process.");
}
