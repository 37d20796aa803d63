//! The check that no command overwrites a file that it reads, or one of its outputs with another.
//! Every command with outputs runs it before it writes anything. Links and different spellings of a
//! path are resolved.

use super::report::Error;
use crate::diag::Diag;
use crate::lang::Program;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that a command reads and writes.
#[derive(Debug, Default)]
pub struct Files {
    /// Inputs: a description and the path.
    inputs: Vec<(String, PathBuf)>,
    /// Outputs: the option and the path.
    outputs: Vec<(String, PathBuf)>,
}

impl Files {
    /// Adds an input.
    pub fn input(mut self, what: &str, path: impl AsRef<Path>) -> Files {
        self.inputs.push((what.to_string(), path.as_ref().to_path_buf()));
        self
    }

    /// Adds the source and its imports.
    pub fn program(mut self, program: &Program) -> Files {
        for (at, file) in program.sources.files.iter().enumerate() {
            let what = if at == 0 { "the source" } else { "an import of the source" };
            self = self.input(what, &file.path);
        }
        self
    }

    /// Adds the inputs of options of the form `NAME=PATH`.
    pub fn named_inputs(mut self, texts: &[String]) -> Files {
        for (name, path) in texts.iter().filter_map(|text| text.split_once('=')) {
            self = self.input(&format!("the input `{name}`"), path);
        }
        self
    }

    /// Adds an output, if there is one.
    pub fn output(mut self, option: &str, path: Option<impl AsRef<Path>>) -> Files {
        let path = path.map(|path| path.as_ref().to_path_buf());
        self.outputs.extend(path.map(|path| (option.to_string(), path)));
        self
    }

    /// Fails if an output is an input or another output.
    pub fn check(&self) -> Result<(), Error> {
        let known = |(what, path): &(String, PathBuf)| Some((what.clone(), Place::of(path)?));
        let mut taken: Vec<(String, Place)> = self.inputs.iter().filter_map(known).collect();
        for (option, path) in &self.outputs {
            let Some(place) = Place::of(path) else { continue };
            if let Some((other, _)) = taken.iter().find(|(_, one)| *one == place) {
                let path = path.display();
                let text = format!("{option} would overwrite {other}: `{path}`");
                let diag = Diag::global("E0502", text);
                return Err(diag.help("nothing was written; give another path").into());
            }
            taken.push((option.clone(), place));
        }
        Ok(())
    }
}

/// The identity of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// An existing file: device and inode.
    There(u64, u64),
    /// A new file: device and inode of its folder, and its name.
    New(u64, u64, OsString),
}

impl Place {
    /// Returns the identity of a regular file, which need not exist. None for pipes and devices,
    /// which may be written twice, and for files in no existing folder, which cannot be written.
    fn of(path: &Path) -> Option<Place> {
        let mut path = path.to_path_buf();
        // Linux follows 40 links.
        for _ in 0..40 {
            if let Ok(meta) = fs::metadata(&path) {
                return meta.is_file().then(|| Place::There(meta.dev(), meta.ino()));
            }
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
                _ => PathBuf::from("."),
            };
            // A dangling link names the file that will be created.
            let Ok(target) = fs::read_link(&path) else {
                let meta = fs::metadata(&folder).ok()?;
                return Some(Place::New(meta.dev(), meta.ino(), path.file_name()?.to_os_string()));
            };
            path = folder.join(target);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_the_same_by_every_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::create_dir(at("d")).unwrap();
        symlink("a", at("soft")).unwrap();
        symlink("soft", at("softer")).unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        symlink(directory.path(), at("d/up")).unwrap();
        for same in ["soft", "softer", "hard", "./a", "d/../a", "d/up/a"] {
            assert_eq!(Place::of(&at(same)), Place::of(&at("a")), "{same}");
        }
        symlink("new", at("to-new")).unwrap();
        for same in ["./new", "d/../new", "d/up/new", "to-new"] {
            assert_eq!(Place::of(&at(same)), Place::of(&at("new")), "{same}");
        }
        assert_ne!(Place::of(&at("new")), Place::of(&at("d/new")));
        assert_ne!(Place::of(&at("new")), Place::of(&at("New")));
        assert_eq!(Place::of(Path::new("/dev/null")), None);
        symlink("round", at("round")).unwrap();
        assert_eq!(Place::of(&at("round")), None);
    }

    #[test]
    fn outputs_must_differ_from_inputs_and_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a.te"), "").unwrap();
        let files = || Files::default().input("the source", at("a.te")).output("-o", Some(at("b")));
        assert!(files().check().is_ok());
        assert!(files().output("--plot", Some("/dev/null")).check().is_ok());
        let twice = files().output("-x", Some("/dev/null")).output("-y", Some("/dev/null"));
        assert!(twice.check().is_ok());
        assert!(files().output("--plot", None::<PathBuf>).check().is_ok());
        assert!(files().output("--plot", Some(at("a.te"))).check().is_err());
        assert!(files().output("--plot", Some(at("./b"))).check().is_err());
    }
}
