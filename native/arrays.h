// NumPy arrays of 64-bit numbers, in and out; the interpreter is free while a loop runs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <utility>

#include "replay.h"

namespace nb = nanobind;

namespace timesink {

using Times = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

inline Result to_numpy(Numbers&& values) {
    if (values.capacity() / 2 > values.size()) values.shrink_to_fit();
    auto* owned = new Numbers(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<Numbers*>(p); });
    return Result(owned->data(), {owned->size()}, owner);
}

inline View view(const Times& times) { return {times.data(), times.shape(0)}; }

// What the loop makes while other threads may run.
template <class Loop>
auto released(Loop&& loop) {
    nb::gil_scoped_release free;
    return loop();
}

}  // namespace timesink
