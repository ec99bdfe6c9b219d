#include "decode.h"

#include <algorithm>
#include <limits>

#include "crew.h"

namespace timesink {

namespace {

constexpr size_t SLICE_BYTES = size_t{64} << 10;
constexpr size_t MAX_VALUE_BYTES = size_t{64} << 20;      // one event, or one member of the top level
constexpr size_t MAX_PROPERTY_BYTES = size_t{4} << 20;    // one member that is kept
constexpr size_t MAX_PROPERTIES_BYTES = size_t{32} << 20; // all of them

bool same(const Text& text, std::string_view word) { return std::string_view(text.at, text.size) == word; }

}  // namespace

Decoder::Decoder(size_t text_budget_bytes, size_t threads, size_t part_bytes)
    : rows(text_budget_bytes), text_budget_bytes_(text_budget_bytes) {
    if (threads == 0) threads = Crew::usual_threads();
    if (threads > 1) crew_ = std::make_unique<Crew>(*this, threads, part_bytes);
}

Decoder::~Decoder() = default;

bool Decoder::feed(const char* bytes, size_t size) {
    if (crew_) {
        crew_->feed(bytes, size);
        return place_ != Place::dead;
    }
    // In slices that stay in a near cache while they are copied and read; as much again as a value that is not yet whole.
    for (size_t slice; size && place_ != Place::dead; bytes += slice, size -= slice) {
        slice = std::min(size, std::max(SLICE_BYTES, unread()));
        feed_here(bytes, slice);
    }
    return place_ != Place::dead;
}

bool Decoder::feed_here(const char* bytes, size_t size) {
    if (place_ == Place::dead) return false;
    const size_t left = filled_ - position_;
    if (position_) {
        std::memmove(buffer_.data(), buffer_.data() + position_, left);
        consumed_ += static_cast<int64_t>(position_);
        position_ = 0;
    }
    filled_ = left + size;
    if (buffer_.size() < filled_ + PAD) buffer_.resize(filled_ + PAD);
    if (size) std::memcpy(buffer_.data() + left, bytes, size);
    std::memset(buffer_.data() + filled_, 0, PAD);
    run();
    if (place_ != Place::dead && filled_ - position_ > MAX_VALUE_BYTES) stop(Ending::damaged, position_);
    return place_ != Place::dead;
}

void Decoder::run() {
    Cursor c{buffer_.data() + position_, buffer_.data() + filled_};
    while (place_ != Place::dead) {
        const Scan s = step(c);
        position_ = static_cast<size_t>(c.p - buffer_.data());
        if (s == Scan::bad && place_ != Place::dead) stop(Ending::damaged, position_);
        if (s != Scan::ok) return;
    }
}

// One unit of the text: on `more` the cursor stays at its beginning.
Scan Decoder::step(Cursor& c) {
    switch (place_) {
        case Place::start: return step_start(c);
        case Place::members: return step_member(c);
        case Place::events: return step_events(c);
        case Place::resync: return step_resync(c);
        case Place::tail:
            skip_space(c);
            trailing_bytes += c.end > c.p ? c.end - c.p : 0;
            c.p = c.end;
            return Scan::more;
        case Place::dead: break;
    }
    return Scan::bad;
}

Scan Decoder::step_start(Cursor& c) {
    if (consumed_ == 0 && c.p == buffer_.data() && *c.p == '\xef') {  // a byte order mark
        if (c.end - c.p < 3) return Scan::more;
        if (std::memcmp(c.p, "\xef\xbb\xbf", 3) == 0) c.p += 3;
    }
    skip_space(c);
    if (c.p >= c.end) return Scan::more;
    is_list = *c.p == '[';
    if (!is_list && *c.p != '{') {
        stop(Ending::no_json, static_cast<size_t>(c.p - buffer_.data()));
        return Scan::bad;
    }
    ++c.p;
    saw_events = is_list;
    place_ = is_list ? Place::events : Place::members;
    return Scan::ok;
}

// A member of the top-level object, or its end.
Scan Decoder::step_member(Cursor& c) {
    Cursor at = c;
    skip_space(at);
    while (*at.p == ',' || is_space(*at.p)) ++at.p;
    if (*at.p == '}') {
        c.p = at.p + 1;
        place_ = Place::tail;
        return Scan::ok;
    }
    if (at.p >= at.end) return Scan::more;
    if (*at.p != '"') return Scan::bad;
    ++at.p;
    Text key;
    if (Scan s = scan_string(at, key); s != Scan::ok) return s;
    skip_space(at);
    if (*at.p != ':') return at.p >= at.end ? Scan::more : Scan::bad;
    ++at.p;
    skip_space(at);
    if (at.p >= at.end) return Scan::more;
    if (same(key, "traceEvents")) {
        if (*at.p != '[') {
            stop(Ending::no_array, static_cast<size_t>(at.p - buffer_.data()));
            return Scan::bad;
        }
        c.p = at.p + 1;
        saw_events = true;
        place_ = Place::events;
        return Scan::ok;
    }
    if (Scan s = take_property(at, key); s != Scan::ok) return s;
    c = at;
    return Scan::ok;
}

Scan Decoder::take_property(Cursor& c, const Text& key) {
    if (same(key, "baseTimeNanoseconds")) {
        Number base;
        if (Scan s = take_number(c, 0, base); s != Scan::ok) return s;
        has_base = has_base || base.found;
        bad_base = bad_base || base.damaged;
        if (base.found) base_ns = base.value;
        return Scan::ok;
    }
    Text value;
    const char* begin = c.p;
    if (Scan s = take_value(c, value); s != Scan::ok) return s;
    const size_t size = static_cast<size_t>(c.p - begin);
    if (size <= MAX_PROPERTY_BYTES && key.size <= 256 && property_bytes_ + size <= MAX_PROPERTIES_BYTES) {
        property_bytes_ += size + key.size;
        properties.insert_or_assign(std::string(key.at, key.size), std::string(begin, size));
    }
    return Scan::ok;
}

// One element of the array of events, or its end.
Scan Decoder::step_events(Cursor& c) {
    const char* p = c.p;
    while (is_space(*p) || *p == ',') ++p;
    Cursor at{p, c.end};
    if (*p == ']') {
        c.p = p + 1;
        place_ = is_list ? Place::tail : Place::members;
        return Scan::ok;
    }
    c.p = p;
    if (p >= c.end) return Scan::more;
    if (*p != '{') {
        const Scan s = skip_value(at);
        if (s == Scan::more) return s;
        rows.counts.no_object += s == Scan::ok;
        rows.counts.damaged_records += s == Scan::bad;
        if (s == Scan::bad) place_ = Place::resync;
        c = at;
        return Scan::ok;
    }
    const Scan s = read_event(at, event_);
    if (s == Scan::more) return s;
    if (s == Scan::ok) {
        rows.add(event_);
    } else {
        ++rows.counts.damaged_records;
        place_ = Place::resync;
    }
    c = at;
    return Scan::ok;
}

// Behind a damaged record: on to the next "}, {" or "} ]", where the array goes on or ends.
Scan Decoder::step_resync(Cursor& c) {
    for (;;) {
        const auto* brace = static_cast<const char*>(std::memchr(c.p, '}', static_cast<size_t>(c.end - c.p)));
        if (!brace) {
            c.p = c.end;
            return Scan::more;
        }
        c.p = brace;
        Cursor at{brace + 1, c.end};
        skip_space(at);
        const bool comma = *at.p == ',';
        if (comma) {
            ++at.p;
            skip_space(at);
        }
        if (at.p >= at.end) return Scan::more;
        if (*at.p == (comma ? '{' : ']')) {
            c = at;
            place_ = Place::events;
            return Scan::ok;
        }
        c.p = brace + 1;
    }
}

void Decoder::stop(Ending why, size_t at) {
    ending = why;
    ending_byte = consumed_ + static_cast<int64_t>(at);
    place_ = Place::dead;
}

// What the end of the file means where the reading stands.
void Decoder::end_of_text() {
    const size_t at = position_;
    switch (place_) {
        case Place::dead: return;
        case Place::tail: ending = Ending::complete; return;
        case Place::start: return stop(filled_ > position_ ? Ending::no_json : Ending::empty, at);
        case Place::members: case Place::events: case Place::resync: return stop(Ending::truncated, at);
    }
}

void Decoder::shift_times() {
    if (base_ns == 0) return;
    const auto shift = [&](Table& table) {
        for (AnyColumn* column : table.columns) {
            const std::string_view name = column->name;
            if (name != "start_ns" && name != "end_ns") continue;
            int64_t* values = static_cast<Column<int64_t>*>(column)->data();
            for (size_t i = 0; i < column->size(); ++i)
                if (__builtin_add_overflow(values[i], base_ns, &values[i]))
                    values[i] = base_ns > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
        }
    };
    for (Table* table : rows.all()) shift(*table);
    for (Table* table : {static_cast<Table*>(&rows.survey.launches), static_cast<Table*>(&rows.survey.device_times)})
        shift(*table);
}

void Decoder::give_unread(std::string& text) {
    text.assign(buffer_, position_, unread());
    consumed_ += static_cast<int64_t>(position_);
    position_ = filled_ = 0;
}

void Decoder::begin_part(const Decoder& whole) {
    rows.is_part = true;
    rows.cutting = whole.rows.cutting;
    rows.cut = whole.rows.cut;
}

// The text is exchanged for that of the part before, whose memory is used again.
void Decoder::take_part(std::string& text) {
    position_ = 0;
    filled_ = text.size();
    text.append(PAD, '\0');
    buffer_.swap(text);
}

void Decoder::decode_part() {
    place_ = Place::events;
    try {
        run();
    } catch (const std::bad_alloc&) {
        place_ = Place::dead;
    }
}

// Whether what was made of the part is what the whole would have made of it; it then has it.
bool Decoder::join_part(Decoder& whole, std::vector<uint32_t>& codes) {
    if (place_ != Place::events || position_ != filled_ || !whole.rows.join(rows, codes)) return false;
    whole.consumed_ += static_cast<int64_t>(filled_);
    return true;
}

void Decoder::read_part_again(Decoder& whole) {
    rows.forget();
    whole.feed_here(buffer_.data(), filled_);
}

void Decoder::finish() {
    if (crew_) crew_->drain();
    crew_.reset();
    if (buffer_.empty()) buffer_.assign(PAD, '\0');
    end_of_text();
    std::string().swap(buffer_);
    position_ = filled_ = 0;
    place_ = Place::dead;
    shift_times();
    rows.sort();
}

}  // namespace timesink
