// Whether a text can match a regular expression at all.
#pragma once

#include <string>
#include <string_view>

namespace timesink {

// False only where the text holds none of the words of which every match of the expression holds one.
bool may_match(std::string_view expression, std::string_view text);

}  // namespace timesink
