// A Kineto / Chrome trace as a stream of text: windows of any size in, tables out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "scan.h"
#include "tables.h"

namespace timesink {

class Crew;

class Decoder {
public:
    // What ended the reading. `complete` is the only one that lost nothing.
    enum class Ending : uint8_t { complete, truncated, damaged, no_json, no_array, empty };

    // The tables are the same with any number of threads; 0: as many as is usual. `part_bytes`: the least text that one thread is given at once.
    explicit Decoder(size_t text_budget_bytes, size_t threads = 1, size_t part_bytes = size_t{1} << 20);
    ~Decoder();
    // The next bytes of the file; false once nothing more can come of it.
    bool feed(const char* bytes, size_t size);
    // All bytes were fed: adds the base time and sorts the tables.
    void finish();

    Rows rows;
    Ending ending = Ending::empty;
    int64_t ending_byte = 0;   // of the uncompressed text: where the first thing that is lost begins
    bool saw_events = false;   // there was an array of events
    bool is_list = false;      // the file is the array itself
    int64_t base_ns = 0;
    bool has_base = false, bad_base = false;
    int64_t trailing_bytes = 0;
    std::map<std::string, std::string> properties;  // other top-level members, JSON text each

private:
    friend class Crew;
    enum class Place : uint8_t { start, members, events, resync, tail, dead };

    bool feed_here(const char* bytes, size_t size);
    bool is_among_events() const { return place_ == Place::events && !rows.surveying; }
    size_t unread() const { return filled_ - position_; }
    void give_unread(std::string& text);
    // As a part of another decoder's text, from what seems to be the beginning of an event.
    void begin_part(const Decoder& whole);
    void take_part(std::string& text);
    void decode_part();
    bool join_part(Decoder& whole, std::vector<uint32_t>& codes);
    void read_part_again(Decoder& whole);

    void run();
    Scan step(Cursor& c);
    Scan step_start(Cursor& c);
    Scan step_member(Cursor& c);
    Scan step_events(Cursor& c);
    Scan step_resync(Cursor& c);
    Scan take_property(Cursor& c, const Text& key);
    void stop(Ending why, size_t at);
    void end_of_text();
    void shift_times();

    const size_t text_budget_bytes_;
    std::unique_ptr<Crew> crew_;
    std::string buffer_;      // text not yet consumed, then PAD zeros
    size_t position_ = 0;     // of the cursor in it
    size_t filled_ = 0;       // bytes of text in it
    int64_t consumed_ = 0;    // bytes of text that left it
    Place place_ = Place::start;
    size_t property_bytes_ = 0;
    Event event_;
};

}  // namespace timesink
