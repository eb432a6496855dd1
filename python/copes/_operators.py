"""The operators' indices in the library's table, which is what run() takes."""

from ._copes import operators

_INDEX = {name: index for index, (name, *_) in enumerate(operators())}

ACT_FORWARD = _INDEX["act_forward"]
ACT_BACKWARD = _INDEX["act_backward"]
LRPE_FORWARD = _INDEX["lrpe_forward"]
LRPE_BACKWARD = _INDEX["lrpe_backward"]
TPA_DECODE = _INDEX["tpa_decode"]
QK_FORWARD = _INDEX["qk_norm_rope_forward"]
QK_BACKWARD = _INDEX["qk_norm_rope_backward"]
MERGE_FORWARD = _INDEX["attention_merge_forward"]
MERGE_BACKWARD = _INDEX["attention_merge_backward"]
