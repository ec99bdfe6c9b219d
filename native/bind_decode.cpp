// The Python face of the decoder and of tables of SQLite: bytes in, Arrow columns out.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>

#include "arrow.h"
#include "crew.h"
#include "decode.h"
#include "sqlite.h"

namespace nb = nanobind;
using namespace timesink;

namespace {

// A finished column; its buffers pass to the first who asks for them.
struct ArrowColumn {
    const char* format;
    size_t size, nulls;
    Bytes validity, first, second;  // second: the bytes of texts
    bool taken = false;
};

// What keeps exported buffers alive until their reader lets go.
struct Exported {
    Bytes validity, first, second;
    const void* buffers[3];
};

void release_array(ArrowArray* array) {
    delete static_cast<Exported*>(array->private_data);
    array->release = nullptr;
}

void release_schema(ArrowSchema* schema) { schema->release = nullptr; }

nb::capsule schema_capsule(const ArrowColumn& column) {
    auto* schema = new ArrowSchema{column.format, "", nullptr, 2, 0, nullptr, nullptr, &release_schema, nullptr};
    return nb::capsule(schema, "arrow_schema", [](void* p) noexcept {
        auto* held = static_cast<ArrowSchema*>(p);
        if (held->release) held->release(held);
        delete held;
    });
}

nb::capsule array_capsule(ArrowColumn& column) {
    auto owned = std::make_unique<Exported>();
    const bool texts = column.format[0] == 'U';
    owned->validity.swap(column.validity);
    owned->first.swap(column.first);
    owned->second.swap(column.second);
    static const uint64_t nothing = 0;  // an Arrow buffer may not be null, even when it is empty
    owned->buffers[0] = column.nulls ? owned->validity.data() : nullptr;
    owned->buffers[1] = owned->first.data() ? static_cast<const void*>(owned->first.data()) : &nothing;
    owned->buffers[2] = owned->second.data();
    auto* array = new ArrowArray{static_cast<int64_t>(column.size), static_cast<int64_t>(column.nulls), 0, texts ? 3 : 2,
                                 0, owned->buffers, nullptr, nullptr, &release_array, nullptr};
    array->private_data = owned.release();
    return nb::capsule(array, "arrow_array", [](void* p) noexcept {
        auto* held = static_cast<ArrowArray*>(p);
        if (held->release) held->release(held);
        delete held;
    });
}

nb::tuple arrow_c_array(ArrowColumn& column, nb::object) {
    if (column.taken) throw nb::value_error("this column was handed over before");
    column.taken = true;
    nb::capsule schema = schema_capsule(column);
    return nb::make_tuple(schema, array_capsule(column));
}

// The columns of a table that hold anything; one that is null throughout is left out. All are empty afterwards: a table
// may be handed over in pieces.
nb::dict columns_of(Table& table) {
    nb::dict columns;
    for (AnyColumn* column : table.columns) {
        if (column->size() && column->nulls() == column->size()) {
            column->clear();
            continue;
        }
        auto handed = std::make_unique<ArrowColumn>();
        handed->format = column->arrow_format;
        handed->size = column->size();
        handed->nulls = column->nulls();
        std::tie(handed->first, handed->validity) = column->release();
        columns[column->name] = nb::cast(handed.release(), nb::rv_policy::take_ownership);
    }
    return columns;
}

nb::dict tables_of(Decoder& decoder) {
    nb::dict tables;
    for (Table* table : decoder.rows.all()) tables[table->name] = columns_of(*table);
    return tables;
}

nb::dict seen_of(Decoder& decoder) {
    nb::dict seen;
    for (Table* table : decoder.rows.all()) seen[table->name] = table->seen;
    return seen;
}

nb::object bounds_of(const Bounds& bounds) {
    if (bounds.empty()) return nb::none();
    return nb::make_tuple(bounds.first, bounds.last);
}

// What a first look saw. Times of the two tables have the base time added, bounds are on the file's own clock.
nb::dict survey_of(Decoder& decoder) {
    Survey& survey = decoder.rows.survey;
    nb::dict processes, seen;
    const auto count = [&](const char* name, const std::map<int64_t, int64_t>& rows) {
        nb::list counted;
        for (const auto& [process, number] : rows) counted.append(nb::make_tuple(process, number));
        processes[name] = counted;
    };
    count("api_calls", survey.api_calls);
    count("host_ops", survey.host_ops);
    count("ranges", survey.range_processes);
    count("frames", survey.frames);
    nb::list devices;
    for (const int32_t device : survey.devices) devices.append(device);
    seen["launches"] = columns_of(survey.launches);
    seen["device_times"] = columns_of(survey.device_times);
    seen["work"] = bounds_of(survey.work);
    seen["ranges"] = bounds_of(survey.ranges);
    seen["longest_comm_ns"] = survey.longest_comm_ns;
    seen["devices"] = devices;
    seen["processes"] = processes;
    return seen;
}

void cut_to(Decoder& decoder, std::pair<int64_t, int64_t> host, std::pair<int64_t, int64_t> device,
            std::pair<int64_t, int64_t> syncs) {
    decoder.rows.cutting = true;
    decoder.rows.cut = {{host.first, host.second}, {device.first, device.second}, {syncs.first, syncs.second}};
}

ArrowColumn* strings_of(Decoder& decoder) {
    auto column = std::make_unique<ArrowColumn>();
    column->format = "U";
    column->nulls = 0;
    std::tie(column->first, column->second) = decoder.rows.strings.release(column->size);
    return column.release();
}

nb::dict counts_of(const Decoder& decoder) {
    const Counts& n = decoder.rows.counts;
    const TextDamage& text = decoder.rows.strings.damage();
    nb::dict counts;
    const auto put = [&](const char* name, int64_t value) { counts[name] = value; };
    put("events", n.events);
    put("damaged_records", n.damaged_records);
    put("no_object", n.no_object);
    put("bad_time", n.bad_time);
    put("negative_duration", n.negative_duration);
    put("missing_duration", n.missing_duration);
    put("flows", n.flows);
    put("device_ranges", n.device_ranges);
    put("begin_end", n.begin_end);
    put("counters", n.counters);
    put("other_phases", n.other_phases);
    put("instants", n.instants);
    put("metadata", n.metadata);
    put("guessed_category", n.guessed_category);
    put("no_category", n.no_category);
    put("unknown_category", n.unknown_category);
    put("texts_not_kept", n.texts_not_kept);
    put("too_many", n.too_many);
    put("no_device", n.no_device);
    put("bad_escapes", text.bad_escapes);
    put("bad_utf8", text.bad_utf8);
    put("cut_texts", text.cut);
    return counts;
}

nb::list unknown_categories_of(const Decoder& decoder) {
    nb::list categories;
    for (const auto& [code, count] : decoder.rows.unknown_categories) categories.append(nb::make_tuple(code, count));
    return categories;
}

nb::dict properties_of(const Decoder& decoder) {
    nb::dict properties;
    for (const auto& [name, value] : decoder.properties)
        properties[nb::bytes(name.data(), name.size())] = nb::bytes(value.data(), value.size());
    return properties;
}

const char* ending_of(const Decoder& decoder) {
    switch (decoder.ending) {
        case Decoder::Ending::complete: return "complete";
        case Decoder::Ending::truncated: return "truncated";
        case Decoder::Ending::damaged: return "damaged";
        case Decoder::Ending::no_json: return "no_json";
        case Decoder::Ending::no_array: return "no_array";
        case Decoder::Ending::empty: return "empty";
    }
    return "damaged";
}

using Wanted = std::tuple<std::string, size_t, char, bool>;

void open_table(SqliteTable* table, const std::filesystem::path& file, uint32_t root_page, const std::vector<Wanted>& wanted,
                size_t text_characters) {
    std::vector<SqliteColumn> columns;
    for (const auto& [name, place, format, is_row_id] : wanted) columns.push_back({name, place, format, is_row_id, {}, {}});
    nb::gil_scoped_release released;
    new (table) SqliteTable(file, root_page, std::move(columns), text_characters);
}

// Texts are handed over as where they begin, and their bytes.
nb::dict columns_of_sqlite(SqliteTable& table) {
    const size_t rows = table.table.rows();
    nb::dict handed = columns_of(table.table);
    for (SqliteColumn& column : table.columns) {
        if (column.format != 'U') continue;
        auto texts = std::make_unique<ArrowColumn>();
        texts->format = "U";
        texts->size = rows;
        texts->nulls = 0;
        nb::cast<ArrowColumn&>(handed[column.name.c_str()]).first.swap(texts->first);
        texts->first.reserve((rows + 1) * sizeof(int64_t));
        std::memmove(texts->first.data() + sizeof(int64_t), texts->first.data(), rows * sizeof(int64_t));
        std::memset(texts->first.data(), 0, sizeof(int64_t));
        texts->second = std::move(column.texts);
        column.text_bytes = 0;
        handed[column.name.c_str()] = nb::cast(texts.release(), nb::rv_policy::take_ownership);
    }
    return handed;
}

// Decodes whatever lends its bytes, with the interpreter free meanwhile.
bool feed(Decoder& decoder, nb::handle window) {
    Py_buffer view;
    if (PyObject_GetBuffer(window.ptr(), &view, PyBUF_SIMPLE)) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> lent(&view, &PyBuffer_Release);
    nb::gil_scoped_release released;
    return decoder.feed(static_cast<const char*>(view.buf), static_cast<size_t>(view.len));
}

}  // namespace

