"""Other libraries that decode MLA, each in a module of its own."""

# Module and class of each, in the order of a report.
PEERS = {
    "flash_mla": ("flash_mla", "FlashMla"),
    "flashinfer": ("flashinfer", "FlashInfer"),
    "fa3": ("fa3", "FlashAttention3"),
    "fa3_vllm": ("fa3_vllm", "VllmFlashAttention3"),
    "triton_vllm": ("triton_vllm", "VllmTriton"),
    "torch_sdpa": ("torch_sdpa", "TorchSdpa"),
}
