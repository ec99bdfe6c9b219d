#include "texts.h"

#include <random>

namespace timesink {

size_t utf8_length(const char* at, const char* end) {
    const auto* p = reinterpret_cast<const unsigned char*>(at);
    const auto follows = [&](size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
        return at + i < end && p[i] >= low && p[i] <= high;
    };
    if (p[0] < 0x80) return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) return follows(1) ? 2 : 0;
    if (p[0] >= 0xe0 && p[0] <= 0xef)
        return follows(1, p[0] == 0xe0 ? 0xa0 : 0x80, p[0] == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
    if (p[0] >= 0xf0 && p[0] <= 0xf4)
        return follows(1, p[0] == 0xf0 ? 0x90 : 0x80, p[0] == 0xf4 ? 0x8f : 0xbf) && follows(2) && follows(3) ? 4 : 0;
    return 0;
}

namespace {

inline uint64_t mixed(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Sixteen bytes a step. The seed differs on every run, so that nobody can write a file whose texts all collide; codes
// are given in order of appearance and do not depend on it.
uint64_t hash_of(const char* p, size_t n, bool is_json, uint64_t seed) {
    constexpr uint64_t K0 = 0x9e3779b97f4a7c15ull, K1 = 0xd6e8feb86659fd93ull;
    uint64_t h = seed ^ (n << 1 | is_json);
    for (; n > 16; p += 16, n -= 16) h = mixed(load8(p) ^ K0 ^ h, load8(p + 8) ^ K1);
    // The text lies in a padded buffer: the last words may be read whole and masked.
    const uint64_t low = n >= 8 ? load8(p) : (n ? load8(p) & (~0ull >> (64 - 8 * n)) : 0);
    const uint64_t high = n > 8 ? load8(p + 8) & (~0ull >> (8 * (16 - n))) : 0;
    return mixed(low ^ K0 ^ h, high ^ K1);
}

int hex4(const char* p, const char* end) {
    if (end - p < 4) return -1;
    int value = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = p[i];
        const int digit = is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

void put_utf8(std::string& out, uint32_t point) {
    const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (point < 0x80) return put(point);
    if (point < 0x800) {
        put(0xc0 | point >> 6);
    } else {
        if (point < 0x10000) {
            put(0xe0 | point >> 12);
        } else {
            put(0xf0 | point >> 18);
            put(0x80 | (point >> 12 & 0x3f));
        }
        put(0x80 | (point >> 6 & 0x3f));
    }
    put(0x80 | (point & 0x3f));
}

// Behind the escape at p (which points behind the backslash); nullptr where it is none.
const char* put_escape(std::string& out, const char* p, const char* end) {
    static constexpr std::string_view LETTERS = "\"\\/bfnrt", MEANT = "\"\\/\b\f\n\r\t";
    if (p == end) return nullptr;
    if (const size_t at = LETTERS.find(*p); at != LETTERS.npos) {
        out.push_back(MEANT[at]);
        return p + 1;
    }
    if (*p != 'u') return nullptr;
    const int unit = hex4(p + 1, end);
    if (unit < 0) return nullptr;
    p += 5;
    uint32_t point = static_cast<uint32_t>(unit);
    if (unit >= 0xd800 && unit < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
        const int low = hex4(p + 2, end);
        if (low >= 0xdc00 && low < 0xe000) {
            point = 0x10000u + ((point - 0xd800u) << 10) + (static_cast<uint32_t>(low) - 0xdc00u);
            p += 6;
        }
    }
    put_utf8(out, point >= 0xd800 && point < 0xe000 ? 0xfffd : point);
    return p;
}

// The text with each byte that is not UTF-8 replaced; appended to `out`.
bool put_checked(std::string& out, std::string_view text) {
    bool clean = true;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        const size_t length = utf8_length(p, end);
        if (length) {
            out.append(p, length);
            p += length;
        } else {
            out.append("\xef\xbf\xbd");
            clean = false;
            ++p;
        }
    }
    return clean;
}

}  // namespace

std::string unescape(std::string_view raw, TextDamage& damage) {
    std::string out;
    out.reserve(raw.size());
    bool bad_escape = false;
    const char *p = raw.data(), *end = p + raw.size();
    while (p < end) {
        const auto* next = static_cast<const char*>(std::memchr(p, '\\', static_cast<size_t>(end - p)));
        out.append(p, next ? next : end);
        if (!next) break;
        const char* behind = put_escape(out, next + 1, end);
        if (!behind) {
            out.push_back('\\');
            bad_escape = true;
            behind = next + 1;
        }
        p = behind;
    }
    damage.bad_escapes += bad_escape;
    return out;
}

std::string squeeze(std::string_view json) {
    std::string out;
    out.reserve(json.size());
    bool quoted = false;
    for (size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (!quoted && is_space(c)) continue;
        out.push_back(c);
        if (c == '"') quoted = !quoted;
        if (quoted && c == '\\' && i + 1 < json.size()) out.push_back(json[++i]);
    }
    return out;
}

Strings::Strings(size_t budget_bytes) : slots_(1024, 0), budget_bytes_(budget_bytes) {
    std::random_device device;
    seed_ = uint64_t{device()} << 32 | device();
}

uint32_t Strings::code(const Text& text) {
    const uint64_t hash = hash_of(text.at, text.size, text.is_json, seed_);
    const size_t mask = slots_.size() - 1;
    size_t slot = hash & mask;
    for (; slots_[slot]; slot = (slot + 1) & mask) {
        const Entry& e = entries_[slots_[slot] - 1];
        if (e.hash == hash && e.raw_size == text.size && e.is_json == text.is_json &&
            std::memcmp(arena_.data() + e.raw_at, text.at, text.size) == 0)
            return slots_[slot] - 1;
    }
    return insert(text, hash, slot);
}

Text Strings::raw(uint32_t code, std::string& copy) const {
    const Entry& e = entries_[code];
    copy.assign(arena_, e.raw_at, e.raw_size);
    copy.append(PAD, '\0');
    return {copy.data(), e.raw_size, e.is_json, false};
}

uint32_t Strings::insert(const Text& text, uint64_t hash, size_t slot) {
    const std::string_view raw(text.at, text.size);
    if (arena_.size() + 2 * raw.size() + (entries_.size() + 1) * sizeof(Entry) > budget_bytes_) return FULL;
    Entry e{hash, arena_.size(), arena_.size(), text.size, text.size, text.is_json};
    std::string meant = text.is_json ? squeeze(raw) : unescape(raw, damage_);
    std::string checked;
    damage_.bad_utf8 += !put_checked(checked, meant);
    if (checked.size() > MAX_STRING_BYTES) {
        size_t kept = MAX_STRING_BYTES;
        while (kept > 0 && (static_cast<unsigned char>(checked[kept]) & 0xc0) == 0x80) --kept;
        checked.resize(kept);
        ++damage_.cut;
    }
    arena_.append(raw);
    if (checked != raw) {
        e.at = arena_.size();
        e.size = static_cast<uint32_t>(checked.size());
        arena_.append(checked);
    }
    entries_.push_back(e);
    slots_[slot] = static_cast<uint32_t>(entries_.size());
    if (entries_.size() * 2 > slots_.size()) grow();
    return static_cast<uint32_t>(entries_.size() - 1);
}

void Strings::grow() {
    std::vector<uint32_t> wider(slots_.size() * 4, 0);
    const size_t mask = wider.size() - 1;
    for (uint32_t code = 0; code < entries_.size(); ++code) {
        size_t slot = entries_[code].hash & mask;
        while (wider[slot]) slot = (slot + 1) & mask;
        wider[slot] = code + 1;
    }
    slots_.swap(wider);
}

std::pair<Bytes, Bytes> Strings::release(size_t& count) {
    std::pair<Bytes, Bytes> parts;
    count = entries_.size();
    parts.first.reserve((count + 1) * sizeof(int64_t));
    size_t total = 0;
    for (const Entry& e : entries_) total += e.size;
    parts.second.reserve(total + 1);
    auto* offsets = reinterpret_cast<int64_t*>(parts.first.data());
    int64_t at = 0;
    for (size_t i = 0; i < count; ++i) {
        offsets[i] = at;
        std::memcpy(parts.second.data() + at, arena_.data() + entries_[i].at, entries_[i].size);
        at += entries_[i].size;
    }
    offsets[count] = at;
    entries_ = {};
    slots_.assign(1024, 0);
    arena_ = {};
    return parts;
}

}  // namespace timesink
