// The tables a Kineto trace fills, as columns under construction. Times are nanoseconds on the file's own clock until
// `Decoder::finish` adds the base; texts are codes into `Strings`.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "columns.h"
#include "event.h"
#include "texts.h"

namespace timesink {

struct HostOps : Table {
    HostOps() : Table("host_ops") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"};
    Column<uint64_t> external{*this, "external_id"};
    Column<int64_t> sequence{*this, "sequence_number"}, forward_thread{*this, "forward_thread"};
    Column<uint32_t> dims{*this, "input_shapes"}, types{*this, "input_dtypes"}, strides{*this, "input_strides"},
        concrete{*this, "concrete_inputs"}, stack{*this, "call_stack"};
};

struct ApiCalls : Table {
    ApiCalls() : Table("api_calls") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
};

// The kernel that a launch names itself, as ROCm's do: what a captured launch recorded into its graph.
struct NamedLaunches : Table {
    NamedLaunches() : Table("named_launches") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
    Column<int32_t> grid_x{*this, "grid_x"}, grid_y{*this, "grid_y"}, grid_z{*this, "grid_z"},
        block_x{*this, "block_x"}, block_y{*this, "block_y"}, block_z{*this, "block_z"};
};

struct DeviceOps : Table {
    DeviceOps() : Table("device_ops") {}
    Column<int32_t> device{*this, "device"};
    Column<int64_t> context{*this, "context"}, stream{*this, "stream"};
    Column<uint8_t> kind{*this, "kind"};  // 0 kernel, 1 copy, 2 set
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
    Column<uint64_t> external{*this, "external_id"};
    Column<int64_t> graph_id{*this, "graph_id"}, graph_node{*this, "graph_node_id"}, bytes{*this, "bytes"};
    Column<uint32_t> copy_kind{*this, "copy_kind"};
    Column<int32_t> grid_x{*this, "grid_x"}, grid_y{*this, "grid_y"}, grid_z{*this, "grid_z"},
        block_x{*this, "block_x"}, block_y{*this, "block_y"}, block_z{*this, "block_z"}, registers{*this, "registers"};
    Column<int64_t> shared_memory{*this, "shared_memory_bytes"};
};

struct Ranges : Table {
    Ranges() : Table("ranges") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"};
};

struct Frames : Table {
    Frames() : Table("frames") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, frame{*this, "frame_id"},
        parent{*this, "parent_id"};
};

struct Overheads : Table {
    Overheads() : Table("profiler_overhead") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
};

struct Syncs : Table {
    Syncs() : Table("syncs") {}
    Column<int32_t> device{*this, "device"};
    Column<int64_t> context{*this, "context"}, stream{*this, "stream"};
    Column<uint32_t> kind{*this, "kind"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"},
        event{*this, "event_id"}, wait_stream{*this, "wait_stream"}, wait_record{*this, "wait_record"};
};

struct MemoryEvents : Table {
    MemoryEvents() : Table("memory_events") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"}, time{*this, "start_ns"},
        device_type{*this, "device_type"}, device_id{*this, "device_id"}, address{*this, "address"},
        bytes{*this, "bytes"}, allocated{*this, "total_allocated_bytes"}, reserved{*this, "total_reserved_bytes"};
};

struct Threads : Table {
    Threads() : Table("threads") {}
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"};
    Column<uint32_t> name{*this, "name"};
};

// Every event that names a collective, on the host (record_param_comms) or on a device (NCCL kernels of later releases).
struct Comms : Table {
    Comms() : Table("comms") {}
    Column<uint8_t> on_device{*this, "on_device"};
    Column<int64_t> process{*this, "process"}, thread{*this, "thread"}, stream{*this, "stream"};
    Column<int32_t> device{*this, "device"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
    Column<uint64_t> external{*this, "external_id"};
    Column<uint32_t> collective{*this, "collective"}, dtype{*this, "dtype"}, group{*this, "group"},
        description{*this, "description"}, ranks{*this, "ranks"};
    Column<int64_t> in_elements{*this, "in_elements"}, out_elements{*this, "out_elements"},
        group_size{*this, "group_size"}, sequence{*this, "sequence"}, peer{*this, "peer"};
};

// The profiler's own spans and the end of the record window.
struct Spans : Table {
    Spans() : Table("spans") {}
    Column<uint32_t> name{*this, "name"};
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"};
};

// A first look through a file of which a window will be read: when everything was launched and ran, and no more.
struct Launches : Table {
    Launches() : Table("launches") {}
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
};

struct DeviceTimes : Table {
    DeviceTimes() : Table("device_times") {}
    Column<int64_t> start{*this, "start_ns"}, end{*this, "end_ns"}, correlation{*this, "correlation"};
};

struct Bounds {
    int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
    bool empty() const { return first > last; }
    void add(int64_t start, int64_t end) {
        first = std::min(first, start);
        last = std::max(last, end);
    }
};

struct Survey {
    Launches launches;
    DeviceTimes device_times;
    Bounds work, ranges;         // of operators, frames, calls and GPU work; of ranges
    int64_t longest_comm_ns = 0;  // the longest operator that names a collective
    std::set<int32_t> devices;
    std::map<int64_t, int64_t> api_calls, host_ops, range_processes, frames;  // rows by process
};

// The stretches of the file's own clock whose rows are kept; a row that touches its stretch is kept whole.
struct Stretch {
    int64_t start = std::numeric_limits<int64_t>::min(), end = std::numeric_limits<int64_t>::max();
    bool holds(int64_t from, int64_t to) const { return from < end && (to > start || from >= start); }
};

struct Cut {
    Stretch host, device, syncs;
};

constexpr size_t MAX_ROWS = size_t{1} << 31;
constexpr size_t MAX_CATEGORIES = 256;
inline constexpr char NOTHING[PAD] = {};  // the padded empty text; it has code 0 in every file

// Events that are counted and not kept, or kept with a repair; `Decoder::counts` names them.
struct Counts {
    int64_t events = 0, damaged_records = 0, no_object = 0, bad_time = 0, negative_duration = 0, missing_duration = 0,
            flows = 0, device_ranges = 0, begin_end = 0, counters = 0, other_phases = 0, instants = 0, metadata = 0,
            guessed_category = 0, no_category = 0, unknown_category = 0, texts_not_kept = 0, too_many = 0,
            no_device = 0;

