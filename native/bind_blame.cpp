// The Python face of the cutting of gaps.
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>

#include "arrays.h"
#include "blame.h"

using namespace timesink;

namespace {

template <size_t count>
std::array<View, count> views(const std::vector<Times>& columns) {
    if (columns.size() != count) throw std::invalid_argument("another number of columns is needed");
    std::array<View, count> made;
    for (size_t i = 0; i < count; ++i) made[i] = view(columns[i]);
    return made;
}

nb::tuple cut_of(const std::vector<Times>& gaps, const std::vector<Times>& did, const std::vector<Times>& calls,
                 const std::vector<int64_t>& causes) {
    const auto g = views<16>(gaps);
    const auto d = views<5>(did);
    const auto c = views<4>(calls);
    if (causes.size() != 4) throw std::invalid_argument("four causes are needed");
    const Gaps told{g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15]};
    const Activity activity{{d[0], d[1], d[2]}, d[3], d[4], {c[0], c[1], c[2]}, c[3]};
    Stretches made = released([&] { return cut(told, activity, {causes[0], causes[1], causes[2], causes[3]}); });
    return nb::make_tuple(to_numpy(std::move(made.gap)), to_numpy(std::move(made.start)), to_numpy(std::move(made.end)),
                          to_numpy(std::move(made.cause)), to_numpy(std::move(made.timeline)),
                          to_numpy(std::move(made.thread)), to_numpy(std::move(made.call_row)),
                          to_numpy(std::move(made.sync_row)), to_numpy(std::move(made.asked)));
}

}  // namespace

void bind_blame(nb::module_& m) {
    m.def("cut", &cut_of, nb::arg("gaps"), nb::arg("did"), nb::arg("calls"), nb::arg("causes"),
          "Gaps cut into stretches of one cause each, in order of time; see measures/idle/pieces.py.");
}
