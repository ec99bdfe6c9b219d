#include "sqlite.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "texts.h"

namespace timesink {

namespace {

constexpr size_t FILE_HEADER_BYTES = 100, PAGES_AT_ONCE = 64;
constexpr unsigned MOST_LEVELS = 20;  // as SQLite itself allows
constexpr uint8_t LEAF = 0x0d, INTERIOR = 0x05;
constexpr uint64_t REAL = 7, ZERO = 8, ONE = 9, FIRST_BYTES = 12;
constexpr size_t INTEGER_BYTES[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};

uint32_t big16(const uint8_t* at) { return static_cast<uint32_t>(at[0] << 8 | at[1]); }
uint32_t big32(const uint8_t* at) { return big16(at) << 16 | big16(at + 2); }

void require(bool sound, const char* what) {
    if (!sound) throw Irregular(what);
}

uint64_t varint(const uint8_t*& at, const uint8_t* end) {
    uint64_t value = 0;
    for (int i = 0; i < 9; ++i) {
        require(at < end, "a number is cut off");
        const uint8_t byte = *at++;
        if (i == 8) return value << 8 | byte;
        value = value << 7 | (byte & 0x7f);
        if (byte < 0x80) return value;
    }
    return value;
}

// A big-endian two's complement number of up to eight bytes.
int64_t integer(const uint8_t* at, size_t bytes) {
    uint64_t value = bytes && (*at & 0x80) ? ~uint64_t{0} : 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | at[i];
    return static_cast<int64_t>(value);
}

uint64_t bytes_of(uint64_t type) {
    if (type >= FIRST_BYTES) return (type - FIRST_BYTES) / 2;
    require(type <= ONE, "a reserved type of value");
    return INTEGER_BYTES[type];
}

}  // namespace

SqliteTable::SqliteTable(const std::filesystem::path& file, uint32_t root_page, std::vector<SqliteColumn> wanted,
                         size_t text_characters)
    : columns(std::move(wanted)), text_characters_(text_characters) {
    for (SqliteColumn& column : columns) {
        const char* name = column.name.c_str();
        switch (column.format) {
            case 'i': column.values = std::make_unique<Column<int32_t>>(table, name); break;
            case 'g': column.values = std::make_unique<Column<double>>(table, name); break;
            default: column.values = std::make_unique<Column<int64_t>>(table, name); break;
        }
    }
    file_.rdbuf()->pubsetbuf(nullptr, 0);
    file_.open(file, std::ios::binary);
    open();
    find_leaves(root_page, levels_below(root_page), 0);
}

void SqliteTable::open() {
    uint8_t head[FILE_HEADER_BYTES];
    require(bool(file_.read(reinterpret_cast<char*>(head), sizeof head)), "no header");
    page_bytes_ = big16(head + 16) == 1 ? 65536 : big16(head + 16);
    require(page_bytes_ >= 512 && std::has_single_bit(page_bytes_), "no size of pages");
    usable_ = page_bytes_ - head[20];
    require(usable_ >= 480, "pages of no use");
    is_utf8_ = big32(head + 56) <= 1;
    file_.seekg(0, std::ios::end);
    pages_ = static_cast<size_t>(file_.tellg()) / page_bytes_;
    visited_.resize(pages_ + 1);
    buffer_.resize(PAGES_AT_ONCE * page_bytes_);
    overflow_page_.resize(page_bytes_);
}

// Every page once: pages that refer to one another would be read without end.
void SqliteTable::visit(uint32_t page) {
    require(page >= 1 && page <= pages_ && !visited_[page], "a page that is not there, or met twice");
    visited_[page] = true;
}

const uint8_t* SqliteTable::load(uint32_t first, size_t count) {
    file_.seekg(static_cast<std::streamoff>((first - 1) * page_bytes_));
    require(bool(file_.read(reinterpret_cast<char*>(buffer_.data()), static_cast<std::streamsize>(count * page_bytes_))),
            "a page that cannot be read");
    return buffer_.data();
}

// All rows lie equally deep.
unsigned SqliteTable::levels_below(uint32_t page) {
    for (unsigned levels = 0; levels < MOST_LEVELS; ++levels) {
        require(page >= 1 && page <= pages_, "a page that is not there");
        const uint8_t* at = load(page, 1);
        const uint8_t* head = at + header_of(page);
        if (*head == LEAF) return levels;
        require(*head == INTERIOR, "a page of another kind");
        const size_t cell = big16(head + 3) ? big16(head + 12) : head + 8 - at;
        require(cell + 4 <= page_bytes_, "a cell outside of its page");
        page = big32(at + cell);
    }
    throw Irregular("too many levels");
}

void SqliteTable::find_leaves(uint32_t page, unsigned levels_below, unsigned depth) {
    visit(page);
    if (levels_below == 0) {
        leaves_.push_back(page);
        return;
    }
    const uint8_t* at = load(page, 1);
    const uint8_t* head = at + header_of(page);
    require(*head == INTERIOR, "a page of another kind");
    const size_t cells = big16(head + 3);
    require(static_cast<size_t>(head + 12 - at) + 2 * cells <= usable_, "more cells than the page holds");
    std::vector<uint32_t> children;
    for (size_t i = 0; i < cells; ++i) {
        const size_t cell = big16(head + 12 + 2 * i);
        require(cell + 4 <= usable_, "a cell outside of its page");
        children.push_back(big32(at + cell));
    }
    children.push_back(big32(head + 8));
    for (const uint32_t child : children) find_leaves(child, levels_below - 1, depth + 1);
}

bool SqliteTable::read(size_t pages) {
    const size_t stop = std::min(leaves_.size(), next_leaf_ + pages);
    while (next_leaf_ < stop) {
        const uint32_t first = leaves_[next_leaf_];
        size_t run = 1;
        while (run < PAGES_AT_ONCE && next_leaf_ + run < stop && leaves_[next_leaf_ + run] == first + run) ++run;
        const uint8_t* at = load(first, run);
        for (size_t i = 0; i < run; ++i) decode_leaf(at + i * page_bytes_, header_of(first + static_cast<uint32_t>(i)));
        next_leaf_ += run;
    }
    return next_leaf_ < leaves_.size();
}

void SqliteTable::decode_leaf(const uint8_t* page, size_t header) {
    const uint8_t* head = page + header;
    require(*head == LEAF, "a page of another kind");
    const size_t cells = big16(head + 3), first = header + 8 + 2 * cells;
    require(first <= usable_, "more cells than the page holds");
    const uint8_t* end = page + usable_;
    for (size_t i = 0; i < cells; ++i) {
        const size_t cell = big16(head + 8 + 2 * i);
        require(cell >= first && cell < usable_, "a cell outside of its page");
        const uint8_t* at = page + cell;
        const uint64_t bytes = varint(at, end);
        const auto row_id = static_cast<int64_t>(varint(at, end));
        if (bytes <= usable_ - 35) {
            require(bytes <= static_cast<size_t>(end - at), "a row outside of its page");
            decode_record(at, at + bytes, row_id);
            continue;
        }
        require(bytes <= pages_ * page_bytes_, "a row longer than the file");
        const size_t least = (usable_ - 12) * 32 / 255 - 23, usual = least + (bytes - least) % (usable_ - 4);
        const size_t local = usual <= usable_ - 35 ? usual : least;
        require(local + 4 <= static_cast<size_t>(end - at), "a row outside of its page");
        const uint8_t* whole = whole_payload(at, local, bytes);
        decode_record(whole, whole + bytes, row_id);
    }
}

// A row that goes on in pages of its own.
const uint8_t* SqliteTable::whole_payload(const uint8_t* local, size_t local_bytes, size_t bytes) {
    payload_.assign(local, local + local_bytes);
    uint32_t next = big32(local + local_bytes);
    while (payload_.size() < bytes) {
        visit(next);
        file_.seekg(static_cast<std::streamoff>((next - 1) * page_bytes_));
        require(bool(file_.read(reinterpret_cast<char*>(overflow_page_.data()), static_cast<std::streamsize>(page_bytes_))),
                "a page that cannot be read");
        const size_t more = std::min(usable_ - 4, bytes - payload_.size());
        payload_.insert(payload_.end(), overflow_page_.begin() + 4, overflow_page_.begin() + 4 + more);
        next = big32(overflow_page_.data());
    }
    return payload_.data();
}

void SqliteTable::decode_record(const uint8_t* at, const uint8_t* end, int64_t row_id) {
    const uint8_t* type_at = at;
    const uint64_t header = varint(type_at, end);
    require(header <= static_cast<size_t>(end - at), "a header longer than its row");
    const uint8_t *types_end = at + header, *value = types_end;
    auto wanted = columns.begin();
    for (size_t place = 0; type_at < types_end; ++place) {
        const uint64_t type = *type_at < 0x80 ? *type_at++ : varint(type_at, types_end);
        const uint64_t bytes = bytes_of(type);
        require(bytes <= static_cast<size_t>(end - value), "a value outside of its row");
        if (wanted != columns.end() && place == wanted->place) put(*wanted++, type, value, row_id);
        value += bytes;
    }
    require(value == end, "a row longer than its values");
    for (; wanted != columns.end(); ++wanted) put(*wanted, 0, value, row_id);  // the column is younger than the row
}

void SqliteTable::put(SqliteColumn& column, uint64_t type, const uint8_t* at, int64_t row_id) {
    if (column.format == 'U') return put_text(column, type, at);
    bool is_valid = type != 0;
    int64_t number = type == ZERO || type == ONE ? static_cast<int64_t>(type - ZERO)
                     : type < REAL               ? integer(at, INTEGER_BYTES[type])
                                                 : 0;
    if (!is_valid && column.is_row_id) {
        number = row_id;
        is_valid = true;
    }
    if (column.format == 'g') {
        double real = static_cast<double>(number);
        if (type == REAL) real = std::bit_cast<double>(integer(at, 8));
        return static_cast<Column<double>&>(*column.values).push_if(is_valid && type < FIRST_BYTES && !std::isnan(real), real);
    }
    require(type != REAL && type < FIRST_BYTES, "a value that is no integer");
    if (column.format == 'l') return static_cast<Column<int64_t>&>(*column.values).push_if(is_valid, number);
    require(number >= INT32_MIN && number <= INT32_MAX, "a number of more than 32 bits");
    static_cast<Column<int32_t>&>(*column.values).push_if(is_valid, static_cast<int32_t>(number));
}

void SqliteTable::put_text(SqliteColumn& column, uint64_t type, const uint8_t* at) {
    require(type == 0 || (type >= FIRST_BYTES && type % 2 && is_utf8_), "a value that is no text");
    size_t bytes = 0;
    if (type) {
        const char *text = reinterpret_cast<const char*>(at), *end = text + bytes_of(type), *p = text;
        for (size_t characters = 0; p < end && *p && characters < text_characters_; ++characters) {
            const size_t length = utf8_length(p, end);
            require(length, "a text that is no UTF-8");
            p += length;
        }
        bytes = static_cast<size_t>(p - text);
    }
    column.texts.reserve(column.text_bytes + bytes);
    if (bytes) std::memcpy(column.texts.data() + column.text_bytes, at, bytes);
    column.text_bytes += bytes;
    static_cast<Column<int64_t>&>(*column.values).push(static_cast<int64_t>(column.text_bytes));
}

}  // namespace timesink
