//! How long files and functions are. A file holds one noun, a function one verb; both grow by a
//! line at a time until nobody can read them, so length is measured and may not grow unseen.

use std::collections::BTreeMap;

use crate::tree::File;

/// Lines a file should stay within.
pub(super) const FILE_AIM: usize = 400;
/// Lines beyond which no file is accepted, recorded or not.
pub(super) const FILE_LIMIT: usize = 800;
/// The same for test files: scenarios are long and are read one at a time.
pub(super) const TEST_FILE_LIMIT: usize = 1_200;
/// Lines a function should stay within, signature included.
pub(super) const FUNCTION_AIM: usize = 70;

/// What was measured: `src/a.rs` or `src/a.rs::name` with its lines, above the aim only.
pub(super) type Lengths = BTreeMap<String, usize>;

/// Everything that is longer than its aim.
pub(super) fn measure(files: &[File]) -> Lengths {
    let mut lengths = Lengths::new();
    for file in files.iter().filter(|file| !file.is_compile_case()) {
        let Some(lexed) = &file.lexed else { continue };
        lengths.insert(file.path.clone(), file.text.lines().count());
        for function in lexed.functions() {
            // Functions of one name in one file share an entry: the longest of them counts.
            let key = format!("{}::{}", file.path, function.name);
            let lines = function.last - function.first + 1;
            let longest = lengths.entry(key).or_default();
            *longest = lines.max(*longest);
        }
    }
    lengths.retain(|key, lines| *lines > aim(key));
    lengths
}

/// The aim for an entry.
pub(super) fn aim(key: &str) -> usize {
    if key.contains("::") { FUNCTION_AIM } else { FILE_AIM }
}

/// The hard limit for an entry; functions have none beside the ratchet.
pub(super) fn limit(key: &str) -> usize {
    if key.contains("::") {
        usize::MAX
    } else if File::new(key, "").is_test() {
        TEST_FILE_LIMIT
    } else {
        FILE_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_functions_are_measured_and_short_ones_are_not() {
        let body = "    a();\n".repeat(FUNCTION_AIM);
        let long = format!("//! x\nfn long() {{\n{body}}}\nfn short() {{\n}}\n");
        let padding = "// x\n".repeat(FILE_AIM);
        let files = [
            File::new("a/src/b.rs", &long),
            File::new("a/src/c.rs", &padding),
            File::new("a/src/d.rs", &format!("{padding}// x\n")),
        ];
        let measured = measure(&files);
        let keys: Vec<&str> = measured.keys().map(String::as_str).collect();
        assert_eq!(keys, ["a/src/b.rs::long", "a/src/d.rs"]);
        assert_eq!(measured["a/src/b.rs::long"], FUNCTION_AIM + 2);
    }

    #[test]
    fn tests_have_a_wider_limit() {
        assert_eq!(limit("a/tests/b.rs"), TEST_FILE_LIMIT);
        assert_eq!(limit("a/src/b.rs"), FILE_LIMIT);
    }
}
