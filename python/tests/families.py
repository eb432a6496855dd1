"""Which causal language models of the transformers package turn by copes: makes a tiny random one of every family, where
a common configuration will do, and prints those that use() takes, with the difference of logits, and those it refuses.

    python python/tests/families.py"""

import conftest  # noqa: F401 - for torchvision
import torch
import transformers
import zoo
from copes.integrations.transformers import use
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as FAMILIES

LARGEST = 30_000_000  # parameters; a family with more has sizes of its own


def configured(family):
    try:
        return transformers.AutoConfig.for_model(family, **zoo.SIZES)
    except Exception:  # head_dim may be what another size says
        sizes = {name: size for name, size in zoo.SIZES.items() if name != "head_dim"}
        return transformers.AutoConfig.for_model(family, **sizes)


def made(family):
    """None where this takes a configuration of the family's own."""
    try:
        config = configured(family)
        with torch.device("meta"):
            size = transformers.AutoModelForCausalLM.from_config(config).num_parameters()
        if size > LARGEST:
            return None
        torch.manual_seed(0)
        model = zoo.sharpen(transformers.AutoModelForCausalLM.from_config(config))
        model(input_ids=torch.arange(4, 34)[None])
        return model
    except Exception:
        return None


@torch.no_grad()
def main():
    transformers.logging.set_verbosity_error()
    for family in FAMILIES:
        model, row = made(family), torch.arange(4, 34)[None]
        if model is None:
            continue
        untouched = model(input_ids=row).logits
        try:
            with use(model):
                difference = (model(input_ids=row).logits - untouched).norm() / untouched.norm()
                print(f"{family}: {difference:.1e}", flush=True)
        except ValueError as error:
            print(f"{family}: refused, {error}", flush=True)


if __name__ == "__main__":
    main()
