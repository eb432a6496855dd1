/* In C++ the empty braces set every byte of what callers fill to zero, whatever was there before. */
#include <copes/copes.h>

#include <cstdio>
#include <cstring>
#include <new>

/* Of a union they need set no more than the first member, and GCC 15 does not, so that must be all of it. */
static_assert(sizeof(copes_op) == sizeof(copes_kind) + sizeof(int32_t) + sizeof(copes_act_attributes), "copes_op");
static_assert(sizeof(copes_args) == sizeof(copes_args::in) + sizeof(copes_args::out), "copes_args");

template <typename T> static int expect_zero(const char *name)
{
    alignas(T) unsigned char memory[sizeof(T)];
    std::memset(memory, 0xff, sizeof memory);
    new (memory) T{};
    for (std::size_t i = 0; i < sizeof memory; i++)
        if (memory[i] != 0)
            return std::printf("%s{}: byte %zu of %zu is %d\n", name, i, sizeof memory, memory[i]), 1;
    return 0;
}

int main()
{
    return expect_zero<copes_op>("copes_op") + expect_zero<copes_args>("copes_args") +
           expect_zero<copes_act_attributes>("copes_act_attributes") +
           expect_zero<copes_lrpe_attributes>("copes_lrpe_attributes") +
           expect_zero<copes_tpa_attributes>("copes_tpa_attributes") +
           expect_zero<copes_qk_attributes>("copes_qk_attributes") +
           expect_zero<copes_context_options>("copes_context_options");
}
