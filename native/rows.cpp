// Where each event goes: the categories of Kineto to the tables of timesink.
#include <limits>

#include "tables.h"

namespace timesink {

namespace {

std::string_view raw(const Event& event, Str field) {
    return event.has(field) ? std::string_view(event[field].at, event[field].size) : std::string_view{};
}

void push(Column<int64_t>& column, const Event& event, Int field) { column.push_if(event.has(field), event[field]); }

void push32(Column<int32_t>& column, bool there, int64_t value) {
    using Limits = std::numeric_limits<int32_t>;
    const bool fits = there && value >= Limits::min() && value <= Limits::max();
    column.push_if(fits, fits ? static_cast<int32_t>(value) : 0);
}

template <class OpTable>
void push_shape(OpTable& t, const Event& event) {
    push32(t.grid_x, event.has_grid, event.grid[0]);
    push32(t.grid_y, event.has_grid, event.grid[1]);
    push32(t.grid_z, event.has_grid, event.grid[2]);
    push32(t.block_x, event.has_block, event.block[0]);
    push32(t.block_y, event.has_block, event.block[1]);
    push32(t.block_z, event.has_block, event.block[2]);
}

// The number behind "stream " in a thread id such as "stream 7".
bool stream_in_thread(const Event& event, int64_t& stream) {
    constexpr std::string_view HEAD = "stream ";
    const std::string_view text = raw(event, Str::tid);
    if (!text.starts_with(HEAD) || text.size() > HEAD.size() + 18) return false;
    int64_t value = 0;
    for (const char c : text.substr(HEAD.size())) {
        if (!is_digit(c)) return false;
        value = value * 10 + (c - '0');
    }
    stream = value;
    return text.size() > HEAD.size();
}

int64_t stated_device(const Event& event) {
    return event.has(Int::device) ? event[Int::device] : event.has(Int::pid) ? event[Int::pid] : 0;
}

bool fits_device(int64_t device) { return device >= 0 && device <= std::numeric_limits<int32_t>::max(); }

int32_t device_of(const Event& event) {
    const int64_t device = stated_device(event);
    return fits_device(device) ? static_cast<int32_t>(device) : 0;
}

}  // namespace

void Rows::add(const Event& event) {
    if (static_cast<size_t>(++counts.events) > MAX_ROWS) {
        ++counts.too_many;
        return;
    }
    switch (event.phase) {
        case 'X': return add_complete(event);
        case 's': case 't': case 'f': ++counts.flows; return;
        case 'i': case 'I': case 'n': return add_instant(event);
        case 'M': return add_metadata(event);
        case 'B': case 'E': ++counts.begin_end; return;
        case 'C': ++counts.counters; return;
        default: ++counts.other_phases; return;
    }
}

bool Rows::interval_of(const Event& event, Interval& interval) {
    if (!event.has(Int::ts) || event.damaged_time) {
        ++counts.bad_time;
        return false;
    }
    const int64_t duration = event.has(Int::dur) ? event[Int::dur] : 0;
    counts.missing_duration += !event.has(Int::dur);
    if (duration < 0) {
        ++counts.negative_duration;
        return false;
    }
    interval.start = event[Int::ts];
    if (__builtin_add_overflow(interval.start, duration, &interval.end)) {
        ++counts.bad_time;
        return false;
    }
    return true;
}

// Whether a row of the table is kept; counts it either way.
bool Rows::wants(Table& table, Interval at, const Stretch& stretch) {
    ++table.seen;
    return !cutting || stretch.holds(at.start, at.end);
}

// What a first look remembers of an event.
void Rows::look_at(const Event& event, Interval at, Category category) {
    const int64_t process = event.has(Int::pid) ? event[Int::pid] : 0;
    const auto time = [&](auto& table) {
        survey.work.add(at.start, at.end);
        table.start.push(at.start);
        table.end.push(at.end);
        push(table.correlation, event, Int::correlation);
    };
    switch (category) {
        case Category::kernel: case Category::copy: case Category::set:
            survey.devices.insert(device_of(event));
            return time(survey.device_times);
        case Category::api: ++survey.api_calls[process]; return time(survey.launches);
        case Category::frame: ++survey.frames[process]; return survey.work.add(at.start, at.end);
        case Category::host_op:
            if (is_range_name(name_of(event))) break;
            if (event.has(Str::collective)) survey.longest_comm_ns = std::max(survey.longest_comm_ns, at.end - at.start);
            ++survey.host_ops[process];
            return survey.work.add(at.start, at.end);
        case Category::range: break;
        default: return;
    }
    ++survey.range_processes[process];
    survey.ranges.add(at.start, at.end);
}

uint32_t Rows::code(const Text& value) {
    const uint32_t found = strings.code(value);
    if (found != Strings::FULL) return found;
    ++counts.texts_not_kept;
    return 0;
}

void Rows::text(Column<uint32_t>& column, const Event& event, Str field) {
    if (!event.has(field)) return column.push_if(false, 0);
    const uint32_t found = strings.code(event[field]);
    counts.texts_not_kept += found == Strings::FULL;
    column.push_if(found != Strings::FULL, found);
}

// A thread that the file names by a word gets a negative number of its own.
void Rows::push_thread(Column<int64_t>& column, const Event& event) {
    if (event.has(Int::tid) || !event.has(Str::tid)) return column.push(event.has(Int::tid) ? event[Int::tid] : 0);
    if (is_part) worded_threads_.emplace_back(&column, column.size());
    column.push(-1 - static_cast<int64_t>(code(event[Str::tid])));
}

uint32_t Rows::name_of(const Event& event) {
    return event.has(Str::name) ? code(event[Str::name]) : 0;
}

template <class HostTable>
void Rows::add_host(HostTable& table, const Event& event, Interval at, uint32_t name) {
    table.process.push(event.has(Int::pid) ? event[Int::pid] : 0);
    push_thread(table.thread, event);
    table.name.push(name);
    table.start.push(at.start);
    table.end.push(at.end);
}

void Rows::add_complete(const Event& event) {
    Category category = event.category;
    if (category == Category::none) category = guessed(event);
    if (category == Category::flow || category == Category::device_range || category == Category::unknown ||
        category == Category::none) {
        counts.flows += category == Category::flow;
        counts.device_ranges += category == Category::device_range;
        counts.no_category += category == Category::none;
        counts.unknown_category += category == Category::unknown;
        if (category == Category::unknown) count_category(code(event[Str::category]), 1);
        return;
    }
    Interval at;
    if (!interval_of(event, at)) return;
    if (surveying) return look_at(event, at, category);
    switch (category) {
        case Category::kernel: case Category::copy: case Category::set:
            return wants(device_ops, at, cut.device) ? add_device_op(event, at, category) : void();
        case Category::host_op: return add_host_op(event, at);
        case Category::sync: return wants(syncs, at, cut.syncs) ? add_sync(event, at) : void();
        case Category::api:
            if (!wants(api_calls, at, cut.host)) return;
            add_host(api_calls, event, at, name_of(event));
            push(api_calls.correlation, event, Int::correlation);
            return event.has(Str::kernel) ? add_named_launch(event, at) : void();
        case Category::range: return wants(ranges, at, cut.host) ? add_host(ranges, event, at, name_of(event)) : void();
        case Category::frame:
            if (!wants(frames, at, cut.host)) return;
            add_host(frames, event, at, name_of(event));
            push(frames.frame, event, Int::python_id);
            return push(frames.parent, event, Int::python_parent);
        case Category::overhead:
            if (!wants(overheads, at, cut.host)) return;
            add_host(overheads, event, at, name_of(event));
            return push(overheads.correlation, event, Int::correlation);
        case Category::span:
            spans.name.push(name_of(event));
            spans.start.push(at.start);
            return spans.end.push(at.end);
        default: ++counts.instants; return;
    }
}

// Releases before 2022 wrote profiler ranges as operators; these names are never operators.
bool Rows::is_range_name(uint32_t name) {
    if (name >= range_names_.size()) range_names_.resize(strings.size(), 0);
    uint8_t& known = range_names_[name];
    if (known == 0) {
        const std::string_view text = strings[name];
        known = text.starts_with("ProfilerStep#") || text.starts_with("Optimizer.step#") ||
                        text.starts_with("Optimizer.zero_grad#") || text.starts_with("enumerate(DataLoader)#")
                    ? 2
                    : 1;
    }
    return known == 2;
}

void Rows::add_host_op(const Event& event, Interval at) {
    const uint32_t name = name_of(event);
    if (is_range_name(name)) return wants(ranges, at, cut.host) ? add_host(ranges, event, at, name) : void();
    if (!wants(host_ops, at, cut.host)) return;
    add_host(host_ops, event, at, name);
    host_ops.external.push_if(event.has_external, event.external);
    push(host_ops.sequence, event, Int::sequence);
    push(host_ops.forward_thread, event, Int::forward_thread);
    text(host_ops.dims, event, Str::dims);
    text(host_ops.types, event, Str::types);
    text(host_ops.strides, event, Str::strides);
    text(host_ops.concrete, event, Str::concrete);
    text(host_ops.stack, event, Str::stack);
    if (event.has(Str::collective)) add_comm(event, at, false);
}

void Rows::add_named_launch(const Event& event, Interval at) {
    NamedLaunches& t = named_launches;
    t.process.push(event.has(Int::pid) ? event[Int::pid] : 0);
    push_thread(t.thread, event);
    text(t.name, event, Str::kernel);
    t.start.push(at.start);
    t.end.push(at.end);
    push(t.correlation, event, Int::correlation);
    push_shape(t, event);
}

void Rows::add_device_op(const Event& event, Interval at, Category category) {
    DeviceOps& t = device_ops;
    counts.no_device += !event.has(Int::device) || !fits_device(stated_device(event));
    t.device.push(device_of(event));
    push(t.context, event, Int::context);
    int64_t stream = -1;
    if (event.has(Int::stream)) stream = event[Int::stream];
    else if (!stream_in_thread(event, stream) && event.has(Int::tid)) stream = event[Int::tid];
    t.stream.push(stream);
    t.kind.push(category == Category::kernel ? 0 : category == Category::copy ? 1 : 2);
    t.name.push(name_of(event));
    t.start.push(at.start);
    t.end.push(at.end);
    push(t.correlation, event, Int::correlation);
    t.external.push_if(event.has_external, event.external);
    // CUPTI writes graph 0, node 0 for what no graph launched.
    const bool graph = event.has(Int::graph_id) && event[Int::graph_id] != 0;
    t.graph_id.push_if(graph, event[Int::graph_id]);
    t.graph_node.push_if(graph && event.has(Int::graph_node), event[Int::graph_node]);
    push(t.bytes, event, Int::bytes);
    text(t.copy_kind, event, Str::copy_kind);
    push_shape(t, event);
    push32(t.registers, event.has(Int::registers), event[Int::registers]);
    push(t.shared_memory, event, Int::shared_memory);
    if (event.has(Str::collective)) add_comm(event, at, true);
}

void Rows::add_comm(const Event& event, Interval at, bool on_device) {
    comms.on_device.push(on_device);
    comms.process.push(event.has(Int::pid) ? event[Int::pid] : 0);
    push_thread(comms.thread, event);
    push(comms.stream, event, Int::stream);
    push32(comms.device, event.has(Int::device), event[Int::device]);
    comms.start.push(at.start);
    comms.end.push(at.end);
    push(comms.correlation, event, Int::correlation);
    comms.external.push_if(event.has_external, event.external);
    text(comms.collective, event, Str::collective);
    text(comms.dtype, event, Str::dtype);
    text(comms.group, event, Str::group_name);
    text(comms.description, event, Str::group_description);
    text(comms.ranks, event, Str::group_ranks);
    push(comms.in_elements, event, Int::in_elements);
    push(comms.out_elements, event, Int::out_elements);
    push(comms.group_size, event, Int::group_size);
    push(comms.sequence, event, Int::group_sequence);
    push(comms.peer, event, Int::peer);
}

void Rows::add_sync(const Event& event, Interval at) {
    push32(syncs.device, event.has(Int::device), event[Int::device]);
    push(syncs.context, event, Int::context);
    push(syncs.stream, event, Int::stream);
    text(syncs.kind, event, event.has(Str::sync_kind) ? Str::sync_kind : Str::name);
    syncs.start.push(at.start);
    syncs.end.push(at.end);
    push(syncs.correlation, event, Int::correlation);
    push(syncs.event, event, Int::wait_event);
    push(syncs.wait_stream, event, Int::wait_stream);
    push(syncs.wait_record, event, Int::wait_record);
}

void Rows::add_instant(const Event& event) {
    const std::string_view name = raw(event, Str::name);
    if (name == "[memory]" && event.has(Int::bytes)) {
        if (!event.has(Int::ts) || event.damaged_time) {
            ++counts.bad_time;
            return;
        }
        if (surveying || !wants(memory_events, {event[Int::ts], event[Int::ts]}, cut.host)) return;
        MemoryEvents& t = memory_events;
        t.process.push(event.has(Int::pid) ? event[Int::pid] : 0);
        push_thread(t.thread, event);
        t.time.push(event[Int::ts]);
        push(t.device_type, event, Int::device_type);
        push(t.device_id, event, Int::device_id);
        push(t.address, event, Int::address);
        t.bytes.push(event[Int::bytes]);
        push(t.allocated, event, Int::total_allocated);
        return push(t.reserved, event, Int::total_reserved);
    }
    if (name == "Record Window End" && event.has(Int::ts)) {
        spans.name.push(code(event[Str::name]));
        spans.start.push(event[Int::ts]);
        return spans.end.push(event[Int::ts]);
    }
    counts.instants += !name.starts_with("Iteration Start");
}

void Rows::add_metadata(const Event& event) {
    ++counts.metadata;
    if (raw(event, Str::name) != "thread_name" || !event.has(Str::own_name) || !event.has(Int::pid)) return;
    threads.process.push(event[Int::pid]);
    push_thread(threads.thread, event);
    text(threads.name, event, Str::own_name);
}

void Rows::count_category(uint32_t category, int64_t times) {
    for (auto& [name, count] : unknown_categories)
        if (name == category) {
            count += times;
            return;
        }
    if (unknown_categories.size() < MAX_CATEGORIES) unknown_categories.emplace_back(category, times);
}

// What an event without a category can only be, by what it carries.
Category Rows::guessed(const Event& event) {
    const std::string_view name = raw(event, Str::name);
    Category found = Category::none;
    if (event.has(Int::device) && event.has(Int::stream))
        found = name.starts_with("Memcpy") ? Category::copy
                : name.starts_with("Memset") ? Category::set
                : event.has_grid ? Category::kernel : Category::none;
    else if (event.has(Int::correlation) && (name.starts_with("cuda") || name.starts_with("hip") ||
                                             (name.starts_with("cu") && name.size() > 2 && name[2] >= 'A' && name[2] <= 'Z')))
        found = Category::api;
    else if (name.starts_with("ProfilerStep#"))
        found = Category::range;
    else if (event.has_external)
        found = Category::host_op;
    counts.guessed_category += found != Category::none;
    return found;
}

}  // namespace timesink
