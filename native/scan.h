// Scanning of JSON text that may be hostile or cut off. The text ends with at least `PAD` zero bytes, so eight bytes may
// be read at any place in it, and a zero stops every loop; a zero before `end` is data.
#pragma once

#include <bit>
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
};

inline uint64_t load8(const char* p) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    return word;
}

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
inline void skip_space(Cursor& c) {
    while (is_space(*c.p)) ++c.p;
}

// From behind the opening quote to behind the closing one.
Scan scan_string(Cursor& c, Text& text);
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
