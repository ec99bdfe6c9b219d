#include "event.h"

#include <string>

#include "texts.h"

namespace timesink {

namespace {

// What a key asks for: an integer or text field (offset by KIND), or one of the special ones.
enum class Key : uint8_t { phase = 128, args, external, grid, block, category, closed };
constexpr uint8_t TEXT = 64;

constexpr uint8_t number_of(Int f) { return static_cast<uint8_t>(f); }
constexpr uint8_t number_of(Str f) { return static_cast<uint8_t>(TEXT + static_cast<uint8_t>(f)); }
constexpr uint8_t number_of(Key k) { return static_cast<uint8_t>(k); }

const Words EVENT_KEYS{
    {"ph", number_of(Key::phase)}, {"cat", number_of(Key::category)}, {"args", number_of(Key::args)},
    {"name", number_of(Str::name)}, {"pid", number_of(Int::pid)}, {"tid", number_of(Int::tid)},
    {"ts", number_of(Int::ts)}, {"dur", number_of(Int::dur)},
};

const Words ARG_KEYS{
    {"External id", number_of(Key::external)}, {"external id", number_of(Key::external)},
    {"External Id", number_of(Key::external)}, {"grid", number_of(Key::grid)}, {"block", number_of(Key::block)},
    {"correlation", number_of(Int::correlation)}, {"stream", number_of(Int::stream)},
    {"device", number_of(Int::device)}, {"context", number_of(Int::context)}, {"bytes", number_of(Int::bytes)},
    {"Bytes", number_of(Int::bytes)}, {"registers per thread", number_of(Int::registers)},
    {"shared memory", number_of(Int::shared_memory)}, {"graph id", number_of(Int::graph_id)},
    {"graph node id", number_of(Int::graph_node)}, {"Sequence number", number_of(Int::sequence)},
    {"Fwd thread id", number_of(Int::forward_thread)}, {"Python id", number_of(Int::python_id)},
    {"Python parent id", number_of(Int::python_parent)}, {"In msg nelems", number_of(Int::in_elements)},
    {"Out msg nelems", number_of(Int::out_elements)}, {"Group size", number_of(Int::group_size)},
    {"Seq", number_of(Int::group_sequence)}, {"Addr", number_of(Int::address)},
    {"Src Rank", number_of(Int::peer)}, {"Dst Rank", number_of(Int::peer)},
    {"Total Allocated", number_of(Int::total_allocated)}, {"Total Reserved", number_of(Int::total_reserved)},
    {"Device Id", number_of(Int::device_id)}, {"Device Type", number_of(Int::device_type)},
    {"wait_on_stream", number_of(Int::wait_stream)},
    {"wait_on_cuda_event_record_corr_id", number_of(Int::wait_record)},
    {"wait_on_cuda_event_id", number_of(Int::wait_event)}, {"Input Dims", number_of(Str::dims)},
    {"Input dims", number_of(Str::dims)}, {"Input type", number_of(Str::types)},
    {"Input Strides", number_of(Str::strides)}, {"Concrete Inputs", number_of(Str::concrete)},
    {"Call stack", number_of(Str::stack)}, {"Collective name", number_of(Str::collective)},
    {"dtype", number_of(Str::dtype)}, {"Process Group Name", number_of(Str::group_name)},
    {"Process Group Description", number_of(Str::group_description)},
    {"Process Group Ranks", number_of(Str::group_ranks)}, {"cuda_sync_kind", number_of(Str::sync_kind)},
    {"kind", number_of(Str::copy_kind)}, {"name", number_of(Str::own_name)}, {"kernel", number_of(Str::kernel)},
};

constexpr uint8_t number_of(Category c) { return static_cast<uint8_t>(c); }

// Kineto's categories since 2021, capitalised in the first releases; Intel's and out-of-tree back ends name theirs alike.
const Words CATEGORIES{
    {"kernel", number_of(Category::kernel)}, {"Kernel", number_of(Category::kernel)},
    {"gpu_memcpy", number_of(Category::copy)}, {"Memcpy", number_of(Category::copy)},
    {"memcpy", number_of(Category::copy)}, {"gpu_memset", number_of(Category::set)},
    {"Memset", number_of(Category::set)}, {"memset", number_of(Category::set)},
    {"cuda_runtime", number_of(Category::api)}, {"Runtime", number_of(Category::api)},
    {"runtime", number_of(Category::api)}, {"cuda_driver", number_of(Category::api)},
    {"Driver", number_of(Category::api)}, {"hip_runtime", number_of(Category::api)},
    {"hip_driver", number_of(Category::api)}, {"xpu_runtime", number_of(Category::api)},
    {"xpu_driver", number_of(Category::api)}, {"privateuse1_runtime", number_of(Category::api)},
    {"privateuse1_driver", number_of(Category::api)}, {"cpu_op", number_of(Category::host_op)},
    {"Operator", number_of(Category::host_op)}, {"operator", number_of(Category::host_op)},
    {"user_annotation", number_of(Category::range)}, {"User_annotation", number_of(Category::range)},
    {"gpu_user_annotation", number_of(Category::device_range)}, {"python_function", number_of(Category::frame)},
    {"cuda_sync", number_of(Category::sync)}, {"cpu_instant_event", number_of(Category::instant)},
    {"overhead", number_of(Category::overhead)}, {"Overhead", number_of(Category::overhead)},
    {"Trace", number_of(Category::span)}, {"trace", number_of(Category::span)},
    {"ac2g", number_of(Category::flow)}, {"async", number_of(Category::flow)}, {"fwdbwd", number_of(Category::flow)},
    {"async_cpu_to_gpu", number_of(Category::flow)}, {"async_gpu", number_of(Category::flow)},
    {"forward_backward", number_of(Category::flow)},
};

// The number of a key or category that is written with escapes: looked up unescaped, in a padded copy.
uint8_t find_escaped(const Words& words, const Text& text) {
    if (text.size > 400) return Words::ABSENT;
    TextDamage ignored;
    std::string plain = unescape({text.at, text.size}, ignored);
    const size_t size = plain.size();
    plain.append(PAD, '\0');
    return words.number(words.find(plain.data(), size));
}

// [x, y, z] of integers; anything else is passed over.
Scan read_triple(Cursor& c, std::array<int64_t, 3>& triple, bool& found) {
    if (*c.p != '[') return skip_value(c);
    Cursor at = c;
    ++at.p;
    size_t filled = 0;
    for (; filled < 3; ++filled) {
        skip_space(at);
        if (at.p >= at.end) return Scan::more;
        if (*at.p == ']') break;
        Number number;
        if (Scan s = take_number(at, 0, number); s != Scan::ok) return s == Scan::more ? s : skip_value(c);
        if (!number.found) break;
        triple[filled] = number.value;
        skip_space(at);
        if (*at.p == ',') ++at.p;
    }
    found = filled == 3;
    return skip_value(c);
}

Scan read_int(Cursor& c, Event& event, Int field) {
    const bool is_time = field == Int::ts || field == Int::dur;
    if (field == Int::tid && *c.p == '"') {  // "24572", "stream 7" or a name
        Cursor copy = c;
        Text text;
        if (Scan s = take_value(copy, text); s != Scan::ok) return s;
        event.put(Str::tid, text);
    }
    uint64_t plain;
    if (const char* behind = is_time ? short_time(c.p, plain) : short_number(c.p, plain)) {
        event.put(field, static_cast<int64_t>(plain));
        c.p = behind;
        return Scan::ok;
    }
    Number number;
    if (Scan s = take_number(c, is_time ? 3 : 0, number); s != Scan::ok) return s;
    if (number.found) event.put(field, number.value);
    if (is_time && number.damaged) event.damaged_time = true;
    return Scan::ok;
}

// Where a value stands that is to be read: its key, and whether it is an argument.
struct Stand {
    uint8_t key;
    bool in_args;
    uint16_t slot;
};

// From behind a value, or behind the brace that opens the object, to the next value or behind the closing brace.
Scan read_key(Cursor& c, const Words& keys, bool first, Stand& to) {
    skip_space(c);
    if (!first && *c.p == ',') {
        ++c.p;
        skip_space(c);
    } else if (!first && *c.p != '}') {
        return c.p >= c.end ? Scan::more : Scan::bad;
    }
    if (*c.p == '}') {
        ++c.p;
        to.key = number_of(Key::closed);
        return Scan::ok;
    }
    if (c.p >= c.end) return Scan::more;
    if (*c.p != '"') return Scan::bad;
    ++c.p;
    Text key;
    if (Scan s = scan_string(c, key); s != Scan::ok) return s;
    to.slot = key.escaped ? 0 : keys.find(key.at, key.size);
    to.key = key.escaped ? find_escaped(keys, key) : keys.number(to.slot);
    skip_space(c);
    if (*c.p != ':') return c.p >= c.end ? Scan::more : Scan::bad;
    ++c.p;
    skip_space(c);
    return Scan::ok;
}

Scan read_member(Cursor& c, Event& event, uint8_t key) {
    if (key < TEXT) return read_int(c, event, static_cast<Int>(key));
    uint64_t plain;
    if (key == Words::ABSENT || key == number_of(Key::external)) {
        const char* behind = short_number(c.p, plain);
        if (!behind) return key == Words::ABSENT ? skip_value(c) : take_unsigned(c, event.external, event.has_external);
        c.p = behind;
        if (key == Words::ABSENT) return Scan::ok;
        event.external = plain;
        event.has_external = true;
        return Scan::ok;
    }
    Text text;
    if (key < number_of(Key::phase)) {
        if (Scan s = take_value(c, text); s != Scan::ok) return s;
        event.put(static_cast<Str>(key - TEXT), text);
        return Scan::ok;
    }
    switch (static_cast<Key>(key)) {
        case Key::grid: return read_triple(c, event.grid, event.has_grid);
        case Key::block: return read_triple(c, event.block, event.has_block);
        case Key::args: case Key::closed: case Key::external: return skip_value(c);
        case Key::phase: case Key::category: break;
    }
    if (Scan s = take_value(c, text); s != Scan::ok) return s;
    if (static_cast<Key>(key) == Key::phase) {
        event.phase = text.size == 1 && !text.is_json ? *text.at : '\0';
    } else {
        event.put(Str::category, text);
        event.category = category_of(text);
    }
    return Scan::ok;
}

// Whether the values of a key hardly ever differ between events; of the name, those of arrows.
bool is_steady(uint8_t key, const char* value, const Event& event, bool restless) {
    if (key == number_of(Key::phase) || key == number_of(Key::category)) return true;
    if (restless) return false;
    if (key == number_of(Str::name)) return event.category == Category::flow;
    if (key == Words::ABSENT) return *value == '"';
    for (const Int field : {Int::pid, Int::tid, Int::device, Int::context, Int::stream, Int::forward_thread})
        if (key == number_of(field)) return *value != '"';
    return false;
}

// Reads a steady member, and notes in the run what it said; false where that is more than a run can hold.
bool note_member(Cursor& c, Event& event, uint8_t key, const char* begin, Run& run, Scan& scan) {
    const bool is_int = key < TEXT;
    const uint64_t bit = is_int ? uint64_t{1} << key : 0, had = event.ints & bit;
    event.ints &= ~bit;
    scan = read_member(c, event, key);
    const bool put = event.ints & bit;
    event.ints |= had;
    if (scan != Scan::ok || (is_int && !put)) return false;
    if (key == Words::ABSENT) return true;
    if (key == number_of(Key::phase)) {
        run.has_phase = true;
        run.phase = event.phase;
        return true;
    }
    if (run.members == Run::MEMBERS) return false;
    if (is_int) {
        run.member[run.members++] = {key, 0, 0, false, false, event.value[key]};
        return true;
    }
    const uint8_t number = key == number_of(Key::category) ? number_of(Str::category) : key;
    const Text& text = event.text[number - TEXT];
    if (text.at + text.size - begin > static_cast<int64_t>(Run::MOST)) return false;
    run.member[run.members++] = {number,       static_cast<uint8_t>(text.at - begin), static_cast<uint8_t>(text.size),
                                 text.is_json, text.escaped, static_cast<int64_t>(event.category)};
    return true;
}

// From behind a value, or behind the brace that opens the event, to the next value that may differ. The run holds as much
// of that as can be compared.
Scan read_run(Cursor& c, Event& event, Stand& stand, bool first, bool restless, Run& run) {
    const char* begin = c.p;
    Run longer;
    for (bool fits = true;;) {
        if (Scan s = read_key(c, stand.in_args ? ARG_KEYS : EVENT_KEYS, first, stand); s != Scan::ok) return s;
        first = false;
        const bool closed = stand.key == number_of(Key::closed);
        if (closed && stand.in_args) {
            stand.in_args = false;
            continue;
        }
        if (stand.key == number_of(Key::args) && *c.p == '{') {
            ++c.p;
            stand.in_args = first = true;
            continue;
        }
        const size_t size = static_cast<size_t>(c.p - begin);
        fits = fits && size <= Run::MOST && stand.key != number_of(Key::args);  // what arguments are, the next byte says
        if (fits) {
            longer.size = static_cast<uint8_t>(size);
            longer.key = stand.key;
            longer.in_args = stand.in_args;
            longer.slot = stand.slot;
            run = longer;
            std::memcpy(run.text, begin, size);
        }
        if (closed || !is_steady(stand.key, c.p, event, restless)) return Scan::ok;
        Scan s = Scan::ok;
        fits = note_member(c, event, stand.key, begin, longer, s) && fits;
        if (s != Scan::ok) return s;
    }
}

// What the members inside of a run say.
void say_again(const Run& run, const char* begin, Event& event) {
    if (run.has_phase) event.phase = run.phase;
    for (size_t i = 0; i < run.members; ++i) {
        const Run::Member& member = run.member[i];
        if (member.number < TEXT) {
            event.put(static_cast<Int>(member.number), member.value);
            continue;
        }
        const Str field = static_cast<Str>(member.number - TEXT);
        event.put(field, {begin + member.at, member.size, member.is_json, member.escaped});
        if (field == Str::category) event.category = static_cast<Category>(member.value);
    }
}

}  // namespace

Words::Words(std::initializer_list<Word> words) {
    for (const Word& word : words) {
        char padded[2 * PAD] = {};
        const size_t size = word.text.size();
        std::memcpy(padded, word.text.data(), size);
        const uint64_t head = head_of(padded, size), tail = size >= 8 ? load8(padded + size - 8) : 0;
        size_t slot = hash(head, tail, size);
        while (slots_[slot].number != ABSENT) slot = (slot + 1) & (SLOTS - 1);
        slots_[slot] = {head, tail, word.text.data(), static_cast<uint32_t>(size), word.number};
    }
}

Category category_of(const Text& text) {
    if (text.size == 0 || text.is_json) return Category::none;
    const uint8_t number =
        text.escaped ? find_escaped(CATEGORIES, text) : CATEGORIES.number(CATEGORIES.find(text.at, text.size));
    return number == Words::ABSENT ? Category::unknown : static_cast<Category>(number);
}

Scan read_event(Cursor& c, Event& event) {
    Runs::Place* place = &event.runs[0].first(event.kind());  // of the event before
    event.clear();
    ++c.p;
    Stand stand{0, false, 0};
    for (bool first = true;; first = false) {
        if (const Run* run = place->find(c.p)) {
            say_again(*run, c.p, event);
            c.p += run->size;
            stand = {run->key, run->in_args, run->slot};
        } else {
            Run found;
            if (Scan s = read_run(c, event, stand, first, place->is_restless(), found); s != Scan::ok) return s;
            if (found.size) place->keep(found);
        }
        if (stand.key == number_of(Key::closed)) return Scan::ok;
        skip_space(c);
        const uint16_t slot = stand.slot;
        if (Scan s = read_member(c, event, stand.key); s != Scan::ok) return s;
        place = &event.runs[stand.in_args].behind(slot, event.kind());
    }
}

}  // namespace timesink
