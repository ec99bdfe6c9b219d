#include "scan.h"

#include <limits>

namespace timesink {

namespace {

// To behind the bracket that closes the one at the cursor.
Scan skip_nested(Cursor& c) {
    for (int depth = 0;;) {
        switch (*c.p) {
            case '{':
            case '[':
                if (++depth > MAX_DEPTH) return Scan::bad;
                ++c.p;
                break;
            case '}':
            case ']':
                ++c.p;
                if (--depth == 0) return Scan::ok;
                break;
            case '"': {
                Text ignored;
                ++c.p;
                if (Scan s = scan_string(c, ignored); s != Scan::ok) return s;
                break;
            }
            case '\0':
                if (c.p >= c.end) return Scan::more;
                [[fallthrough]];
            default: ++c.p;
        }
    }
}

Scan skip_scalar(Cursor& c) {
    const char* begin = c.p;
    while (*c.p && !ends_word(*c.p)) ++c.p;
    if (c.p >= c.end) return Scan::more;
    return c.p == begin || *c.p == '\0' ? Scan::bad : Scan::ok;
}

// Decimal digits without leading zeros, and where the point stands among them: 0.d1d2d3... x 10^exponent.
struct Digits {
    static constexpr int KEPT = 40;
    char digit[KEPT];
    int kept = 0;
    int64_t exponent = 0;
    bool negative = false;
    bool well_formed = false;
};

Digits parse_digits(const char* p, const char* end) {
    Digits d;
    if (p < end && (*p == '-' || *p == '+')) d.negative = *p++ == '-';
    bool any = false, fraction = false;
    for (; p < end && (is_digit(*p) || (*p == '.' && !fraction)); ++p) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        any = true;
        if (d.kept == 0 && *p == '0') {
            d.exponent -= fraction;
            continue;
        }
        if (d.kept < Digits::KEPT) d.digit[d.kept++] = *p;
        d.exponent += !fraction;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        ++p;
        const bool down = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) ++p;
        int64_t power = 0;
        any = any && p < end;
        for (; p < end && is_digit(*p); ++p)
            if (power < 1'000'000'000) power = power * 10 + (*p - '0');
        d.exponent += down ? -power : power;
    }
    d.well_formed = any && p == end;
    return d;
}

// The magnitude, or false where it needs more than 64 bits.
bool to_integer(const Digits& d, int power, uint64_t& value) {
    const int64_t places = d.exponent + power;
    value = 0;
    if (d.kept == 0 || places < 0) return true;
    if (places > 20) return false;
    for (int64_t i = 0; i < places; ++i) {
        const uint64_t digit = i < d.kept ? static_cast<uint64_t>(d.digit[i] - '0') : 0;
        if (__builtin_mul_overflow(value, uint64_t{10}, &value) || __builtin_add_overflow(value, digit, &value))
            return false;
    }
    if (places < d.kept && d.digit[places] >= '5') return !__builtin_add_overflow(value, uint64_t{1}, &value);
    return true;
}

bool is_null(const Text& text) { return text.is_json && text.size == 4 && std::memcmp(text.at, "null", 4) == 0; }

// The whole value as exact decimal; nothing is found where it is no number.
Scan take_decimal(Cursor& c, Digits& digits, bool& null) {
    Text text;
    if (Scan s = take_value(c, text); s != Scan::ok) return s;
    null = is_null(text);
    digits = parse_digits(text.at, text.at + text.size);
    return Scan::ok;
}

}  // namespace

Scan scan_odd_string(Cursor& c, const char* begin, const char* p, Text& text) {
    bool escaped = false;
    for (;; p = string_stop(p)) {
        if (p >= c.end) return Scan::more;
        if (*p == '"') break;
        escaped = escaped || *p == '\\';
        p += *p == '\\' ? 2 : 1;
        if (p >= c.end) return Scan::more;
    }
    if (p - begin > std::numeric_limits<int32_t>::max()) return Scan::bad;
    text = {begin, static_cast<uint32_t>(p - begin), false, escaped};
    c.p = p + 1;
    return Scan::ok;
}

Scan skip_value(Cursor& c) {
    if (*c.p == '"') {
        Text ignored;
        ++c.p;
        return scan_string(c, ignored);
    }
    return *c.p == '{' || *c.p == '[' ? skip_nested(c) : skip_scalar(c);
}

Scan take_value(Cursor& c, Text& text) {
    if (*c.p == '"') {
        ++c.p;
        return scan_string(c, text);
    }
    const char* begin = c.p;
    if (Scan s = skip_value(c); s != Scan::ok) return s;
    if (c.p - begin > std::numeric_limits<int32_t>::max()) return Scan::bad;
    text = {begin, static_cast<uint32_t>(c.p - begin), true, false};
    return Scan::ok;
}

Scan take_number(Cursor& c, int power, Number& number) {
    const char* p = c.p;
    const bool negative = *p == '-';
    p += negative;
    uint64_t value = 0;
    const char* begin = p;
    p = read_digits(p, value);
    bool plain = p > begin && p - begin <= 16;  // 16 digits times 1000 fit into 64 bits
    int left = power;
    if (plain && *p == '.') {
        const char* point = ++p;
        uint64_t fraction = 0;
        p = read_digits(p, fraction);
        plain = p > point;
        if (p - point <= left) {
            left -= static_cast<int>(p - point);
            value = value * TENS[p - point] + fraction;
        } else {
            for (; left > 0; --left) value = value * 10 + static_cast<uint64_t>(*point++ - '0');
            value += *point >= '5';
        }
    }
    if (p >= c.end) return Scan::more;
    if (plain && ends_word(*p) && power <= 3) {
        value *= TENS[left];
        plain = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    } else {
        plain = false;
    }
    if (plain) {
        number = {negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value), true, false};
        c.p = p;
        return Scan::ok;
    }
    Digits digits;
    bool null = false;
    if (Scan s = take_decimal(c, digits, null); s != Scan::ok) return s;
    uint64_t size = 0;
    number = {0, false, !null};
    if (!digits.well_formed || !to_integer(digits, power, size)) return Scan::ok;
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Scan::ok;
    number = {digits.negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size), true, false};
    return Scan::ok;
}

Scan take_unsigned(Cursor& c, uint64_t& value, bool& found) {
    const char* p = c.p;
    uint64_t plain = 0;
    p = read_digits(p, plain);
    if (p > c.p && p - c.p <= 18 && p < c.end && ends_word(*p)) {
        value = plain;
        found = true;
        c.p = p;
        return Scan::ok;
    }
    Digits digits;
    bool null = false;
    if (Scan s = take_decimal(c, digits, null); s != Scan::ok) return s;
    found = digits.well_formed && !digits.negative && to_integer(digits, 0, value);
    return Scan::ok;
}

}  // namespace timesink
