// libFuzzer target: a table of any database file, whose root and columns the first bytes choose.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "../../native/sqlite.h"

using namespace timesink;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const std::string path = "/dev/shm/fuzzed-" + std::to_string(getpid());
    if (size < 2) return 0;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    std::fwrite(data + 2, 1, size - 2, file);
    std::fclose(file);
    std::vector<SqliteColumn> columns;
    size_t place = 0;
    for (const char format : {'l', 'i', 'g', 'U'}) {
        if (!(data[1] & 1 << place)) columns.push_back({"column", place, format, bool(data[1] & 16 << place), {}, {}});
        ++place;
    }
    try {
        SqliteTable table(path, data[0], std::move(columns), 64);
        while (table.read(2)) {}
    } catch (const Irregular&) {
    }
    return 0;
}
