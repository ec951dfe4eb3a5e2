//! The files of the work tree that the rules look at, read once.
//!
//! The tree is walked rather than asked of git, so that a source archive can be checked as well.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::lexed::Lexed;

/// Hidden folders that hold our files; every other hidden folder is somebody's tool.
const HIDDEN: [&str; 3] = [".cargo", ".ci", ".github"];
/// Endings of the files that people write here. Anything else is data.
const ENDINGS: [&str; 10] = ["rs", "md", "toml", "lock", "sql", "sh", "py", "yml", "yaml", "txt"];

/// One file, with its path from the root in forward slashes.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    /// Rust files only.
    pub(crate) lexed: Option<Lexed>,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            lexed: path.ends_with(".rs").then(|| Lexed::new(text)),
        }
    }

    /// Whether the whole file is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests") || self.path.ends_with("/tests.rs")
    }

    /// A program that a compile-fail test feeds to the compiler: no rule of style applies to it.
    pub(crate) fn is_compile_case(&self) -> bool {
        self.path.starts_with("tests/refused/cases/")
    }
}

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    // `cargo run` names the manifest at run time; the compiled-in one serves a bare start.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// All files below `root`, sorted by path.
pub(crate) fn read(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let ours = !name.starts_with('.') || HIDDEN.contains(&name.as_str());
            if ours && name != "target" {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() && is_read(&path) {
            // A file that vanishes meanwhile or is no text is no file of ours.
            if let Ok(text) = fs::read_to_string(&path) {
                files.push(File::new(&relative(root, &path), &text));
            }
        }
    }
    Ok(())
}

fn is_read(path: &Path) -> bool {
    match path.extension() {
        Some(ending) => ENDINGS.iter().any(|known| ending == *known),
        None => path.parent().is_some_and(|folder| folder.file_name() == Some(OsStr::new(".ci"))),
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    inside.to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_read_and_build_output_is_not() {
        let files = read(&root()).expect("the work tree can be read");
        assert!(files.iter().any(|file| file.path == "xtask/src/tree.rs"));
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }

    #[test]
    fn code_of_tests_and_compile_cases_is_told_by_their_path() {
        assert!(File::new("stores/sqlite/tests/suite.rs", "").is_test());
        assert!(!File::new("stores/sqlite/src/lib.rs", "").is_test());
        assert!(File::new("tests/refused/cases/sqlite-refused/pool.rs", "").is_compile_case());
    }
}
