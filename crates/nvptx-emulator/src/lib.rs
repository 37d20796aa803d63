//! Runs PTX text without a GPU.
