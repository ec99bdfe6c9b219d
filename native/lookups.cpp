// What is known of codes, looked up row by row.
#include "sweeps.h"

namespace timesink {

LookedUp looked_up(std::span<const uint32_t> codes, std::span<const int8_t> known) {
    LookedUp made{std::unique_ptr<uint8_t[]>(new uint8_t[codes.size()]), {}};
    uint32_t largest = 0;
    for (const uint32_t code : codes) largest = std::max(largest, code);
    std::vector<int8_t> answers(known.begin(), known.end());
    if (!codes.empty() && largest >= answers.size()) answers.resize(size_t{largest} + 1, -1);
    constexpr int8_t met = -2;
    for (size_t row = 0; row < codes.size(); ++row) {
        int8_t& answer = answers[codes[row]];
        made.yes[row] = answer > 0;
        if (answer == -1) {
            made.unknown.push_back(static_cast<int64_t>(row));
            answer = met;
        }
    }
    return made;
}

}  // namespace timesink
