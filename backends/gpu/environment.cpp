/* The variables of the environment that narrow the planners' choice, or describe a device that is not there. */
#include "backends/gpu/environment.h"

#include "backends/gpu/families.h"

#include <stdlib.h>
#include <string_view>

namespace COPES_GPU
{

/* A variable's text; empty where it is not set. */
static std::string_view text_of(const char *variable)
{
    const char *text = getenv(variable);
    return text != nullptr ? text : "";
}

static bool is_variant(std::string_view name)
{
    variant_list list = {nullptr, 0, 0, name.data(), name.size(), false};
    list_variants(&list);
    return list.found;
}

/* A text without its first `count` characters. (substr may throw, for which the library has no runtime.) */
static std::string_view after(std::string_view text, size_t count)
{
    text.remove_prefix(lesser(count, text.size()));
    return text;
}

/* Cuts the text before the first comma off a list. */
static std::string_view cut_item(std::string_view *list)
{
    const size_t end = lesser(list->find(','), list->size());
    const std::string_view item(list->data(), end);
    *list = after(*list, end + 1);
    return item;
}

/* Is it a variant's name up to the "<", or a list of such names with a "-" before each? */
static bool is_choice(std::string_view text)
{
    if (text[0] != '-')
        return is_variant(text);
    while (!text.empty()) {
        const std::string_view item = cut_item(&text);
        if (item.empty() || item[0] != '-' || !is_variant(after(item, 1)))
            return false;
    }
    return true;
}

/* A number without sign, of at most nine digits; -1 for any other text. */
static int number_of(std::string_view text)
{
    int number = text.empty() || text.size() > 9 ? -1 : 0;
    for (char c : text)
        number = number < 0 || c < '0' || c > '9' ? -1 : number * 10 + (c - '0');
    return number;
}

copes_status read_choice(gpu_device *device)
{
    const std::string_view architecture = text_of("COPES_GPU_ARCH"), variant = text_of("COPES_GPU_VARIANT");
    if (!variant.empty()) {
        if (variant.size() >= sizeof device->asked || !is_choice(variant))
            return copes_fail(
                COPES_ERROR_ATTRIBUTE,
                "COPES_GPU_VARIANT is %s; it must be a variant's name up to its \"<\", a list of such names "
                "with a - before each, or not set",
                variant.data());
        strcpy(device->asked, variant.data());
    }
    if (architecture.empty())
        return COPES_OK;
    const int most = number_of(architecture);
    if (most < 10 || most > 999)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "COPES_GPU_ARCH is %s; it must be a compute capability such as 80, or not set",
                          architecture.data());
    device->architecture = lesser(device->architecture, most);
    return COPES_OK;
}

bool is_modelled()
{
    return !text_of("COPES_GPU_MODEL").empty();
}

/* Stores the number of "KEY=NUMBER" for its key. False: the item is invalid, or its key came before. */
static bool read_item(std::string_view item, gpu_device *device, int *clusters)
{
    struct {
        std::string_view key;
        int *value;
    } const keys[] = {{"capability", &device->capability},
                      {"multiprocessors", &device->multiprocessors},
                      {"shared_memory", &device->shared_memory},
                      {"clusters", clusters}};
    const size_t equals = lesser(item.find('='), item.size());
    for (const auto &[key, value] : keys)
        if (std::string_view(item.data(), equals) == key && *value < 0)
            return (*value = number_of(after(item, equals + 1))) >= 0;
    return false;
}

/* `most`: blocks of the largest cluster. Clusters fill all multiprocessors but a remainder, as on a real device they
 * need not. */
static void model_clusters(int most, gpu_device *device)
{
    for (int size = 1; size <= MOST_CLUSTER; size++)
        device->clusters[size] = size <= most ? device->multiprocessors / size : 0;
}

copes_status read_model(gpu_device *device)
{
    const std::string_view model = text_of("COPES_GPU_MODEL");
    std::string_view rest = model;
    int clusters = -1;
    bool read = true;
    device->capability = device->multiprocessors = device->shared_memory = -1;
    while (!rest.empty() && read)
        read = read_item(cut_item(&rest), device, &clusters);
    if (!read || device->capability < 10 || device->multiprocessors < 1 || device->shared_memory < 49152 ||
        clusters > MOST_CLUSTER)
        return copes_fail(COPES_ERROR_ATTRIBUTE,
                          "COPES_GPU_MODEL is %s; it must be capability=90,multiprocessors=132,shared_memory=232448, "
                          "with other numbers and at will clusters=16, or not set",
                          model.data());
    device->architecture = device->capability;
    device->cooperative = BLOCKS_MEET;
    COPES_TRY(read_choice(device));
    if (BLOCKS_MEET && device->architecture >= 90)
        model_clusters(clusters < 0 ? 8 : clusters, device);
    return COPES_OK;
}

} // namespace COPES_GPU
