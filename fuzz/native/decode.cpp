// Fuzz target of the trace decoder, built with libFuzzer, ASan and UBSan (see ../README.md).
//
// The same bytes are decoded in one window, in small ones, and by two threads in small parts; all must give the same
// tables and texts, and every row must hold what the readers rely on. Cut to a stretch of time, the decoder must keep the rows that touch it, and count them all.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "../../native/decode.h"

using namespace timesink;

namespace {

constexpr size_t TEXT_BUDGET = 1 << 20;

void require(bool holds, const char* law) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", law);
    std::abort();
}

std::unique_ptr<Decoder> decoded(const char* bytes, size_t size, size_t window, const Stretch* stretch = nullptr,
                                 size_t threads = 1, size_t part_bytes = 1) {
    auto decoder = std::make_unique<Decoder>(TEXT_BUDGET, threads, part_bytes);
    if (stretch) {
        decoder->rows.cutting = true;
        decoder->rows.cut = {*stretch, *stretch, *stretch};
    }
    for (size_t at = 0; at < size; at += window)
        if (!decoder->feed(bytes + at, at + window < size ? window : size - at)) break;
    decoder->finish();
    return decoder;
}

bool is_text(const AnyColumn& column) { return std::strcmp(column.arrow_format, "I") == 0; }

void check_rows(Decoder& decoder) {
    for (Table* table : decoder.rows.all()) {
        for (const AnyColumn* column : table->columns) {
            require(column->size() == table->rows(), "columns of a table are equally long");
            require(column->nulls() <= column->size(), "nulls are rows");
            if (!is_text(*column) || column->nulls() == column->size()) continue;
            const auto* codes = static_cast<const Column<uint32_t>*>(column)->data();
            for (size_t row = 0; row < column->size(); ++row)
                require(codes[row] < decoder.rows.strings.size(), "a code stands for a text");
        }
    }
    const HostOps& ops = decoder.rows.host_ops;
    for (size_t row = 0; row < ops.rows(); ++row)
        require(ops.start.data()[row] <= ops.end.data()[row], "no operator ends before it starts");
}

// `whole` and `cut` are of the same bytes; times of the stretch are the file's own, those of the rows have the base added.
void check_cut(const Decoder& whole, const Decoder& cut, const Stretch& stretch) {
    const auto kept = [&](const auto& table) {
        size_t count = 0;
        for (size_t row = 0; row < table.rows(); ++row) {
            int64_t start = 0, end = 0;
            if (__builtin_sub_overflow(table.start.data()[row], whole.base_ns, &start) ||
                __builtin_sub_overflow(table.end.data()[row], whole.base_ns, &end))
                return SIZE_MAX;  // clamped when the base was added
            count += stretch.holds(start, end);
        }
        return count;
    };
    const auto check = [&](const auto& all, const auto& some) {
        const size_t count = kept(all);
        require(static_cast<size_t>(all.seen) == all.rows(), "without a stretch every row that is seen is kept");
        require(some.seen == all.seen, "a stretch does not change what is seen");
        require(whole.base_ns != 0 || count == some.rows(), "a stretch keeps the rows that touch it, and no other");
    };
    check(whole.rows.host_ops, cut.rows.host_ops);
    check(whole.rows.api_calls, cut.rows.api_calls);
    check(whole.rows.device_ops, cut.rows.device_ops);
    check(whole.rows.ranges, cut.rows.ranges);
    check(whole.rows.frames, cut.rows.frames);
}

void check_survey(const char* bytes, size_t size, const Decoder& whole) {
    Decoder look(TEXT_BUDGET);
    look.rows.surveying = true;
    if (size) look.feed(bytes, size);
    look.finish();
    require(look.rows.survey.launches.rows() == whole.rows.api_calls.rows(), "a first look sees every call");
    require(look.rows.survey.device_times.rows() == whole.rows.device_ops.rows(), "a first look sees all GPU work");
    for (Table* table : look.rows.all())
        require(table->rows() == 0 || table == &look.rows.threads || table == &look.rows.spans, "a first look keeps no row");
}

void same_tables(Decoder& one, Decoder& other) {
    require(one.ending == other.ending, "windows do not change the ending");
    require(one.ending_byte == other.ending_byte, "windows do not change where it ends");
    require(std::memcmp(&one.rows.counts, &other.rows.counts, sizeof(Counts)) == 0, "windows do not change the counts");
    const auto left = one.rows.all(), right = other.rows.all();
    for (size_t t = 0; t < left.size(); ++t) {
        require(left[t]->rows() == right[t]->rows(), "windows do not change the number of rows");
        for (size_t c = 0; c < left[t]->columns.size(); ++c) {
            auto [left_values, left_bits] = left[t]->columns[c]->release();
            auto [right_values, right_bits] = right[t]->columns[c]->release();
            require(left_values.capacity() == right_values.capacity() &&
                        (!left_values.data() ||
                         std::memcmp(left_values.data(), right_values.data(), left_values.capacity()) == 0),
                    "windows do not change the values");
        }
    }
    require(one.rows.strings.size() == other.rows.strings.size(), "windows do not change the texts");
    for (uint32_t code = 0; code < one.rows.strings.size(); ++code)
        require(one.rows.strings[code] == other.rows.strings[code], "windows do not change what a code stands for");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t window = 1 + data[0] % 61;
    const char* text = reinterpret_cast<const char*>(data + 1);
    const auto whole = decoded(text, size - 1, size), pieces = decoded(text, size - 1, window);
    const Stretch stretch{static_cast<int64_t>(data[0]) * 1000, static_cast<int64_t>(data[0]) * 3000};
    check_cut(*whole, *decoded(text, size - 1, size, &stretch), stretch);
    check_survey(text, size - 1, *whole);
    check_rows(*whole);
    check_rows(*pieces);
    same_tables(*whole, *pieces);
    const auto alone = decoded(text, size - 1, 4 * window);
    const auto shared = decoded(text, size - 1, 4 * window, nullptr, 2, 1 + data[0]);
    check_rows(*shared);
    same_tables(*alone, *shared);
    size_t count = 0;
    whole->rows.strings.release(count);
    return 0;
}
