"""Linear maps in 8 bits, for a processor that has instructions for sums of such products (VNNI).

Weights have a scale for each output, and inputs one for each row, so what a row gives depends on no other. oneDNN packs the
weights in the order in which it reads them.

Runs on: the thread that owns the device.
"""

import re
from pathlib import Path
from typing import Final, cast

import torch
from torch import Tensor, nn

from cc_tts.engines.cosyvoice.model.networks.layers import JoinedLinears

_LEVELS: Final = 127.0
_ZERO: Final = 128  # oneDNN is quick with inputs that have no sign
_LEAST: Final = 1e-12  # the largest number of a row that is zero throughout
_VNNI: Final = re.compile(r"^flags\s*:.*\b(avx512_vnni|avx_vnni)\b", re.MULTILINE)
_CPUINFO: Final = Path("/proc/cpuinfo")


def can_quantise(cpuinfo: Path = _CPUINFO) -> bool:
    """Return whether products of 8-bit numbers are quick and exact here: others add two of them in 16 bits."""
    try:
        has_vnni = _VNNI.search(cpuinfo.read_text(encoding="utf-8")) is not None
    except OSError:
        has_vnni = False
    return has_vnni and hasattr(torch.ops.onednn, "qlinear_pointwise")


class Int8Linear(nn.Module):
    """Linear maps of the same input, whose results lie side by side. All have a bias, or none."""

    def __init__(self, *maps: nn.Linear) -> None:
        super().__init__()
        weight = torch.cat([each.weight for each in maps]).to(torch.float32)
        biases: list[Tensor] = [each.bias for each in maps if cast("Tensor | None", each.bias) is not None]
        most = weight.abs().amax(dim=1).clamp(min=_LEAST)
        rounded = torch.round(weight * (_LEVELS / most[:, None])).to(torch.int8)
        self._packed: Tensor = torch.ops.onednn.qlinear_prepack(rounded, None)
        self._scales = most / _LEVELS**2  # those of the inputs but for the largest number of each row are among them
        self._zeros = torch.zeros_like(most, dtype=torch.int32)
        self._bias = torch.cat(biases).to(torch.float32) if biases else None

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., all out]. A row that is not finite gives one that is not, and harms no other."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.float32)
        most = rows.abs().amax(dim=1, keepdim=True)
        even = torch.nan_to_num(rows * (_LEVELS / most.clamp(min=_LEAST)), nan=0.0)
        quantised = (torch.round(even) + _ZERO).to(torch.uint8)
        mapped = torch.ops.onednn.qlinear_pointwise(
            *(quantised, 1.0, _ZERO, self._packed, self._scales, self._zeros, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        mapped = mapped * most
        mapped = mapped if self._bias is None else mapped + self._bias
        return cast("Tensor", mapped.view(*x.shape[:-1], -1).to(x.dtype))


@torch.no_grad()
def quantise(network: nn.Module) -> None:
    """Run all linear maps of a network in 8 bits from now on; their weights are let go."""
    for module in list(network.modules()):
        own = (*vars(module).items(), *module.named_children())
        joined = {name: part for name, part in own if isinstance(part, JoinedLinears)}
        parts = {id(each) for part in joined.values() for each in part.maps}
        for name, part in joined.items():
            delattr(module, name)
            setattr(module, name, Int8Linear(*part.maps))
        for name, child in list(module.named_children()):
            if id(child) in parts:
                delattr(module, name)
            elif type(child) is nn.Linear:
                setattr(module, name, Int8Linear(child))
