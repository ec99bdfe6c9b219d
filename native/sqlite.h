// The rows of one table of a SQLite file, from its pages (sqlite.org/fileformat2.html) straight into columns. No SQL runs,
// and only what is plain is read: anything else, be it damaged or merely unusual, is `Irregular`, and SQLite must be asked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "columns.h"

namespace timesink {

struct Irregular : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A wanted column: its place among those that a record holds, and what it becomes. Of a real, what is no number is null;
// a text that is null is empty, and one is cut at its first zero, or after so many characters.
struct SqliteColumn {
    std::string name;
    size_t place;
    char format;  // of Arrow: l, i, g or U
    bool is_row_id;
    std::unique_ptr<AnyColumn> values;  // of texts: where each ends
    Bytes texts;
    size_t text_bytes = 0;
};

class SqliteTable {
public:
    // `columns` stand in the order of their places.
    SqliteTable(const std::filesystem::path& file, uint32_t root_page, std::vector<SqliteColumn> columns,
                size_t text_characters);
    // Decodes the next so many pages of rows; false once all are read.
    bool read(size_t pages);

    std::vector<SqliteColumn> columns;
    Table table{"sqlite"};

private:
    void open();
    void find_leaves(uint32_t page, unsigned levels_below, unsigned depth);
    unsigned levels_below(uint32_t page);
    const uint8_t* load(uint32_t first, size_t count);
    void visit(uint32_t page);
    size_t header_of(uint32_t page) const { return page == 1 ? 100 : 0; }
    void decode_leaf(const uint8_t* page, size_t header);
    const uint8_t* whole_payload(const uint8_t* local, size_t local_bytes, size_t bytes);
    void decode_record(const uint8_t* at, const uint8_t* end, int64_t row_id);
    void put(SqliteColumn& column, uint64_t type, const uint8_t* at, int64_t row_id);
    void put_text(SqliteColumn& column, uint64_t type, const uint8_t* at);

    std::ifstream file_;
    size_t page_bytes_ = 0, usable_ = 0, pages_ = 0, text_characters_;
    bool is_utf8_ = true;
    std::vector<uint32_t> leaves_;
    size_t next_leaf_ = 0;
    std::vector<bool> visited_;
    std::vector<uint8_t> buffer_, overflow_page_, payload_;
};

}  // namespace timesink
