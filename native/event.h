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

// What stands between two values that differ from event to event: commas, spaces, keys, braces, and the members between
// whose values hardly ever differ. Writers repeat themselves byte for byte, so where the same bytes stand again they mean
// the same, and need no reading.
struct Run {
    static constexpr size_t MOST = PAD, MEMBERS = 4;
    // What a member inside says: a field of `Event` by its number, with the number or the place of the text.
    struct Member {
        uint8_t number = 0, at = 0, size = 0;
        bool is_json = false, escaped = false;
        int64_t value = 0;
    };
    char text[MOST] = {};
    uint8_t size = 0;      // 0: nothing that may be compared
    uint8_t key = 0;       // whose value comes next, or that the event is closed
    bool in_args = false;  // where that value stands
    bool has_phase = false;
    char phase = 0;
    uint8_t members = 0;
    uint16_t slot = 0;
    Member member[MEMBERS];

    // No run ends in a zero, so none stands across the end of the text.
    bool stands_at(const char* p) const {
        if (differs(p, 0) || size == 0) return false;
        return size <= MOST / 2 || !differs(p, MOST / 2);
    }

private:
    using Block = uint64_t __attribute__((vector_size(16)));  // compared at once on every processor of today
    static Block load16(const void* p) {
        Block block;
        std::memcpy(&block, p, 16);
        return block;
    }
    // Whether half of the text is another where the run has text.
    bool differs(const char* p, size_t at) const {
        static constexpr auto KEPT = [] {
            std::array<uint8_t, 2 * MOST> kept{};
            for (size_t i = 0; i < MOST; ++i) kept[i] = 0xff;
            return kept;
        }();
        const uint8_t* kept = KEPT.data() + MOST - size + at;
        const Block other = ((load16(p + at) ^ load16(text + at)) & load16(kept)) |
                            ((load16(p + at + 16) ^ load16(text + at + 16)) & load16(kept + 16));
        return (other[0] | other[1]) != 0;
    }
};

// The runs last seen at each place: behind a key, in an event of a kind; at the beginning of an event, apart.
class Runs {
public:
    class Place {
    public:
        const Run* find(const char* p) {
            for (size_t i = 0; i < WAYS; ++i) {
                const Run& run = runs_[last_ ^ i];
                if (!run.stands_at(p)) continue;
                last_ ^= i;
                ++met_;
                return &run;
            }
            return nullptr;
        }
        // Whether runs that hold numbers hardly ever come back here.
        bool is_restless() const { return missed_ > 32 + met_ / 4; }
        void keep(const Run& run) {
            ++missed_;
            oldest_ = (oldest_ + 1) % WAYS;
            runs_[last_ = oldest_] = run;
        }

    private:
        static constexpr size_t WAYS = 4;
        std::array<Run, WAYS> runs_;
        size_t last_ = 0, oldest_ = 0, met_ = 0, missed_ = 0;
    };
    Place& first(size_t kind) { return places_[BEHIND + kind % FIRSTS]; }
    Place& behind(uint16_t slot, size_t kind) { return places_[(slot + kind) % BEHIND]; }

private:
    static constexpr size_t BEHIND = 128, FIRSTS = 32;
    std::array<Place, BEHIND + FIRSTS> places_;
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
    std::array<Runs, 2> runs;  // of members, and of arguments; kept from event to event

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
