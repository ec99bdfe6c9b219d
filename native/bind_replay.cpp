// The Python face of the replay and of the sweeps over nested intervals.
#include "arrays.h"
#include "costs.h"
#include "replay.h"

using namespace timesink;

namespace {

nb::tuple schedule_of(Times src, Times dst, Times observed) {
    Schedule made = released([&] { return schedule(view(src), view(dst), view(observed)); });
    return nb::make_tuple(to_numpy(std::move(made.order)), to_numpy(std::move(made.first)),
                          to_numpy(std::move(made.in_edges)), to_numpy(std::move(made.dropped)));
}

nb::tuple replay_of(Times order, Times first, Times src, Times weight, Times unexplained, Times own_time) {
    Replayed made = released(
        [&] { return replay(view(order), view(first), view(src), view(weight), view(unexplained), view(own_time)); });
    return nb::make_tuple(to_numpy(std::move(made.time)), to_numpy(std::move(made.binding)));
}

Result path_back_of(Times src, Times binding, Times time, int64_t last, int64_t until_ns) {
    return to_numpy(released([&] { return path_back(view(src), view(binding), view(time), last, until_ns); }));
}

nb::tuple innermost_of(Times group, Times start, Times end, Times rank) {
    Segments made = released([&] { return innermost(view(group), view(start), view(end), view(rank)); });
    return nb::make_tuple(to_numpy(std::move(made.start)), to_numpy(std::move(made.end)), to_numpy(std::move(made.row)),
                          to_numpy(std::move(made.top)));
}

nb::tuple enclose_of(Times group, Times start, Times end) {
    Nested made = released([&] { return enclose(view(group), view(start), view(end)); });
    return nb::make_tuple(to_numpy(std::move(made.parent)), to_numpy(std::move(made.depth)),
                          to_numpy(std::move(made.self)));
}

nb::tuple nest_of(Times first, Times start, Times end) {
    Numbers order;
    Nested made = released([&] { return nest(view(first), view(start), view(end), order); });
    return nb::make_tuple(to_numpy(std::move(order)), to_numpy(std::move(made.parent)), to_numpy(std::move(made.depth)),
                          to_numpy(std::move(made.self)));
}

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Changed = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Reals reals(const Doubles& values) { return {values.data(), values.shape(0)}; }

void shorten_of(Changed weight, Times edges, Doubles share) {
    released([&] { shorten({weight.data(), weight.shape(0)}, view(edges), reals(share)); });
}

nb::tuple savings_of(Times edges, Times begin, Times end, Times start, Times stop, Doubles share) {
    Shares made = released(
        [&] { return savings(view(edges), view(begin), view(end), view(start), view(stop), reals(share)); });
    auto* owned = new std::vector<double>(std::move(made.share));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return nb::make_tuple(to_numpy(std::move(made.edges)),
                          nb::ndarray<nb::numpy, double, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

nb::tuple explain_of(Times order, Times first, Times src, Times weight, Times time) {
    Costs made = released([&] { return explain(view(order), view(first), view(src), view(weight), view(time)); });
    return nb::make_tuple(to_numpy(std::move(made.weight)), to_numpy(std::move(made.unexplained)));
}

bool same_demands_of(Times weight, Times unexplained, Times other_weight, Times other_unexplained) {
    return released(
        [&] { return same_demands(view(weight), view(unexplained), view(other_weight), view(other_unexplained)); });
}

Result passed_of(Times weight, Times edges, Times begun, Times over) {
    return to_numpy(released([&] { return passed(view(weight), view(edges), view(begun), view(over)); }));
}

Result inclusive_of(Times order, Times parent, Times own) {
    return to_numpy(released([&] { return inclusive(view(order), view(parent), view(own)); }));
}

Result inherited_of(Times order, Times parent, Times own, bool outermost) {
    return to_numpy(released([&] { return inherited(view(order), view(parent), view(own), outermost); }));
}

Result named_alike_of(Times parent, Times name) {
    return to_numpy(released([&] { return named_alike(view(parent), view(name)); }));
}

}  // namespace

void bind_replay(nb::module_& m) {
    m.attr("DISABLED") = disabled;
    m.def("schedule", &schedule_of, nb::arg("src"), nb::arg("dst"), nb::arg("observed_ns"),
          "Topological order, offsets of in-edges, in-edges in that order, and edges dropped to break cycles.");
    m.def("replay", &replay_of, nb::arg("order"), nb::arg("first"), nb::arg("src"), nb::arg("weight_ns"),
          nb::arg("unexplained_ns"), nb::arg("own_time_ns"), "Time and binding edge of every node.");
    m.def("path_back", &path_back_of, nb::arg("src"), nb::arg("binding"), nb::arg("time_ns"), nb::arg("last"),
          nb::arg("until_ns"), "Binding edges from a node back to a time, latest first.");
    m.def("shorten", &shorten_of, nb::arg("weight_ns").noconvert(), nb::arg("edges"), nb::arg("share"),
          "Takes a share of each of these edges' weights away, in place, where they are above zero.");
    m.def("savings", &savings_of, nb::arg("edges"), nb::arg("begin_ns"), nb::arg("end_ns"), nb::arg("start_ns"),
          nb::arg("stop_ns"), nb::arg("share"),
          "The edges that get shorter, and by which share, where these shares of disjoint intervals are saved.");
    m.def("same_demands", &same_demands_of, nb::arg("weight_ns"), nb::arg("unexplained_ns"),
          nb::arg("other_weight_ns"), nb::arg("other_unexplained_ns"),
          "Whether the edges of two networks are as many and demand the same.");
    m.def("explain", &explain_of, nb::arg("order"), nb::arg("first"), nb::arg("src"), nb::arg("weight_ns"),
          nb::arg("time_ns"), "Weights, and what is unexplained on each edge, that give the nodes these times.");
    m.def("passed", &passed_of, nb::arg("weight_ns"), nb::arg("edges"), nb::arg("begun"), nb::arg("over"),
          "The sums of weights above zero of some stretches of edges.");
    m.def("innermost", &innermost_of, nb::arg("group"), nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("rank"),
          "Segments of the innermost interval: start, end, row, smallest rank of the row and its enclosers.");
    m.def("enclose", &enclose_of, nb::arg("group"), nb::arg("start_ns"), nb::arg("end_ns"),
          "Parent row, depth and self time (duration less direct children) of intervals sorted by group, start, and "
          "end descending.");
    m.def("nest", &nest_of, nb::arg("first"), nb::arg("start_ns"), nb::arg("end_ns"),
          "Rows parents first, and parent row, depth and self time of intervals sorted by thread, start and end; `first` "
          "has the row at which each thread begins.");
    m.def("inclusive", &inclusive_of, nb::arg("order"), nb::arg("parent"), nb::arg("own"),
          "The sum over each row of trees and all rows in it.");
    m.def("inherited", &inherited_of, nb::arg("order"), nb::arg("parent"), nb::arg("own"), nb::arg("outermost"),
          "The value of the outermost, or else the innermost, row around each that has one; -1 means none.");
    m.def("named_alike", &named_alike_of, nb::arg("parent"), nb::arg("name"),
          "The nearest row around each that has its name, -1 for none.");
}
