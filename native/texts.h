// Every distinct text of a file once: names, shapes, stacks. A text is unescaped and checked when first seen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "columns.h"
#include "scan.h"

namespace timesink {

constexpr size_t MAX_STRING_BYTES = 1 << 20;

// What was changed on the way in, as counts of distinct texts.
struct TextDamage {
    int64_t bad_escapes = 0, bad_utf8 = 0, cut = 0;
};

// The text a JSON string stands for. A bad escape stays as it is written, bad UTF-8 becomes U+FFFD.
std::string unescape(std::string_view raw, TextDamage& damage);
// Length of the well-formed UTF-8 sequence at a place before `end`, or 0 (Unicode 15, table 3-7).
size_t utf8_length(const char* at, const char* end);
// JSON text without the spaces outside its strings.
std::string squeeze(std::string_view json);

class Strings {
public:
    static constexpr uint32_t FULL = UINT32_MAX;

    explicit Strings(size_t budget_bytes);

    // The code of a text, the same for the same bytes; FULL once the budget is spent. The text must be padded as the
    // scanner's is.
    uint32_t code(const Text& text);
    std::string_view operator[](uint32_t code) const { return {arena_.data() + entries_[code].at, entries_[code].size}; }
    // A text as it stood in the file, padded in `copy`.
    Text raw(uint32_t code, std::string& copy) const;
    size_t size() const { return entries_.size(); }
    const TextDamage& damage() const { return damage_; }
    // Arrow large_utf8: offsets and bytes. The table is empty afterwards.
    std::pair<Bytes, Bytes> release(size_t& count);

private:
    struct Entry {
        uint64_t hash;
        size_t at, raw_at;
        uint32_t size, raw_size;
        bool is_json;
    };
    uint32_t insert(const Text& text, uint64_t hash, size_t slot);
    void grow();

    std::vector<Entry> entries_;
    std::vector<uint32_t> slots_;  // code + 1; 0 is free
    std::string arena_;
    size_t budget_bytes_;
    uint64_t seed_;
    TextDamage damage_;
};

}  // namespace timesink
