// The rows of a part of the text, added to those of all before it.
#include "tables.h"

namespace timesink {

namespace {

// Codes stand for texts; they are the only columns of this type.
bool is_text(const AnyColumn& column) { return column.arrow_format[0] == ArrowFormat<uint32_t>::text[0]; }

}  // namespace

// The codes here of the texts that a part has met since it was asked last, in the order it met them: as one reading of
// all the text meets them.
bool Rows::take_codes(Strings& texts, std::vector<uint32_t>& codes) {
    std::string copy;
    for (size_t known = codes.size(); known < texts.size(); ++known) {
        const uint32_t found = strings.code(texts.raw(static_cast<uint32_t>(known), copy));
        if (found == Strings::FULL) return false;
        codes.push_back(found);
    }
    return true;
}

bool Rows::join(Rows& part, std::vector<uint32_t>& codes) {
    if (part.counts.texts_not_kept || part.unknown_categories.size() == MAX_CATEGORIES ||
        static_cast<size_t>(counts.events + part.counts.events) > MAX_ROWS || !take_codes(part.strings, codes))
        return false;
    for (const auto& [column, row] : part.worded_threads_) {
        int64_t& thread = column->data()[row];
        thread = -1 - static_cast<int64_t>(codes[static_cast<size_t>(-1 - thread)]);
    }
    const std::vector<Table*> tables = all(), added = part.all();
    for (size_t t = 0; t < tables.size(); ++t) {
        tables[t]->seen += added[t]->seen;
        for (size_t c = 0; c < tables[t]->columns.size() && added[t]->rows(); ++c)
            tables[t]->columns[c]->append(*added[t]->columns[c], is_text(*added[t]->columns[c]) ? codes.data() : nullptr);
    }
    for (const auto& [category, count] : part.unknown_categories) count_category(codes[category], count);
    counts += part.counts;
    part.clear();
    return true;
}

void Rows::clear() {
    for (Table* table : all()) {
        table->seen = 0;
        for (AnyColumn* column : table->columns) column->clear();
    }
    counts = {};
    unknown_categories.clear();
    worded_threads_.clear();
}

void Rows::forget() {
    clear();
    strings = Strings(text_budget_bytes_);
    range_names_.clear();
    code({NOTHING, 0, false});
}

}  // namespace timesink
