//! The commands of `samples/networks/README.md`.

use super::examples::{copy, follow_the_page};
use super::{has, root, run, scratch};
use crate::support::say_skipped;

#[test]
fn the_samples_of_networks() {
    let dir = scratch();
    let modules = "import numpy, onnx, safetensors, tvm_ffi";
    if !has("python") {
        return;
    }
    if !run(dir.path(), "python", &["-c", modules]).status.success() {
        return say_skipped("a package of requirements.txt is not installed");
    }
    let folder = dir.path().join("networks");
    copy(&root().join("samples/networks"), &folder);
    // Files that the commands left in the tree would hide a missing step.
    for file in std::fs::read_dir(&folder).expect("a folder") {
        let path = file.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_source = [".md", ".py", ".c", ".rs"].iter().any(|end| name.ends_with(end));
        if !is_source && name != "lenet.te" && name != "decoder.te" {
            let _ = std::fs::remove_file(path);
        }
    }
    follow_the_page(&folder);
}
