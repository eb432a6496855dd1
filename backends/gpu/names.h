/* Names of variants, put together at compile time: variant_name<lrpe_any, type_name<bf16>, forward>::text is
 * "lrpe_any<bf16, forward>". */
#ifndef COPES_BACKENDS_GPU_NAMES_H
#define COPES_BACKENDS_GPU_NAMES_H

#include "backends/gpu/storage.h"

#include <string_view>

namespace COPES_GPU
{

template <const std::string_view &METHOD, const std::string_view &...ARGUMENTS> class variant_name
{
    static constexpr size_t LENGTH = METHOD.size() + (ARGUMENTS.size() + ... + (2 * sizeof...(ARGUMENTS)));

    struct characters {
        char of[LENGTH + 1] = {};
    };
    static constexpr characters join()
    {
        characters all;
        size_t end = 0;
        const auto add = [&](std::string_view part) {
            for (char c : part)
                all.of[end++] = c;
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

template <typename T> inline constexpr std::string_view type_name = "f32";
template <> inline constexpr std::string_view type_name<f16> = "f16";
template <> inline constexpr std::string_view type_name<bf16> = "bf16";

inline constexpr std::string_view direction_names[] = {"forward", "backward"};

} // namespace COPES_GPU

#endif
