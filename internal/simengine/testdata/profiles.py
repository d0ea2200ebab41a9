"""Writes the profiles beside it; needs NumPy.

profile.json, profile.npz and profile-deflated.npz hold the same numbers: prefill
times measured on one H200 with Llama-3.1-8B-Instruct in FP8, and the linear fit of
its decode times. types.npz has other types, a flat decode_itl and one array more.
"""

import json
import pathlib

import numpy as np

here = pathlib.Path(__file__).parent

kv = np.array([8192.0, 65536.0, 262144.0, 524288.0, 942080.0])
context = np.array([256.0, 1024.0, 4096.0, 8192.0])
batch = kv[:, None] / context[None, :]
profile = {
    "prefill_isl": np.array([100.0, 1117.0, 2134.0, 4168.0, 8236.0, 12304.0, 16372.0]),
    "prefill_ttft_ms": np.array([19.525, 38.494, 49.968, 87.342, 171.029, 262.460, 375.483]),
    "decode_active_kv_tokens": kv,
    "decode_context_length": context,
    "decode_itl": np.round(4.3875 + 29.3174e-6 * kv[:, None] + 0.038510 * batch, 6),
}
np.savez(here / "profile.npz", **profile)
np.savez_compressed(here / "profile-deflated.npz", **profile)
rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values.tolist())}" for name, values in profile.items())
(here / "profile.json").write_text("{\n" + rows + "\n}\n")

np.savez(
    here / "types.npz",
    prefill_isl=np.array([0, 1000, 3000], dtype="<i4"),
    prefill_ttft_ms=np.array([16.5, 32, 80], dtype="<f4"),
    decode_active_kv_tokens=np.array([0, 100_000], dtype="<i8"),
    decode_context_length=np.array([0, 4096], dtype="<f4"),
    decode_itl=np.array([4.5, 5, 6.5, 9]),
    metadata=np.array('{"engine": "none"}'),
)
