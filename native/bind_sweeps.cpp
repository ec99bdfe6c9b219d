// The Python face of the passes over ordered columns.
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "order.h"
#include "sweeps.h"
#include "words.h"

using namespace timesink;

namespace {

Result places_of(Times sorted, Times wanted, bool after_equals) {
    return to_numpy(released([&] { return places(view(sorted), view(wanted), after_equals); }));
}

Result first_places_of(Times wanted, Times known) {
    return to_numpy(released([&] { return first_places(view(wanted), view(known)); }));
}

// An order of rows takes four bytes each.
nb::object sorted_order_of(const std::vector<Times>& groups, Times start, Times end) {
    if (groups.size() > 2) throw nb::value_error("at most two columns tell groups apart");
    const auto group = [&](size_t which) { return which < groups.size() ? groups[which].data() : nullptr; };
    auto* order = new std::vector<uint32_t>(
        released([&] { return sorted_order(group(0), group(1), start.data(), end.data(), start.shape(0)); }));
    nb::capsule owner(order, [](void* p) noexcept { delete static_cast<std::vector<uint32_t>*>(p); });
    if (order->empty()) return nb::none();
    return nb::cast(nb::ndarray<nb::numpy, uint32_t, nb::ndim<1>>(order->data(), {order->size()}, owner));
}

nb::tuple numbered_of(const std::vector<Times>& columns) {
    std::vector<View> views;
    for (const Times& column : columns) views.push_back(view(column));
    Numbered made = released([&] { return numbered(views); });
    return nb::make_tuple(to_numpy(std::move(made.number)), to_numpy(std::move(made.first)));
}

Result summed_of(Times group, Times value, int64_t groups) {
    return to_numpy(released([&] { return summed(view(group), view(value), groups); }));
}

nb::tuple both(Intervals&& made) { return nb::make_tuple(to_numpy(std::move(made.start)), to_numpy(std::move(made.end))); }

nb::tuple merged_of(Times start, Times end) {
    return both(released([&] { return merged(view(start), view(end)); }));
}

nb::tuple united_of(Times start, Times end, Times other_start, Times other_end) {
    return both(released([&] { return united(view(start), view(end), view(other_start), view(other_end)); }));
}

nb::tuple shared_of(Times start, Times end, Times other_start, Times other_end) {
    return both(released([&] { return shared(view(start), view(end), view(other_start), view(other_end)); }));
}

Result covered_of(Times start, Times end, Times from, Times until) {
    return to_numpy(released([&] { return covered(view(start), view(end), view(from), view(until)); }));
}

using Numbers32 = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::tuple totals_of(Numbers32 group, Numbers32 row, Numbers32 item, Times start, Times end, int64_t groups) {
    const auto rows = [](const Numbers32& numbers) { return RowNumbers{numbers.data(), numbers.shape(0)}; };
    Totals made = released([&] { return totals(rows(group), rows(row), rows(item), view(start), view(end), groups); });
    return nb::make_tuple(to_numpy(std::move(made.count)), to_numpy(std::move(made.items)),
                          to_numpy(std::move(made.first)), to_numpy(std::move(made.last)),
                          to_numpy(std::move(made.covered)));
}

Result holding_of(Times groups, Times start, Times end, Times group, Times time) {
    const Grouped segments{view(groups), view(start), view(end)};
    return to_numpy(released([&] { return holding(segments, view(group), view(time)); }));
}

nb::tuple overlapping_of(Times groups, Times start, Times end, Times wanted, Times from, Times until) {
    const Grouped segments{view(groups), view(start), view(end)}, windows{view(wanted), view(from), view(until)};
    return both(released([&] { return overlapping(segments, windows); }));
}

Result innermost_at_of(Times order, Times parent, Times start, Times end, Times time) {
    return to_numpy(
        released([&] { return innermost_at(view(order), view(parent), view(start), view(end), view(time)); }));
}

using Codes = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Answers = nb::ndarray<const int8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::tuple looked_up_of(Codes codes, Answers known) {
    const std::span<const uint32_t> asked{codes.data(), codes.shape(0)};
    LookedUp made = released([&] { return looked_up(asked, {known.data(), known.shape(0)}); });
    uint8_t* yes = made.yes.release();
    nb::capsule owner(yes, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
    return nb::make_tuple(nb::ndarray<nb::numpy, bool, nb::ndim<1>>(yes, {asked.size()}, owner),
                          to_numpy(std::move(made.unknown)));
}

// A text that is no UTF-8, as file names may be, may match anything.
bool may_match_of(nb::str expression, nb::str text) {
    Py_ssize_t asked = 0, held = 0;
    const char* of = PyUnicode_AsUTF8AndSize(expression.ptr(), &asked);
    const char* in = of ? PyUnicode_AsUTF8AndSize(text.ptr(), &held) : nullptr;
    if (!in) PyErr_Clear();
    return !in || may_match({of, static_cast<size_t>(asked)}, {in, static_cast<size_t>(held)});
}

}  // namespace

void bind_sweeps(nb::module_& m) {
    m.def("places", &places_of, nb::arg("ordered"), nb::arg("wanted"), nb::arg("after_equals"),
          "Where each value would go into an ordered column, before or after what equals it.");
    m.def("first_places", &first_places_of, nb::arg("wanted"), nb::arg("known"),
          "The first place in `known` of each wanted number, -1 for none and for negative numbers.");
    m.def("numbered", &numbered_of, nb::arg("columns"),
          "Equal rows of some columns under one number, in the order in which they come first; and the first row of each.");
    m.def("sorted_order", &sorted_order_of, nb::arg("groups"), nb::arg("start_ns"), nb::arg("end_ns"),
          "The rows by group, start and end, those that tie in their order; None where they stand so.");
    m.def("looked_up", &looked_up_of, nb::arg("codes"), nb::arg("known"),
          "For each row whether its code is known to mean yes; and the first row of each code that nothing is known of.");
    m.def("may_match", &may_match_of, nb::arg("expression"), nb::arg("text"),
          "False only where the text holds none of the words of which every match of the expression holds one.");
    m.def("summed", &summed_of, nb::arg("group"), nb::arg("value"), nb::arg("groups"), "The sum of each group's values.");
    m.def("merged", &merged_of, nb::arg("start_ns"), nb::arg("end_ns"), "The union of any intervals: starts and ends.");
    m.def("united", &united_of, nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("other_start_ns"),
          nb::arg("other_end_ns"), "The union of two sets of disjoint intervals in order.");
    m.def("shared", &shared_of, nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("other_start_ns"),
          nb::arg("other_end_ns"), "What two sets of disjoint intervals share.");
    m.def("covered", &covered_of, nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("from_ns"), nb::arg("until_ns"),
          "How much of each window disjoint intervals cover.");
    m.def("totals", &totals_of, nb::arg("group"), nb::arg("row"), nb::arg("item"), nb::arg("start_ns"),
          nb::arg("end_ns"), nb::arg("groups"),
          "Of each group of rows: how many, of how many items, first start, last end, length of their union.");
    m.def("holding", &holding_of, nb::arg("groups"), nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("group"),
          nb::arg("time_ns"), "The place of the disjoint segment of the group that holds each moment, -1 for none.");
    m.def("overlapping", &overlapping_of, nb::arg("groups"), nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("wanted"),
          nb::arg("from_ns"), nb::arg("until_ns"),
          "Of the disjoint segments of its group, the first and the one after the last that overlap each window.");
    m.def("innermost_at", &innermost_at_of, nb::arg("order"), nb::arg("parent"), nb::arg("start_ns"),
          nb::arg("end_ns"), nb::arg("time_ns"), "The row of the innermost interval that holds each moment, -1 for none.");
}
