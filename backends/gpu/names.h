/* Names of variants, put together at compile time: variant_name<lrpe_any, type_name<bf16>, forward>::text is
 * "lrpe_any<bf16, forward>". */
#ifndef COPES_BACKENDS_GPU_NAMES_H
#define COPES_BACKENDS_GPU_NAMES_H

#include "backends/gpu/storage.h"

#include <stddef.h>

namespace COPES_GPU
{

/* A word of a name. It is held by value, as compilers older than Clang 18 take no reference into an array as an argument of a
 * template. */
struct variant_word {
    char of[24] = {};
    size_t length = 0;

    constexpr variant_word(const char *text)
    {
        for (; text[length] != '\0'; length++)
            of[length] = text[length];
    }
};

template <variant_word METHOD, variant_word... ARGUMENTS> class variant_name
{
    static constexpr size_t LENGTH = METHOD.length + (ARGUMENTS.length + ... + (2 * sizeof...(ARGUMENTS)));

    struct characters {
        char of[LENGTH + 1] = {};
    };
    static constexpr characters join()
    {
        characters all;
        size_t end = 0;
        const auto add = [&](const variant_word &part) {
            for (size_t i = 0; i < part.length; i++)
                all.of[end++] = part.of[i];
        };
        const char *before = "<";
        add(METHOD);
        ((add(before), add(ARGUMENTS), before = ", "), ...);
        add(">");
        return all;
    }
    static constexpr characters all = join();

  public:
    static constexpr const char *text = all.of;
};

template <typename T> inline constexpr variant_word type_name = "f32";
template <> inline constexpr variant_word type_name<f16> = "f16";
template <> inline constexpr variant_word type_name<bf16> = "bf16";
template <> inline constexpr variant_word type_name<narrow<f16>> = "f16 by 8 bytes";
template <> inline constexpr variant_word type_name<narrow<bf16>> = "bf16 by 8 bytes";
template <> inline constexpr variant_word type_name<any_type> = "any";

inline constexpr variant_word direction_names[] = {"forward", "backward"};
inline constexpr variant_word passes_names[] = {"", "sums", "of_sums"}; /* of a softmax: both need no word */

} // namespace COPES_GPU

#endif
