//! The library of `tec`: the embedded files of `lib/`.

/// The name of each file, as in `import`, and its text.
pub(super) const LIB: &[(&str, &str)] = &[
    ("image.te", include_str!("../../lib/image.te")),
    ("intrinsics.te", include_str!("../../lib/intrinsics.te")),
    ("nn.te", include_str!("../../lib/nn.te")),
    ("onnx.te", include_str!("../../lib/onnx.te")),
    ("onnx_ml.te", include_str!("../../lib/onnx_ml.te")),
    ("onnx_narrow.te", include_str!("../../lib/onnx_narrow.te")),
    ("onnx_rare.te", include_str!("../../lib/onnx_rare.te")),
    ("schedules.te", include_str!("../../lib/schedules.te")),
    ("train.te", include_str!("../../lib/train.te")),
];

/// The paths of the files in messages.
pub const LIBRARY: [&str; 9] = [
    "lib/image.te",
    "lib/intrinsics.te",
    "lib/nn.te",
    "lib/onnx.te",
    "lib/onnx_ml.te",
    "lib/onnx_narrow.te",
    "lib/onnx_rare.te",
    "lib/schedules.te",
    "lib/train.te",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_lib_is_embedded() {
        let mut names: Vec<String> = std::fs::read_dir("lib")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".te"))
            .collect();
        names.sort();
        let shown: Vec<String> = names.iter().map(|name| format!("lib/{name}")).collect();
        assert_eq!(shown, LIBRARY);
        assert_eq!(names, LIB.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
    }
}
