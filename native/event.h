// One event of a trace as its fields: what the keys are, and reading one from the text.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "scan.h"

namespace timesink {

enum class Category : uint8_t {
    none, kernel, copy, set, api, host_op, range, device_range, frame, sync, instant, overhead, span, flow, unknown
};

// Integer fields, then text fields; the position in `Event`.
enum class Int : uint8_t {
    pid, tid, ts, dur, correlation, stream, device, context, bytes, registers, shared_memory, graph_id, graph_node,
    sequence, forward_thread, python_id, python_parent, in_elements, out_elements, group_size, group_sequence, address,
    total_allocated, total_reserved, device_id, device_type, wait_stream, wait_record, wait_event, peer, count
};
enum class Str : uint8_t {
    name, category, tid, dims, types, strides, concrete, stack, collective, dtype, group_name, group_description,
    group_ranks, sync_kind, copy_kind, own_name, kernel, count
};

constexpr size_t INTS = static_cast<size_t>(Int::count), STRS = static_cast<size_t>(Str::count);
static_assert(INTS <= 64 && STRS <= 32);

// A fixed set of words of at most PAD bytes, each with a number; one hash, one comparison of words of eight bytes.
class Words {
public:
    struct Word {
        std::string_view text;
        uint8_t number;
    };
    static constexpr size_t SLOTS = 512;
    static constexpr uint8_t ABSENT = 0xff;
    explicit Words(std::initializer_list<Word> words);
    uint8_t number(uint16_t slot) const { return slots_[slot].number; }
    // The slot of a text, padded as the scanner's is; a free one, whose number is ABSENT, where it is none of the words.
    uint16_t find(const char* at, size_t size) const {
        const uint64_t head = head_of(at, size), tail = size >= 8 ? load8(at + size - 8) : 0;
        for (size_t slot = hash(head, tail, size);; slot = (slot + 1) & (SLOTS - 1)) {
            const Slot& word = slots_[slot];
            if (word.number == ABSENT || (word.head == head && word.tail == tail && word.size == size &&
                                          (size <= 16 || std::memcmp(word.text, at, size) == 0)))
                return static_cast<uint16_t>(slot);
        }
    }

private:
    struct Slot {
        uint64_t head = 0, tail = 0;
        const char* text = nullptr;
        uint32_t size = 0;
        uint8_t number = ABSENT;
    };
    static uint64_t head_of(const char* at, size_t size) {
        return size >= 8 ? load8(at) : load8(at) & ((uint64_t{1} << (8 * size)) - 1);
    }
    static size_t hash(uint64_t head, uint64_t tail, size_t size) {
        return ((head + 3 * tail + size) * 0x9e3779b97f4a7c15ull) >> 55;
    }
    std::array<Slot, SLOTS> slots_;
};

// What stood between two values of an object: comma, spaces, key and colon, or the brace. Writers repeat themselves byte
// for byte, so comparing with what was read before saves reading it again.
struct Gap {
    static constexpr size_t MOST = 40;
    char text[MOST] = {};
    uint8_t size = 0;  // 0: nothing that may be compared
    uint8_t number = 0;
    uint16_t slot = 0;
    bool stands_at(const char* p) const {
        size_t at = 0;
        for (; at + 8 <= size; at += 8)
            if (load8(p + at) != load8(text + at)) return false;
        return size && (load8(p + at) ^ load8(text + at)) << 1 << (63 - 8 * (size - at)) == 0;
    }
};

// The two gaps last seen at each place: behind a key, in an event of a kind; at the beginning of an object, apart.
class Gaps {
public:
    using Place = std::array<Gap, 2>;
    Place& first(size_t kind) { return places_[Words::SLOTS + kind % FIRSTS]; }
    Place& behind(uint16_t slot, size_t kind) { return places_[(slot + kind) % Words::SLOTS]; }

private:
    static constexpr size_t FIRSTS = 64;
    std::array<Place, Words::SLOTS + FIRSTS> places_{};
};

struct Event {
    uint64_t ints = 0;  // which of `value` are there
    uint32_t texts = 0;
    char phase = 0;
    bool has_external = false, has_grid = false, has_block = false, damaged_time = false;
    Category category = Category::none;
    uint64_t external = 0;
    std::array<int64_t, INTS> value{};
    std::array<Text, STRS> text{};
    std::array<int64_t, 3> grid{}, block{};
    Gaps key_gaps, arg_gaps;  // kept from event to event

    bool has(Int f) const { return ints >> static_cast<unsigned>(f) & 1; }
    bool has(Str f) const { return texts >> static_cast<unsigned>(f) & 1; }
    int64_t operator[](Int f) const { return value[static_cast<size_t>(f)]; }
    const Text& operator[](Str f) const { return text[static_cast<size_t>(f)]; }
    void put(Int f, int64_t v) {
        value[static_cast<size_t>(f)] = v;
        ints |= uint64_t{1} << static_cast<unsigned>(f);
    }
    void put(Str f, const Text& t) {
        text[static_cast<size_t>(f)] = t;
        texts |= 1u << static_cast<unsigned>(f);
    }
    size_t kind() const { return 131 * static_cast<size_t>(phase) + 37 * static_cast<size_t>(category); }
    void clear() {
        ints = 0;
        texts = 0;
        phase = 0;
        has_external = has_grid = has_block = damaged_time = false;
        category = Category::none;
    }
};

// Reads the object at the cursor. On `ok` the cursor stands behind it; else it has moved no further than the trouble.
Scan read_event(Cursor& c, Event& event);
// What a value of "cat" means; `unknown` where nothing is known of it.
Category category_of(const Text& text);

}  // namespace timesink
