/* What planners do alike, whatever they plan for. */
#include "backends/gpu/plan.h"

#include <string_view>

namespace COPES_GPU
{

bool refuse(copes_plan *plan, const variant_word &variant, const char *reason)
{
    if (plan->refused < COPES_PLAN_REFUSALS)
        plan->refusal[plan->refused++] = {variant.of, reason};
    return false;
}

bool is_allowed(const gpu_device &device, const variant_word &variant, copes_plan *plan)
{
    const std::string_view name(variant.of, variant.length);
    std::string_view asked = device.asked;
    if (asked.empty() || asked == name)
        return true;
    if (asked[0] != '-')
        return refuse(plan, variant, "COPES_GPU_VARIANT asks for another");
    for (size_t end; !asked.empty(); asked.remove_prefix(lesser(end + 1, asked.size()))) {
        end = lesser(asked.find(','), asked.size());
        if (std::string_view(asked.data() + 1, end - 1) == name)
            return refuse(plan, variant, "COPES_GPU_VARIANT forbids it");
    }
    return true;
}

bool refuse_addresses(copes_plan *plan, const variant_word &variant)
{
    plan->cluster = 0;
    plan->cooperative = false;
    return refuse(plan, variant, "a tensor is not aligned to 16 bytes");
}

void set_launch(copes_plan *plan, dim3 grid, dim3 block, int64_t shared)
{
    const int64_t blocks[3] = {grid.x, grid.y, grid.z}, threads[3] = {block.x, block.y, block.z};
    memcpy(plan->grid, blocks, sizeof blocks);
    memcpy(plan->block, threads, sizeof threads);
    plan->shared = shared;
}

void variant_list::add(const char *name)
{
    if (count < capacity)
        names[count] = name;
    count++;
    found = found || (length > 0 && std::string_view(name, strcspn(name, "<")) == std::string_view(sought, length));
}

} // namespace COPES_GPU
