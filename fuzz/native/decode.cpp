// Fuzz target of the trace decoder, built with libFuzzer, ASan and UBSan (see ../README.md).
//
// The same bytes are decoded in one window and in small ones; both must give the same tables, and every row must hold
// what the readers rely on.
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

std::unique_ptr<Decoder> decoded(const char* bytes, size_t size, size_t window) {
    auto decoder = std::make_unique<Decoder>(TEXT_BUDGET);
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
            if (!is_text(*column)) continue;
            const auto* codes = static_cast<const Column<uint32_t>*>(column)->data();
            for (size_t row = 0; row < column->size(); ++row)
                require(codes[row] < decoder.rows.strings.size(), "a code stands for a text");
        }
    }
    const HostOps& ops = decoder.rows.host_ops;
    for (size_t row = 0; row < ops.rows(); ++row)
        require(ops.start.data()[row] <= ops.end.data()[row], "no operator ends before it starts");
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
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t window = 1 + data[0] % 61;
    const char* text = reinterpret_cast<const char*>(data + 1);
    const auto whole = decoded(text, size - 1, size), pieces = decoded(text, size - 1, window);
    check_rows(*whole);
    check_rows(*pieces);
    same_tables(*whole, *pieces);
    size_t count = 0;
    whole->rows.strings.release(count);
    return 0;
}
