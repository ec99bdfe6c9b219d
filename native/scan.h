// Scanning of JSON text that may be hostile or cut off. The text ends with at least `PAD` zero bytes, so eight bytes may
// be read at any place in it, and a zero stops every loop; a zero before `end` is data.
#pragma once

#include <array>
#include <bit>
#include <climits>
#include <cstdint>
#include <cstring>

namespace timesink {

static_assert(std::endian::native == std::endian::little, "the scanner reads eight bytes as a little-endian word");

constexpr size_t PAD = 64;
constexpr int MAX_DEPTH = 64;

// ok: done. more: the text ends inside the value. bad: no JSON.
enum class Scan : uint8_t { ok, more, bad };

struct Cursor {
    const char* p;
    const char* end;
};

// A value's text as it stands in the file: between the quotes of a string, or the whole of any other value.
struct Text {
    const char* at = nullptr;
    uint32_t size = 0;
    bool is_json = false;
    bool escaped = false;  // holds a backslash
};

inline uint64_t load8(const char* p) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    return word;
}

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
// Whether a byte, other than zero, ends a number or a word.
inline bool ends_word(char c) {
    static constexpr auto ENDS = [] {
        std::array<bool, 256> ends{};
        for (const unsigned char end : {',', '}', ']', ' ', '\n', '\r', '\t'}) ends[end] = true;
        return ends;
    }();
    return ENDS[static_cast<unsigned char>(c)];
}
inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
inline void skip_space(Cursor& c) {
    while (is_space(*c.p)) ++c.p;
}

constexpr uint64_t ONES = 0x0101010101010101ull, HIGHS = 0x8080808080808080ull;

// The highest bit of each byte that is zero, exact up to the first such byte.
inline uint64_t zero_bytes(uint64_t word) { return (word - ONES) & ~word & HIGHS; }

// First quote, backslash or zero at or behind p.
inline const char* string_stop(const char* p) {
    for (;; p += 8) {
        const uint64_t word = load8(p);
        const uint64_t stop = zero_bytes(word) | zero_bytes(word ^ (ONES * '"')) | zero_bytes(word ^ (ONES * '\\'));
        if (stop) return p + (std::countr_zero(stop) >> 3);
    }
}

// The rest of a string from its first backslash or zero on; `begin` is behind the opening quote.
Scan scan_odd_string(Cursor& c, const char* begin, const char* p, Text& text);

// From behind the opening quote to behind the closing one.
inline Scan scan_string(Cursor& c, Text& text) {
    const char* p = string_stop(c.p);
    if (*p != '"' || p >= c.end || p - c.p > INT32_MAX) return scan_odd_string(c, c.p, p, text);
    text = {c.p, static_cast<uint32_t>(p - c.p), false, false};
    c.p = p + 1;
    return Scan::ok;
}

// The highest bit of each byte that is no ASCII digit.
inline uint64_t non_digits(uint64_t word) {
    word ^= ONES * '0';
    return (((word & ~HIGHS) + ONES * 0x76) | word) & HIGHS;
}
inline uint64_t eight_digits_value(uint64_t word) {
    word = (word & 0x0f0f0f0f0f0f0f0full) * 2561 >> 8;
    word = (word & 0x00ff00ff00ff00ffull) * 6553601 >> 16;
    return (word & 0x0000ffff0000ffffull) * 42949672960001 >> 32;
}
constexpr uint64_t TENS[] = {1, 10, 100, 1'000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
// Appends the digits at p to a decimal value, eight at once; wraps around where they are too many.
inline const char* read_digits(const char* p, uint64_t& value) {
    for (;; p += 8) {
        const uint64_t word = load8(p), other = non_digits(word);
        if (other) {
            const int count = std::countr_zero(other) >> 3;
            value = value * TENS[count] + eight_digits_value(word << 1 << (63 - 8 * count));
            return p + count;
        }
        value = value * TENS[8] + eight_digits_value(word);
    }
}

// A bare number of one to eight digits, as almost every id is; null where it is none.
inline const char* short_number(const char* p, uint64_t& value) {
    const uint64_t word = load8(p), other = non_digits(word);
    if (other == 0) return nullptr;
    const int count = std::countr_zero(other) >> 3;
    value = eight_digits_value(word << 1 << (63 - 8 * count));
    return count && ends_word(p[count]) ? p + count : nullptr;
}

// A bare number of at most 16 digits with three behind the point or none, as profilers write times: in thousandths. Null
// where it is none.
inline const char* short_time(const char* p, uint64_t& value) {
    uint64_t word = load8(p), other = non_digits(word);
    value = 0;
    if (other == 0) {
        value = eight_digits_value(word);
        word = load8(p += 8);
        other = non_digits(word);
    } else if (other & 0x80) {
        return nullptr;
    }
    const int count = other ? std::countr_zero(other) >> 3 : 8;
    value = value * TENS[count] + (other ? eight_digits_value(word << 1 << (63 - 8 * count)) : eight_digits_value(word));
    p += count;
    value *= 1000;
    if (!ends_word(*p)) {
        const uint64_t behind = load8(p + 1);
        if (*p != '.' || (non_digits(behind) & UINT32_MAX) != 0x80000000u || !ends_word(p[4])) return nullptr;
        value += eight_digits_value(behind << 40);
        p += 4;
    }
    return value < 9'000'000'000'000'000'000u ? p : nullptr;
}

// Any value, nested ones included, up to MAX_DEPTH.
Scan skip_value(Cursor& c);
// Any value, with its text.
Scan take_value(Cursor& c, Text& text);

// A number, bare or in quotes. `found` stays false where the value is null, text, NaN, nested or too large for the type;
// the value is passed over all the same. `damaged` tells "is no usable number" from "null".
struct Number {
    int64_t value = 0;
    bool found = false;
    bool damaged = false;
};
// Decimal text times 10^power, to the nearest integer, halves away from zero; exact, no floating point.
Scan take_number(Cursor& c, int power, Number& number);
// The same for ids that need all 64 bits; a negative one is not found.
Scan take_unsigned(Cursor& c, uint64_t& value, bool& found);

}  // namespace timesink
