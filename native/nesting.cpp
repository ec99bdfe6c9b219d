// The sweep over nested intervals: one pass with a stack, over intervals sorted by (group, start, longest first).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace nb = nanobind;
using Times = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

namespace {

Result to_numpy(std::vector<int64_t>&& values) {
    auto* owned = new std::vector<int64_t>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
    return Result(owned->data(), {owned->size()}, owner);
}

// parent[i] is the row of the innermost interval of the same group that encloses row i, or -1.
// An interval that ends after its would-be parent (they cross) is a child of the next one out that does enclose it.
nb::tuple enclose(Times group, Times start, Times end) {
    const size_t n = start.shape(0);
    if (group.shape(0) != n || end.shape(0) != n) throw nb::value_error("group, start and end differ in length");
    const int64_t *g = group.data(), *s = start.data(), *e = end.data();
    std::vector<int64_t> parent(n, -1), depth(n, 0), self(n);
    {
        nb::gil_scoped_release released;
        std::vector<size_t> open;
        for (size_t i = 0; i < n; ++i) {
            if (i && g[i] != g[i - 1]) open.clear();
            while (!open.empty() && e[open.back()] <= s[i] && !(e[open.back()] == s[i] && s[open.back()] == s[i] && e[i] == s[i]))
                open.pop_back();
            size_t level = open.size();
            while (level > 0 && e[open[level - 1]] < e[i]) --level;
            self[i] = e[i] - s[i];
            depth[i] = static_cast<int64_t>(level);
            if (level > 0) {
                parent[i] = static_cast<int64_t>(open[level - 1]);
                self[open[level - 1]] -= self[i];
            }
            open.push_back(i);
        }
    }
    return nb::make_tuple(to_numpy(std::move(parent)), to_numpy(std::move(depth)), to_numpy(std::move(self)));
}

}  // namespace

void bind_nesting(nb::module_& m) {
    m.def("enclose", &enclose, nb::arg("group"), nb::arg("start_ns"), nb::arg("end_ns"),
          "Parent row, depth and self time (duration less direct children) of intervals sorted by group, start, and "
          "end descending.");
}
