//! Every Rust file begins by saying what lives in it and which invariant it keeps.

use super::Finding;
use crate::tree::File;

pub(super) fn examine(file: &File) -> Vec<Finding> {
    let undocumented = file.lexed.is_some() && !file.text.trim_start().starts_with("//!");
    undocumented
        .then(|| Finding::at(file, 0, "module-docs", "the file does not begin with `//!` docs"))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_docs_is_flagged() {
        let bare = File::new("a/src/lib.rs", "// not docs\nfn a() {}\n");
        assert_eq!(examine(&bare).len(), 1);
        let documented = File::new("a/src/lib.rs", "//! What lives here.\nfn a() {}\n");
        assert_eq!(examine(&documented), []);
        assert_eq!(examine(&File::new("README.md", "text")), []);
    }
}
