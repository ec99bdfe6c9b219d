// Whether a text can match a regular expression at all: by words of which every match holds one, where the expression
// shows such words plainly. What is beyond this reader of expressions may always match.
#include "words.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace timesink {
namespace {

using Words = std::vector<std::string>;

constexpr size_t least = 3;  // characters of a word that tells texts apart
constexpr int deepest = 60;  // groups in groups

bool is_one_of(char letter, std::string_view some) { return some.find(letter) != some.npos; }

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char letter) { return static_cast<signed char>(letter) >= 0; });
}

std::string lowered(std::string_view text) {
    std::string lower(text);
    for (char& letter : lower)
        if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
    return lower;
}

size_t told_by(const Words& words) {
    size_t shortest = words.empty() ? 0 : words[0].size();
    for (const std::string& word : words) shortest = std::min(shortest, word.size());
    return shortest;
}

class Expression {
   public:
    explicit Expression(std::string_view text) : text_(text) {}

    // The words of which a match holds one; none where that is not plain to see.
    Words words() {
        Words found = alternatives(0);
        return readable_ && at_ == text_.size() && is_ascii(text_) ? found : Words{};
    }

   private:
    bool ended() const { return !readable_ || at_ >= text_.size(); }
    char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool skip(std::string_view some) {
        const bool stands = text_.substr(at_, some.size()) == some;
        at_ += stands ? some.size() : 0;
        return stands;
    }

    Words alternatives(int depth) {
        Words every;
        bool known = true;
        do {
            Words words = sequence(depth);
            known = known && told_by(words) >= least;
            every.insert(every.end(), words.begin(), words.end());
        } while (readable_ && skip("|"));
        return known ? every : Words{};
    }

    // The words of that piece of one alternative which tells most.
    Words sequence(int depth) {
        Words best;
        std::string run;
        const auto take = [&best](Words words) {
            if (told_by(words) > told_by(best)) best = std::move(words);
        };
        while (!ended() && here() != '|' && here() != ')') {
            Words inner;
            const char letter = piece(inner, depth);
            const size_t end = at_;
            const bool optional = times();
            if (letter && !optional) run += letter;
            if (letter && at_ == end) continue;
            if (!optional) take(std::move(inner));
            take({run});
            run.clear();
        }
        take({run});
        return best;
    }

    // One letter, or 0 for what stands for others, with the words of a group.
    char piece(Words& inner, int depth) {
        const char first = text_[at_++];
        if (first == '(') return group(inner, depth);
        if (first == '[') return choice();
        if (first == '\\') {
            if (ended()) return unreadable();
            const char escaped = text_[at_++];
            if (is_one_of(escaped, "dDwWsSbBAZ")) return 0;
            const bool plain = is_one_of(escaped, R"(\.+*?()|[]{}^$#&-~/:,"'= !@%;)");
            return plain ? escaped : unreadable();
        }
        if (is_one_of(first, ".^$")) return 0;
        return is_one_of(first, "?*+{") ? unreadable() : first;
    }

    char group(Words& inner, int depth) {
        bool apart = false;
        if (here() == '?' && !skip("?:")) {
            if (skip("?P<")) {
                while (!ended() && here() != '>') ++at_;
                if (!skip(">")) return unreadable();
            } else {
                apart = skip("?=") || skip("?!") || skip("?<=") || skip("?<!") || skip("?i:");
                if (!apart) return unreadable();
            }
        }
        if (depth == deepest) return unreadable();
        Words words = alternatives(depth + 1);
        if (!skip(")")) return unreadable();
        if (!apart) inner = std::move(words);
        return 0;
    }

    char choice() {
        skip("^");
        skip("]");
        while (!ended() && here() != ']') {
            if (here() == '[') return unreadable();
            at_ += here() == '\\' ? 2 : 1;
        }
        return skip("]") ? 0 : unreadable();
    }

    // How often: whether the piece before may be missing.
    bool times() {
        bool optional = skip("?") || skip("*");
        if (!optional && here() == '{') {
            const size_t end = text_.find_first_not_of("0123456789,", at_ + 1);
            if (end == text_.npos || text_[end] != '}' || end == at_ + 1) return unreadable();
            at_ = end + 1;
            optional = true;
        } else if (!optional && !skip("+")) {
            return false;
        }
        skip("?") || skip("+");
        return optional;
    }

    char unreadable() {
        readable_ = false;
        return 0;
    }

    std::string_view text_;
    size_t at_ = 0;
    bool readable_ = true;
};

constexpr std::string_view any_case = "(?i)";
constexpr size_t most_known = 4096;  // expressions

// The words of an expression, in small letters where it ignores case: read once.
const Words& words_of(std::string_view expression, bool ignores_case) {
    thread_local std::unordered_map<std::string, Words> known;
    const auto found = known.find(std::string(expression));
    if (found != known.end()) return found->second;
    if (known.size() >= most_known) known.clear();
    Words words = Expression(ignores_case ? expression.substr(any_case.size()) : expression).words();
    if (ignores_case) std::transform(words.begin(), words.end(), words.begin(), lowered);
    return known[std::string(expression)] = std::move(words);
}

}  // namespace

bool may_match(std::string_view expression, std::string_view text) {
    const bool ignores_case = expression.substr(0, any_case.size()) == any_case;
    const Words& words = words_of(expression, ignores_case);
    if (words.empty() || (ignores_case && !is_ascii(text))) return true;
    const std::string lower = ignores_case ? lowered(text) : std::string();
    const std::string_view held = ignores_case ? lower : text;
    return std::any_of(words.begin(), words.end(), [held](const std::string& word) { return held.find(word) != held.npos; });
}

}  // namespace timesink