void bind_decode(nb::module_& m) {
    m.def("usual_threads", &Crew::usual_threads, "How many threads pay here: the cores that may be used, as Polars is told.");
    nb::class_<ArrowColumn>(m, "ArrowColumn", "A finished column; hands its buffers over once, through Arrow.")
        .def("__len__", [](const ArrowColumn& column) { return column.size; })
        .def_ro("null_count", &ArrowColumn::nulls)
        .def("__arrow_c_array__", &arrow_c_array, nb::arg("requested_schema") = nb::none());

    nb::exception<Irregular>(m, "IrregularTable", PyExc_ValueError);
    nb::class_<SqliteTable>(m, "SqliteTable", "The rows of a table of a SQLite file, read from its pages.")
        .def("__init__", &open_table, nb::arg("file"), nb::arg("root_page"), nb::arg("columns"), nb::arg("text_characters"))
        .def("__len__", [](const SqliteTable& table) { return table.table.rows(); })
        .def("read", &SqliteTable::read, nb::arg("pages"), nb::call_guard<nb::gil_scoped_release>(),
             "Decode the next so many pages of rows; False once all are read.")
        .def("columns", &columns_of_sqlite, "The columns of the rows decoded since this was asked last.");

    nb::class_<Decoder>(m, "KinetoDecoder", "Decodes a Kineto / Chrome trace, fed in windows of any size.")
        .def(nb::init<size_t, size_t, size_t>(), nb::arg("text_budget_bytes"), nb::arg("threads") = 0,
             nb::arg("part_bytes") = size_t{1} << 20)
        .def("feed", &feed, nb::arg("window"), "Decode the next bytes; False once nothing more can come of the file.")
        .def("finish", &Decoder::finish, nb::call_guard<nb::gil_scoped_release>(),
             "Add the base time and sort, once every byte was fed.")
        .def("look_through", [](Decoder& decoder) { decoder.rows.surveying = true; },
             "Keep no rows, only what `survey` tells. To be called before the first window.")
        .def("cut_to", &cut_to, nb::arg("host"), nb::arg("device"), nb::arg("syncs"),
             "Keep only rows that touch these stretches of the file's own clock. To be called before the first window.")
        .def("survey", &survey_of, "What a first look saw; its columns may be taken once.")
        .def("seen", &seen_of, "How many rows of each table the file has, those outside of a window included.")
        .def("tables", &tables_of, "The columns of every table by name; each may be taken once.")
        .def("strings", &strings_of, nb::rv_policy::take_ownership, "Every distinct text, in the order of its code.")
        .def("counts", &counts_of)
        .def("unknown_categories", &unknown_categories_of)
        .def("properties", &properties_of, "The other members of the top level, JSON text each.")
        .def_prop_ro("ending", &ending_of)
        .def_ro("ending_byte", &Decoder::ending_byte)
        .def_ro("saw_events", &Decoder::saw_events)
        .def_ro("is_list", &Decoder::is_list)
        .def_ro("base_ns", &Decoder::base_ns)
        .def_ro("has_base", &Decoder::has_base)
        .def_ro("bad_base", &Decoder::bad_base)
        .def_ro("trailing_bytes", &Decoder::trailing_bytes);
}
