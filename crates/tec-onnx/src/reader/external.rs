//! Data of tensors in files beside the model.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::error::short;
use crate::proto::TensorProto;

/// The largest number of files with data.
const MAX_FILES: usize = 4096;

/// The folder of a model with the files that were mapped.
pub(crate) struct Folder {
    path: PathBuf,
    files: RefCell<HashMap<String, Bytes>>,
}

impl Folder {
    /// The folder of the given model.
    pub(crate) fn new(model: &Path) -> Self {
        let path = model.parent().unwrap_or(Path::new(""));
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Folder { path: path.to_path_buf(), files: RefCell::default() }
    }

    /// Returns the files that were mapped, sorted.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            self.files.borrow().keys().map(|location| self.path.join(location)).collect();
        files.sort();
        files
    }

    /// Returns the data of a tensor that needs `bytes` bytes.
    pub(crate) fn data(&self, tensor: &TensorProto, bytes: usize) -> Result<Bytes, String> {
        let entry = |key: &str| {
            let mut entries = tensor.external_data.iter();
            let entry = entries.find(|entry| entry.key.as_deref() == Some(key));
            entry.map(|entry| entry.value.as_deref().unwrap_or(""))
        };
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => match text.parse::<usize>() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(format!("the {key} `{}` of external data is no number", short(text))),
            },
        };
        let location = entry("location").ok_or("external data without a location")?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        let file = self.file(location)?;
        let length = length.unwrap_or(bytes);
        let end = offset.checked_add(length).filter(|end| *end <= file.len());
        let Some(end) = end else {
            return Err(format!(
                "external data at {offset} with {length} bytes is beyond the end of `{}`, {} bytes",
                short(location),
                file.len()
            ));
        };
        Ok(file.slice(offset..end))
    }

    fn file(&self, location: &str) -> Result<Bytes, String> {
        if let Some(data) = self.files.borrow().get(location) {
            return Ok(data.clone());
        }
        if self.files.borrow().len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files of external data"));
        }
        let path = self.beneath(location)?;
        let fail = |error| format!("cannot read external data `{}`: {error}", short(location));
        let file = File::open(&path).map_err(fail)?;
        has_one_name(&file, location)?;
        let data = super::map_file(&file).map_err(fail)?;
        self.files.borrow_mut().insert(location.to_string(), data.clone());
        Ok(data)
    }

    /// Returns the path of a file that lies in the folder itself: no step leads out of it.
    fn beneath(&self, location: &str) -> Result<PathBuf, String> {
        let outside = || {
            format!("external data `{}` is not beneath the folder of the model", short(location))
        };
        let relative = Path::new(location);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if location.is_empty() || !plain || location.contains(['\\', '\0']) {
            return Err(outside());
        }
        let mut path = self.path.clone();
        for part in relative.components() {
            path.push(part);
            let data = std::fs::symlink_metadata(&path).map_err(|error| {
                format!("cannot read external data `{}`: {error}", short(location))
            })?;
            if data.is_symlink() {
                return Err(format!("external data `{}` is a symbolic link", short(location)));
            }
        }
        Ok(path)
    }
}

/// Refuses a file that another name may lead to from outside of the folder.
#[cfg(unix)]
fn has_one_name(file: &File, location: &str) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let data = file.metadata().map_err(|error| error.to_string())?;
    if data.is_file() && data.nlink() > 1 {
        return Err(format!("external data `{}` has several hard links", short(location)));
    }
    Ok(())
}

#[cfg(not(unix))]
fn has_one_name(_: &File, _: &str) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::StringStringEntryProto;

    fn tensor(location: &str, offset: &str) -> TensorProto {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.to_string()),
            value: Some(value.to_string()),
        };
        let external_data = vec![entry("location", location), entry("offset", offset)];
        TensorProto { external_data, ..Default::default() }
    }

    #[test]
    fn data_outside_of_the_folder_is_refused() {
        let folder = Folder::new(Path::new("model.onnx"));
        for path in ["/etc/passwd", "../w", "a/../../w", "", "."] {
            let error = folder.data(&tensor(path, "0"), 4).unwrap_err();
            assert!(error.contains("is not beneath"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_and_ranges_are_checked() {
        let base = std::env::temp_dir().join(format!("tec-onnx-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        std::fs::write(base.join("w"), [7; 16]).unwrap();
        std::os::unix::fs::symlink("/etc/hosts", base.join("link")).unwrap();
        let folder = Folder::new(&base.join("model.onnx"));
        assert_eq!(folder.data(&tensor("w", "4"), 4).unwrap(), Bytes::from_static(&[7; 4]));
        let error = folder.data(&tensor("w", "14"), 4).unwrap_err();
        assert!(error.contains("is beyond the end"), "{error}");
        let error = folder.data(&tensor("w", "18446744073709551615"), 4).unwrap_err();
        assert!(error.contains("is beyond the end"), "{error}");
        assert!(folder.data(&tensor("link", "0"), 4).unwrap_err().contains("symbolic link"));
        std::fs::hard_link(base.join("w"), base.join("hard")).unwrap();
        assert!(folder.data(&tensor("hard", "0"), 4).unwrap_err().contains("hard links"));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