    Counts& operator+=(const Counts& other) {
        constexpr size_t FIELDS = sizeof(Counts) / sizeof(int64_t);
        std::array<int64_t, FIELDS> sum, added;
        std::memcpy(sum.data(), this, sizeof *this);
        std::memcpy(added.data(), &other, sizeof other);
        for (size_t i = 0; i < FIELDS; ++i) sum[i] += added[i];
        std::memcpy(this, sum.data(), sizeof *this);
        return *this;
    }
};

// What the rows of the tables are made of; routes one event to its table.
class Rows {
public:
    explicit Rows(size_t text_budget_bytes) : strings(text_budget_bytes), text_budget_bytes_(text_budget_bytes) {
        code({NOTHING, 0, false});
    }
    void add(const Event& event);
    // Adds the rows that a part of the text gave, which is empty afterwards; `codes` are those of its texts here. False
    // where one reading of all the text would have given other rows.
    bool join(Rows& part, std::vector<uint32_t>& codes);
    // As before the first event.
    void forget();
    // Puts the large tables into the order their declarations promise.
    void sort();
    std::vector<Table*> all();

    // Set before the first event: only look the file through, keep only what touches the stretches, be joined later.
    bool surveying = false, cutting = false, is_part = false;
    Cut cut;
    Survey survey;

    Strings strings;
    HostOps host_ops;
    ApiCalls api_calls;
    NamedLaunches named_launches;
    DeviceOps device_ops;
    Ranges ranges;
    Frames frames;
    Overheads overheads;
    Syncs syncs;
    MemoryEvents memory_events;
    Threads threads;
    Comms comms;
    Spans spans;
    Counts counts;
    // How often each unknown category came, by the code of its name; the first few hundred of them.
    std::vector<std::pair<uint32_t, int64_t>> unknown_categories;

private:
    struct Interval {
        int64_t start, end;
    };
    bool interval_of(const Event& event, Interval& interval);
    bool wants(Table& table, Interval at, const Stretch& stretch);
    void look_at(const Event& event, Interval at, Category category);
    uint32_t code(const Text& text);
    void text(Column<uint32_t>& column, const Event& event, Str field);
    void push_thread(Column<int64_t>& column, const Event& event);
    bool take_codes(Strings& texts, std::vector<uint32_t>& codes);
    void clear();
    void add_complete(const Event& event);
    uint32_t name_of(const Event& event);
    template <class HostTable>
    void add_host(HostTable& table, const Event& event, Interval at, uint32_t name);
    void add_host_op(const Event& event, Interval at);
    void add_named_launch(const Event& event, Interval at);
    void add_device_op(const Event& event, Interval at, Category category);
    void add_comm(const Event& event, Interval at, bool on_device);
    void add_sync(const Event& event, Interval at);
    void add_instant(const Event& event);
    void add_metadata(const Event& event);
    void count_category(uint32_t category, int64_t times);
    Category guessed(const Event& event);
    bool is_range_name(uint32_t name_code);

    // Of a part: where the number of a thread is made of the code of its name.
    std::vector<std::pair<Column<int64_t>*, size_t>> worded_threads_;
    const size_t text_budget_bytes_;
    std::vector<uint8_t> range_names_;  // per text code: 0 not looked at, 1 no, 2 yes
};

}  // namespace timesink
